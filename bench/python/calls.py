"""What a call from Python costs: gradus.function and the derivatives of functions, per call.

    PYTHONPATH=build/dev/python python3 bench/python/calls.py [--json] [NAME...]

Each row is the median over rounds of calls on small arrays, once all kernels are compiled. A function
of the same name in Python is timed for none of them: what is seen is what Gradus takes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np

import gradus
from gradus import ops

SIZE = 8
A, B, C, D = (np.linspace(0.1, 1.0 + i, SIZE) for i in range(4))
TREE = {"w": [A, B], "b": (C,)}


@gradus.function
def chain(a, b):
    return ops.tanh(a * b) * a - b


@gradus.function
def chain4(a, b, c, d):
    return ops.tanh(a * b + c) * a - d


@gradus.function
def tree(p, x):
    return {"y": p["w"][0] * x + p["b"][0], "z": p["w"][1] * x}


@gradus.function
def powers(a, n, flip=False):
    return -(a**n) if flip else a**n


def loss(a, b):
    return (ops.tanh(a * b) * a).sum()


def energy(a):
    return (ops.tanh(a) * a * a).sum()


def field(a):
    return ops.tanh(a) * a.sum()


def rows():
    grad, both = gradus.grad(loss), gradus.value_and_grad(loss, (0, 1))
    tensors = [gradus.tensor(x) for x in (A, B)]
    return {
        "function, 2 arrays": lambda: chain(A, B),
        "function, 2 tensors": lambda: chain(*tensors),
        "function, 4 arrays": lambda: chain4(A, B, C, D),
        "function, a tree of 3 and an array": lambda: tree(TREE, D),
        "function, an array, a number, a keyword": lambda: powers(A, 2, flip=True),
        "grad, 2 arrays": lambda: grad(A, B),
        "value_and_grad by both, 2 arrays": lambda: both(A, B),
        "jvp, 2 arrays": lambda: gradus.jvp(loss, (A, B), (C, D)),
        "hvp, 1 array": lambda: gradus.hvp(energy, A, B),
        "jacobian [8, 8]": lambda: gradus.jacobian(field, A),
        "hessian [8, 8]": lambda: gradus.hessian(energy, A),
    }


def microseconds(f, seconds=0.05, rounds=9):
    """Per call: the median of the rounds."""
    for _ in range(20):
        f()
    gradus.current_context().wait_for_kernels()
    for _ in range(20):
        f()
    begin = time.perf_counter()
    f()
    calls = max(1, int(seconds / (time.perf_counter() - begin)))
    found = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(calls):
            f()
        found.append((time.perf_counter() - begin) / calls * 1e6)
    return statistics.median(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("names", nargs="*", help="parts of the rows' names; all rows without")
    options = parser.parse_args()
    found = {}
    for name, f in rows().items():
        if options.names and not any(n in name for n in options.names):
            continue
        found[name] = microseconds(f)
        if not options.json:
            print(f"{name:42} {found[name]:8.1f} us")
    if options.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
