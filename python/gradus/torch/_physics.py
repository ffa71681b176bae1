"""Energies, forces, virials and products with the Hessian, in one call."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence

import torch
from torch import nn

from .. import Error
from ._autograd import call_staged
from ._function import Function, Variant
from ._importing import exports
from ._staged import Staged
from ._trees import flatten, names_of


class Energies(NamedTuple):
    energy: Any  # what the module gives
    forces: torch.Tensor  # -dE/d positions, of the sum of all energies
    virial: torch.Tensor | None  # -dE/d strain, [3, 3]
    product: torch.Tensor | None  # the Hessian by the positions, times the given vector


class EnergyForces:
    """An energy model whose forces are part of its program's first stage: a loss of forces that is
    differentiated by the parameters is one stage more, not two."""

    def __init__(
        self,
        module: Callable[..., Any],
        positions: str = "pos",
        cell: str | None = None,
        virial: bool = False,
        order: int = 1,
        dynamic: Any = None,
    ) -> None:
        self._module = module
        self._positions = positions
        self._cell = cell
        self._virial = virial or cell is not None
        self._order = order
        owner = module if isinstance(module, nn.Module) else getattr(module, "__self__", None)
        self._function = Function(self._energy, order + 1, dynamic, owner=owner)
        self._programs: dict[Any, Staged] = {}

    def _names(self, args: Any, kwargs: Any) -> list[str]:
        f = self._module
        return names_of(f.forward if isinstance(f, nn.Module) else f, args, kwargs)

    def _place(self, names: list[str], name: str) -> int:
        if name not in names:
            raise Error(
                f"there is no tensor '{name}' among the arguments; there are {', '.join(names)}"
            )
        return names.index(name)

    def _energy(self, strain: torch.Tensor | None, args: Any, kwargs: Any) -> Any:
        if strain is not None:
            names = self._names(args, kwargs)
            tensors, structure = flatten((args, kwargs))
            symmetric = (strain + strain.mT) / 2
            for name in [self._positions] + ([self._cell] if self._cell else []):
                i = self._place(names, name)
                tensors[i] = tensors[i] + tensors[i] @ symmetric
            args, kwargs = structure.fill(tensors)
        energy = self._module(*args, **kwargs)
        leaves, _ = flatten(energy)
        return leaves[0].sum(), energy

    def __call__(self, *args: Any, vector: torch.Tensor | None = None, **kwargs: Any) -> Energies:
        names = self._names(args, kwargs)
        place = self._place(names, self._positions)
        tensors, _ = flatten((args, kwargs))
        positions = tensors[place]
        strain = None
        if self._virial:
            strain = torch.zeros(3, 3, dtype=positions.dtype, device=positions.device)
        variant = self._function.variant(strain, args, kwargs)
        given = ([] if strain is None else [strain]) + tensors + exports.read(variant.stored)
        first = 0 if strain is None else 1
        staged = self._program(variant, first + place, strain is not None, vector is not None)
        given.append(torch.full((), -1.0, dtype=positions.dtype, device=positions.device))
        if vector is not None:
            given.append(-vector)
        results = list(call_staged(staged, given))
        product = results.pop() if vector is not None else None
        virial = results.pop() if strain is not None else None
        forces = results.pop()
        _, energy = variant.outputs.fill([None, *results])
        return Energies(energy, forces, virial, product)

    def _program(self, variant: Variant, place: int, strained: bool, along: bool) -> Staged:
        """Of the model's inputs, the cotangent of the sum of energies and, with `along`, a
        direction: gives the energies, forces, virial and product."""
        key = id(variant), along
        found = self._programs.get(key)
        if found is None:
            program = variant.imported.program
            inputs = [n for n, _ in program.inputs()]
            outputs = [n for n, _ in program.results()]
            positions = inputs[place]
            by = [positions] + ([inputs[0]] if strained else [])
            staged = program.differentiate(1, by)
            absent = [n for n, _ in staged.inputs(1) if n != f"ct1_{outputs[0]}"]
            joined = staged.join_stages(0, absent)
            results = outputs[1 : variant.outputs.count] + [f"d1_{n}" for n in by]
            if along:
                joined = joined.jvp([positions])
                results.append(f"t_d1_{positions}")
            found = Staged(joined.select_results(results), self._order)
            self._programs[key] = found
        return found


def energy_forces(
    module: Callable[..., Any],
    positions: str = "pos",
    cell: str | None = None,
    virial: bool = False,
    order: int = 1,
    dynamic: Any = None,
) -> EnergyForces:
    """An energy model as a function that gives `Energies`: its energy, forces, virial and, called
    with vector=v, the Hessian times v.

    `positions` and `cell` are the names of the model's arguments (data_pos is data["pos"]). With
    `virial` positions and cell are strained by x + x e, and the virial is the negative gradient by
    e.
    The model's first tensor is its energy, or the energies of several graphs, whose sum counts.
    `order`: how often the result can be differentiated, for training.
    """
    return EnergyForces(module, positions, cell, virial, order, dynamic)
