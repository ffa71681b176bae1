"""What the call of a stage costs above torch.autograd.Function, which gradus.torch is made of.

    python bench/torch/calls.py [--rounds N]

A program takes n tensors of four elements and gives one, so that hardly anything is computed. Beside it runs a chain of
torch.autograd.Functions that take, save and give as many tensors and compute nothing. The difference of both is fitted
by a + b n. Rounds alternate between both, the least of each counts. It asks for torch and for the gradus module.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

import gradus.torch

COUNTS = (1, 4, 16, 32)
ELEMENTS = 4


def squares(*tensors):
    total = tensors[0] * tensors[0]
    for t in tensors[1:]:
        total = total + t * t
    return total


def fresh(count):
    return [torch.empty(ELEMENTS, dtype=torch.float64) for _ in range(count)]


class Last(torch.autograd.Function):
    """Of a cotangent, n tensors and n cotangents: gradients of the first n + 1."""

    @staticmethod
    def forward(ctx, *tensors):
        return tuple(fresh(len(tensors) // 2 + 1))


class Middle(torch.autograd.Function):
    """Of a cotangent and n tensors: n gradients."""

    @staticmethod
    def forward(ctx, *tensors):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        return tuple(fresh(len(tensors) - 1))

    @staticmethod
    def backward(ctx, *grads):
        return Last.apply(*ctx.saved_tensors, *grads)


class First(torch.autograd.Function):
    """Of n tensors: one."""

    @staticmethod
    def forward(ctx, *tensors):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        return fresh(1)[0]

    @staticmethod
    def backward(ctx, grad):
        return Middle.apply(grad, *ctx.saved_tensors)


def without_gradients(f, tensors, one):
    with torch.no_grad():
        return f(*tensors)


def forward(f, tensors, one):
    return f(*tensors)


def first(f, tensors, one):
    return torch.autograd.grad(f(*tensors), tensors, one)


def second(f, tensors, one):
    slopes = torch.autograd.grad(f(*tensors), tensors, one, create_graph=True)
    return torch.autograd.grad(slopes, tensors, [one] * len(tensors))


# What is timed: how many stages it runs.
STEPS = {without_gradients: 1, forward: 1, first: 2, second: 3}


def least(run, calls):
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=300)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'microseconds':20}" + "".join(f"{f'n = {n}':>22}" for n in COUNTS), end="")
    print(f"{'a':>8}{'b':>7}{'a / stage':>11}")
    for step, stages in STEPS.items():
        above, shown = [], []
        for n in COUNTS:
            tensors = [torch.rand(ELEMENTS, dtype=torch.float64).requires_grad_() for _ in range(n)]
            one = torch.ones(ELEMENTS, dtype=torch.float64)
            f = gradus.torch.function(squares)
            runs = [lambda g=g: step(g, tensors, one) for g in (f, First.apply)]
            for run in runs:
                least(run, 100)
            time.sleep(0.3)  # kernels are compiled behind the first calls
            found = [[least(run, options.calls) for run in runs] for _ in range(options.rounds)]
            ours, plain = np.min(found, axis=0)
            above.append(ours - plain)
            shown.append(f"{ours:.1f} - {plain:.1f}")
        b, a = np.polyfit(COUNTS, above, 1)
        print(f"{step.__name__:20}" + "".join(f"{s:>22}" for s in shown), end="")
        print(f"{a:8.1f}{b:7.2f}{a / stages:11.1f}")


if __name__ == "__main__":
    main()
