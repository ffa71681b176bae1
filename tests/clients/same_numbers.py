"""Compares the rows of numbers in two files: same_numbers.py ONE OTHER TOLERANCE.

Rows with as many numbers are a table; in each of its columns the files differ by the tolerance times the column's
largest value at most. Lines with words are left out.
"""

import sys
from collections import defaultdict


def tables(path):
    found = defaultdict(list)
    with open(path) as lines:
        for line in lines:
            try:
                row = [float(word) for word in line.split()]
            except ValueError:
                continue
            found[len(row)].append(row)
    return found


def main(one, other, tolerance):
    a, b = tables(one), tables(other)
    if not a or {k: len(v) for k, v in a.items()} != {k: len(v) for k, v in b.items()}:
        sys.exit(f"{one} and {other} have other numbers of rows")
    worst = 0.0
    for width in a:
        for k, (xs, ys) in enumerate(zip(zip(*a[width]), zip(*b[width]))):
            largest, off = max(map(abs, xs)), max(abs(x - y) for x, y in zip(xs, ys))
            if not off <= tolerance * largest:
                sys.exit(f"column {k} of {width}: off by {off:.3g}, and its largest value is {largest:.3g}")
            worst = max(worst, off / largest if largest else 0)
    print(f"{sum(map(len, a.values()))} rows agree to {worst:.2g}")


main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
