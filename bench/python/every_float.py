"""The errors of the functions of one argument over every float, for docs/math-functions.md.

    python bench/python/every_float.py [--python-path FOLDER] [--every N] [FUNCTION...]

An error is in units in the last place of the exact result. The exact result is numpy's in double where
numpy has the function, and otherwise that of Gradus in double: either is within some 1e-8 ulp of a float.
Results of Gradus are those of its loops, which have the bits of its kernels. A zero of the wrong sign, a
wrong infinity and a NaN that should not be, or is missing, count as an error of 1e30. An infinity in place
of the largest floats, or the reverse, counts as 2^128. Where a function has zeros that no float hits, errors
above `bound` ulp do not count if they are at most `away` epsilon (2^-23). Nor do results below `smallest`,
where a function gives 0 in their place.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import sys
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

BLOCK = 1 << 20


@dataclass
class Function:
    result: Callable[[Any], Any]  # of a tensor of Gradus
    exact: Callable[[np.ndarray], np.ndarray] | None = None  # of an array of doubles
    bound: float = np.inf
    away: float = 0
    smallest: float = 0


def functions() -> dict[str, Function]:
    import gradus

    ops = gradus.ops
    return {
        "exp": Function(ops.exp, np.exp),
        "exp2": Function(ops.exp2, np.exp2),
        "expm1": Function(ops.expm1, np.expm1),
        "log": Function(ops.log, np.log),
        "log1p": Function(ops.log1p, np.log1p),
        "log2": Function(ops.log2, np.log2),
        "log10": Function(ops.log10, np.log10),
        "sin": Function(ops.sin, np.sin),
        "cos": Function(ops.cos, np.cos),
        "tan": Function(ops.tan, np.tan),
        "asin": Function(ops.asin, np.arcsin),
        "acos": Function(ops.acos, np.arccos),
        "atan": Function(ops.atan, np.arctan),
        "sinh": Function(ops.sinh, np.sinh),
        "cosh": Function(ops.cosh, np.cosh),
        "tanh": Function(ops.tanh, np.tanh),
        "asinh": Function(ops.asinh, np.arcsinh),
        "acosh": Function(ops.acosh, np.arccosh),
        "atanh": Function(ops.atanh, np.arctanh),
        "sigmoid": Function(ops.sigmoid),
        "logsigmoid": Function(ops.logsigmoid),
        "erf": Function(ops.erf),
        "erfc": Function(ops.erfc),
        "erfinv": Function(ops.erfinv),
        "lgamma": Function(ops.lgamma, bound=1.5, away=2),
        "digamma": Function(ops.digamma, bound=1.5, away=1),
        "trigamma": Function(lambda x: ops.polygamma(x, n=1)),
        "sqrt": Function(ops.sqrt, np.sqrt),
        "fast_exp": Function(ops.fast_exp, np.exp, smallest=2.0**-125),
        "fast_tanh": Function(ops.fast_tanh, np.tanh),
        "fast_sigmoid": Function(ops.fast_sigmoid, smallest=2.0**-125),
    }


@np.errstate(all="ignore")
def ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """The errors of floats, in units in the last place of the exact results, which are doubles."""
    rounded = want.astype(np.float32)
    exponent = np.clip((rounded.view(np.uint32) >> np.uint32(23)) & np.uint32(0xFF), np.uint32(1), np.uint32(254))
    last = (np.uint64(1023 + 150) - exponent.astype(np.uint64)) << np.uint64(52)  # 1 / unit, as bits
    difference = got - want  # in double
    error = np.abs(difference) * last.view(np.float64)
    # What has no such error is rare.
    odd = np.flatnonzero(~np.isfinite(error) | np.isinf(rounded) | ((got == 0) & (rounded == 0)))
    g, r, w = got[odd], rounded[odd], want[odd]
    right = np.where(np.isnan(w), np.isnan(g), (g == r) & (np.signbit(g) == np.signbit(r)))
    over = np.where(np.isinf(g), np.copysign(2.0**128, g.astype(np.float64)), g)
    apart = np.abs(over - w) * 2.0**-104
    overflows = (np.isinf(g) != np.isinf(r)) & (np.signbit(g) == np.signbit(w)) & (apart < 2**23)
    error[odd] = np.where(right, 0, np.where(overflows, apart, 1e30))
    return error


@np.errstate(all="ignore")
def worst_of(function: Function, first: int, count: int, every: int) -> tuple[float, float]:
    """The largest error of the floats with the bits first, first + every, ..., and where it is."""
    import gradus

    x = (first + every * np.arange(count, dtype=np.uint64)).astype(np.uint32).view(np.float32)
    x = x[~np.isnan(x)]
    if x.size == 0:
        return 0.0, 0.0
    wide = x.astype(np.float64)
    got = np.asarray(function.result(gradus.tensor(x)))
    exact = function.exact or (lambda values: np.asarray(function.result(gradus.tensor(values))))
    want = exact(wide)
    error = ulps(got, want)
    if function.smallest:
        error[want < function.smallest] = 0
    beyond = np.flatnonzero(error > function.bound)
    error[beyond[np.abs(got[beyond] - want[beyond]) <= function.away * 2.0**-23]] = 0
    at = int(np.argmax(error))
    return float(error[at]), float(x[at])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python-path", help="the folder with the module gradus")
    parser.add_argument("--every", type=int, default=1, help="one float in so many")
    parser.add_argument("functions", nargs="*", metavar="FUNCTION")
    arguments = parser.parse_args()
    if arguments.python_path:
        sys.path.insert(0, arguments.python_path)
    known = functions()
    unknown = [name for name in arguments.functions if name not in known]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    every, floats = arguments.every, 1 << 32
    print("| function | ulp f32 | at |\n| --- | --- | --- |")
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for name in arguments.functions or known:

            def worst(first: int, function: Function = known[name]) -> tuple[float, float]:
                return worst_of(function, first, min(BLOCK, -(-(floats - first) // every)), every)

            parts = pool.map(worst, range(0, floats, BLOCK * every))
            error, at = max(parts)
            print(f"| `{name}` | {error:.3f} | {at:.9g} |", flush=True)


if __name__ == "__main__":
    main()
