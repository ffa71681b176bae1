"""What the Laplacian of a network costs at many points: mapped, by a loop over points, and of the sum.

    PYTHONPATH=build/dev/python taskset -c 0 python3 bench/python/laplacian.py [--dtype f64] [--torch]

The network is 30-128-128-1 with tanh, by default in f32. The sum over all points is one function of
all coordinates, whose Laplacian takes a direction for each; it is timed for 64 points alone. With
--torch the forward Laplacian written by hand (Li et al., 2023) runs in eager PyTorch beside, on one
thread. Medians of rounds, after one call.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import gradus
from gradus import ops
from peer_rows import laplacian_torch

SIZES = [(128, 30), (128,), (128, 128), (128,), (1, 128), (1,)]


def network(x, w1, b1, w2, b2, w3, b3):
    h = ops.tanh(ops.linear(x, w1, b1))
    h = ops.tanh(ops.linear(h, w2, b2))
    return ops.linear(h, w3, b3).sum()


def squared(w1, b1, w2, b2, w3, b3, xs):
    found = gradus.laplacian(network, xs, w1, b1, w2, b2, w3, b3, mapped=0)
    return (found * found).mean()


def median(f, rounds):
    f()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=["f32", "f64"], default="f32")
    parser.add_argument("--torch", action="store_true")
    chosen = parser.parse_args()
    dtype = {"f32": np.float32, "f64": np.float64}[chosen.dtype]
    rng = np.random.default_rng(0)
    weights = [0.2 * rng.normal(size=s).astype(dtype) for s in SIZES]
    slope = gradus.grad(squared, argnums=tuple(range(6)))
    for points in (64, 256):
        xs = rng.normal(size=(points, 30)).astype(dtype)
        rows = {
            "mapped": (lambda: gradus.laplacian(network, xs, *weights, mapped=0), 9),
            "loop": (lambda: [gradus.laplacian(network, x, *weights) for x in xs], 5),
            "gradient of a loss of it": (lambda: slope(*weights, xs), 5),
        }
        if points == 64:
            rows["of the sum"] = (lambda: gradus.laplacian(network, xs, *weights), 3)
        if chosen.torch:
            import torch

            torch.set_num_threads(1)
            given = [torch.from_numpy(a) for a in (xs, *weights)]
            want = laplacian_torch(None, *given).numpy()
            got = rows["mapped"][0]().numpy()
            off = abs(got - want).max() / abs(want).max()
            rows["torch, forward Laplacian"] = (
                lambda: laplacian_torch(None, *given),
                9,
            )
            print(f"{points:4} points: off by {off:.1e} of the largest")
        for name, (f, rounds) in rows.items():
            print(f"{points:4} points, {name:26} {median(f, rounds):9.2f} ms")


if __name__ == "__main__":
    main()
