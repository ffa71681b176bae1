"""Writes data/derivatives_inside.pt2 and .npz: a model that takes derivatives in its forward.

    PYTHONPATH=build/dev/python python tests/pt2/write_derivatives.py

Energy, forces by torch.autograd.grad, a slope without a graph of its own, and by torch.func the gradient of the
forces' squares and a product with a Jacobian. References are eager torch's, in f64. It asks for torch and gradus.
"""

from pathlib import Path

import numpy as np
import torch

import gradus.torch
from gradus.torch._derivatives import derivatives_inside


class Forces(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 6)
        self.second = torch.nn.Linear(6, 1)

    def energy(self, pos: torch.Tensor) -> torch.Tensor:
        near = (pos[:, None] - pos[None]).square().sum(-1)
        return self.second(torch.tanh(self.first(pos))).sum() + torch.exp(-near).sum()

    def forward(self, pos: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
        energy = self.energy(pos)
        (slope,) = torch.autograd.grad(energy, pos, create_graph=True)
        values = torch.sin(pos) * scale
        fixed, unused = torch.autograd.grad(
            [values, energy], [pos, self.unread(pos)], [scale * torch.ones_like(pos), energy], retain_graph=True, allow_unused=True
        )
        assert unused is None
        squares = lambda x, s: torch.func.grad(self.energy)(x).square().sum() * s.sum()
        at, by = torch.func.grad(squares, argnums=(0, 1))(pos, scale)
        _, pull_back = torch.func.vjp(lambda x: torch.softmax(x @ self.first.weight.T, -1), pos)
        (product,) = pull_back(torch.cos(self.first(pos)))
        return energy, -slope, fixed * pos, at, by, product

    @staticmethod
    def unread(pos: torch.Tensor) -> torch.Tensor:
        return pos + 1


def main() -> None:
    torch.manual_seed(11)
    module = Forces().double()
    pos = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    scale = torch.rand(3, dtype=torch.float64, requires_grad=True)
    with derivatives_inside():
        atoms = torch.export.Dim("atoms", min=2, max=1000)
        program = torch.export.export(module, (pos, scale), dynamic_shapes=({0: atoms}, None), strict=False)
    program._example_inputs = None
    data = Path(__file__).resolve().parent / "data"
    torch.export.save(program, data / "derivatives_inside.pt2")

    saved: dict[str, torch.Tensor] = {}

    def references(prefix: str, pos: torch.Tensor) -> None:
        inputs = {"in.pos": pos, "in.scale": scale} | {f"param.{n}": p for n, p in module.named_parameters()}
        results = module(pos, scale)
        cotangents = [torch.randn_like(r) for r in results]
        objective = sum((r * c).sum() for r, c in zip(results, cotangents))
        first = torch.autograd.grad(objective, list(inputs.values()), create_graph=True)
        penalty = sum(g.square().sum() for g in first)
        second = torch.autograd.grad(penalty, list(inputs.values()), allow_unused=True)
        found = {"in.pos": pos, "in.scale": scale, "objective": objective, "penalty": penalty}
        found |= {f"ct.{i}": c for i, c in enumerate(cotangents)} | {f"out.{i}": r for i, r in enumerate(results)}
        found |= {f"g1.{n}": g for n, g in zip(inputs, first)} | {f"g2.{n}": g for n, g in zip(inputs, second)}
        saved.update({prefix + n: t for n, t in found.items() if t is not None})

    references("", pos)
    references("alt.", torch.randn(7, 3, dtype=torch.float64, requires_grad=True))
    np.savez_compressed(data / "derivatives_inside.npz", **{n: t.detach().numpy() for n, t in saved.items()})


if __name__ == "__main__":
    main()
