"""Potentials as calculators of ASE: energy, forces, stress and Hessian.

``Calculator("argon.ir", "argon.safetensors")`` is an ``ase.calculators.calculator.Calculator``, so
that everything of ASE runs it: dynamics, relaxation, vibrations, phonons, and, by
``ase.calculators.socketio.SocketClient``, i-PI. ASE is imported with this module and not with
``gradus``.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from ase import Atoms
from ase import units as ase_units
from ase.calculators.calculator import Calculator as AseCalculator
from ase.calculators.calculator import all_changes

from . import Error, Potential
from ._edges import EdgeList

__all__ = ["Calculator"]

# A potential's units of energy in eV. Its lengths are in angstrom.
_ENERGIES = {"metal": 1.0, "real": ase_units.kcal / ase_units.mol}


class Calculator(AseCalculator):
    """Runs a potential, a program that gives atoms their energies.

    Parameters
    ----------
    program, weights:
        Files, as ``gradus.Potential`` takes them; or a ``gradus.Potential`` in place of both.
    cutoff, species, units:
        What the weights do not say: in angstrom; names of elements in the order of their numbers;
        "metal" (angstrom and eV) or "real" (angstrom and kcal/mol).
    skin:
        Edges are looked for this much farther than the cutoff (angstrom), and again when an atom
        has moved half of it. 0: at every call.

    Properties: ``energy`` and ``energies`` (eV), ``forces`` (eV/angstrom), ``stress`` (eV/angstrom^3,
    Voigt, of cells with a volume). Raises ``gradus.Error`` for elements that the potential does not
    know and for other units. For one thread at a time.
    """

    implemented_properties = ["energy", "energies", "free_energy", "forces", "stress"]

    def __init__(
        self,
        program: str | Potential,
        weights: str = "",
        *,
        cutoff: float | None = None,
        species: Sequence[str] = (),
        units: str = "",
        skin: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(program, Potential):
            self.potential = copy.copy(program)
        else:
            self.potential = Potential(program, weights, cutoff, species, units)
        if self.potential.units not in _ENERGIES:
            raise Error(
                f"the potential's units are '{self.potential.units}'; ASE's are angstrom and eV, and "
                f"'metal' and 'real' are converted"
            )
        self._scale = _ENERGIES[self.potential.units]
        self._edges = EdgeList(self.potential.cutoff, skin)
        self._numbers = {name: n for n, name in enumerate(self.potential.species)}

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = all_changes,
    ) -> None:
        super().calculate(atoms, list(properties), list(system_changes))
        result = self.potential.run(**self._input(self.atoms))
        energy = result.energy * self._scale
        self.results = {
            "energy": energy,
            "free_energy": energy,
            "energies": np.array(result.energies) * self._scale,
            "forces": np.array(result.forces) * self._scale,
        }
        if self.atoms.cell.rank == 3:
            per_volume = self._scale / self.atoms.get_volume()
            self.results["stress"] = -np.array(result.virial) * per_volume

    def get_hessian(self, atoms: Atoms) -> np.ndarray:
        """The second derivative of the energy by the positions: [3N, 3N], in eV/angstrom^2."""
        return np.array(self.potential.hessian(**self._input(atoms))) * self._scale

    def _input(self, atoms: Atoms) -> dict[str, np.ndarray]:
        edges, shifts = self._edges.find(atoms.positions, atoms.cell.array, atoms.pbc)
        return {
            "positions": np.ascontiguousarray(atoms.positions),
            "species": self._species(atoms),
            "edges": edges,
            "shifts": shifts,
        }

    def _species(self, atoms: Atoms) -> np.ndarray:
        if not self._numbers:
            return np.zeros(len(atoms), dtype=np.int64)
        symbols = atoms.get_chemical_symbols()
        unknown = sorted(set(symbols) - self._numbers.keys())
        if unknown:
            raise Error(
                f"the potential knows {', '.join(self._numbers)}; there are atoms of {', '.join(unknown)}"
            )
        return np.array([self._numbers[s] for s in symbols], dtype=np.int64)
