"""Compares two tables with a line of names in front: same_rows.py ONE OTHER TOLERANCE, relative to each column's
largest."""

import sys


def rows(path):
    with open(path) as lines:
        next(lines)
        return [[float(x) for x in line.split()] for line in lines]


def main(one, other, tolerance):
    a, b = rows(one), rows(other)
    if not a or [len(x) for x in a] != [len(y) for y in b]:
        sys.exit(f"{one} has {len(a)} rows, {other} {len(b)}")
    for k, (xs, ys) in enumerate(zip(zip(*a), zip(*b))):
        largest, off = max(map(abs, xs)), max(abs(x - y) for x, y in zip(xs, ys))
        if not off <= tolerance * largest:
            sys.exit(f"column {k}: off by {off:.3g}, and its largest value is {largest:.3g}")


main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
