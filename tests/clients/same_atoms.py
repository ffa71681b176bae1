"""Compares two dumps of LAMMPS: same_atoms.py ONE OTHER TOLERANCE, relative to each column's largest."""

import sys


def rows(path):
    with open(path) as lines:
        return [[float(x) for x in line.split()] for line in lines if not line.startswith("ITEM")]


def main(one, other, tolerance):
    a, b = rows(one), rows(other)
    if len(a) != len(b) or not a:
        sys.exit(f"{one} has {len(a)} rows, {other} {len(b)}")
    width = max(map(len, a))
    worst = 0.0
    for k in range(width):
        pairs = [(x[k], y[k]) for x, y in zip(a, b, strict=True) if len(x) == width]
        largest = max(abs(x) for x, _ in pairs)
        off = max(abs(x - y) for x, y in pairs)
        if not off <= tolerance * largest:
            sys.exit(f"column {k}: off by {off:.3g}, and its largest value is {largest:.3g}")
        worst = max(worst, off / largest if largest else 0)
    print(f"{len(a)} rows agree to {worst:.2g}")


main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
