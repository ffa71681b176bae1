"""Writes data/operators_keys.pt2 and .npz: random numbers from a key, full factorisations, a signal from its frames.

    python tests/pt2/write_keys.py

References are eager torch's: results, gradients of a random objective, and those of the first gradients' squares. It
asks for torch.
"""

from pathlib import Path

import numpy as np
import torch
from torch.func import _random as random


class Keys(torch.nn.Module):
    def forward(
        self, x: torch.Tensor, key: torch.Tensor, a: torch.Tensor, frames: torch.Tensor, window: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        first, second = random.split(key)
        order = random.bits(first, 6, dtype=torch.int64).argsort()
        kept = random.uniform(second, 6, low=-1.0, high=2.0, dtype=torch.float64) < 0.7
        noise = random.normal(random.fold_in(key, 7), 3, 5, mean=0.5, std=2.0, dtype=torch.float64)
        u, s, vh = torch.linalg.svd(a)
        r = torch.linalg.qr(a.mT, mode="complete")[1]
        signal = torch.istft(torch.view_as_complex(frames), 8, 3, 6, window, normalized=True, length=17)
        return (
            x[order],
            torch.where(kept, x.square() / 0.7, 0.0),
            noise * x[:5],
            random.randint(second, 9, low=-4, high=11),
            random.bits(first, 4, dtype=torch.uint64).to(torch.int64),
            random.uniform(first, 5) * x.float().sum(),
            (u[:, :2] * s) @ vh,
            u[:, :2].abs(),
            s,
            r.abs(),
            signal.cos(),
        )


def main() -> None:
    torch.manual_seed(12)
    f64 = torch.float64
    inputs = {
        "x": torch.randn(6, dtype=f64),
        "key": torch.tensor([2**63 + 42, 2**64 - 1], dtype=torch.uint64),
        "a": torch.randn(4, 2, dtype=f64),
        "frames": torch.randn(5, 6, 2, dtype=f64),
        "window": torch.rand(6, dtype=f64) + 0.3,
    }
    given = [t.requires_grad_() if t.is_floating_point() else t for t in inputs.values()]
    module = Keys()
    program = torch.export.export(module, tuple(given), strict=False)
    program._example_inputs = None
    data = Path(__file__).resolve().parent / "data"
    torch.export.save(program, data / "operators_keys.pt2")

    results = module(*given)
    saved = {f"in.{n}": t for n, t in inputs.items()} | {f"out.{i}": r for i, r in enumerate(results)}
    floating = [r for r in results if r.is_floating_point()]
    cotangents = [torch.randn_like(r) for r in floating]
    saved |= {f"ct.{i}": c for i, c in enumerate(cotangents)}
    wanted = {n: t for n, t in inputs.items() if t.requires_grad}
    objective = sum((r * c).sum() for r, c in zip(floating, cotangents))
    first = torch.autograd.grad(objective, list(wanted.values()), create_graph=True)
    second = torch.autograd.grad(sum(g.square().sum() for g in first), list(wanted.values()))
    saved |= {f"g1.in.{n}": g for n, g in zip(wanted, first)} | {f"g2.in.{n}": g for n, g in zip(wanted, second)}
    np.savez_compressed(data / "operators_keys.npz", **{n: t.detach().numpy() for n, t in saved.items()})


if __name__ == "__main__":
    main()
