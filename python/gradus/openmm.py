"""Potentials as forces of OpenMM, by its ``PythonForce``. OpenMM is imported with this module."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import openmm
from openmm import unit

from . import Error, Potential
from ._edges import EdgeList

__all__ = ["force"]

_ENERGIES = {
    "metal": unit.elementary_charge * unit.volt * unit.AVOGADRO_CONSTANT_NA,
    "real": unit.kilocalorie_per_mole,
}


def force(
    potential: Potential,
    symbols: Sequence[str],
    *,
    periodic: bool = False,
    skin: float = 1.0,
    particles: Sequence[int] = (),
) -> openmm.PythonForce:
    """An ``openmm.PythonForce`` of the particles, or of those that `particles` lists.

    symbols: the element of each of them. periodic: along all three box vectors. skin: edges are
    looked for this much farther than the cutoff (angstrom), and again when a particle has moved half
    of it. Lengths and energies are converted from the potential's units, "metal" or "real". The
    force holds a copy of the potential; it cannot be serialised. Raises ``gradus.Error`` for
    elements that the potential does not know.
    """
    if potential.units not in _ENERGIES:
        raise Error(f"the potential's units are '{potential.units}'; 'metal' and 'real' are converted")
    numbers = {name: n for n, name in enumerate(potential.species)}
    unknown = sorted(set(symbols) - numbers.keys()) if numbers else []
    if unknown:
        raise Error(f"the potential knows {', '.join(numbers)}; there are particles of {', '.join(unknown)}")
    species = np.array([numbers.get(s, 0) for s in symbols], np.int64)
    compute = _Compute(copy.copy(potential), species, EdgeList(potential.cutoff, skin), periodic)
    made = openmm.PythonForce(compute, {}, list(particles))
    made.setUsesPeriodicBoundaryConditions(periodic)
    return made


class _Compute:
    def __init__(
        self, potential: Potential, species: np.ndarray, edges: EdgeList, periodic: bool
    ) -> None:
        self.potential, self.species, self.edges = potential, species, edges
        self.periodic = np.full(3, periodic)
        self.energy = (1.0 * _ENERGIES[potential.units]).value_in_unit(unit.kilojoule_per_mole)

    def __call__(self, state: Any) -> tuple[float, np.ndarray]:
        angstroms = 10.0  # OpenMM's lengths are in nanometres
        positions = np.array(state.getPositions(asNumpy=True)._value) * angstroms
        if len(positions) != len(self.species):
            raise Error(f"there are {len(positions)} particles, and {len(self.species)} symbols were given")
        box = np.zeros((3, 3))
        if self.periodic.all():
            box = np.array(state.getPeriodicBoxVectors(asNumpy=True)._value) * angstroms
        edges, shifts = self.edges.find(positions, box, self.periodic)
        result = self.potential.run(positions, edges, shifts, self.species)
        return result.energy * self.energy, np.array(result.forces) * (self.energy * angstroms)
