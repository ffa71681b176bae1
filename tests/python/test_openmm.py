"""Potentials in OpenMM."""
# SPEC S4

import pathlib

import numpy as np
import pytest

openmm = pytest.importorskip("openmm", minversion="8.3")
pytest.importorskip("vesin")

from openmm import unit

import gradus
from gradus.openmm import force

root = pathlib.Path(__file__).parents[2]
files = [str(root / "examples/potentials" / f"argon.{end}") for end in ("ir", "safetensors")]
ev = 96.48533212331001  # kJ/mol


def places(side=3, constant=5.4):
    corners = np.array([[0, 0, 0], [0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]])
    cells = np.stack(np.meshgrid(*[range(side)] * 3), -1).reshape(-1, 1, 3)
    x = ((cells + corners) * constant).reshape(-1, 3)
    return x + np.random.default_rng(8).normal(size=x.shape) * 0.05, side * constant


def context_of(made, count, box=None):
    system = openmm.System()
    for _ in range(count):
        system.addParticle(39.948)
    if box is not None:
        system.setDefaultPeriodicBoxVectors(*(np.eye(3) * box / 10))
    system.addForce(made)
    platform = openmm.Platform.getPlatformByName("Reference")
    return openmm.Context(system, openmm.VerletIntegrator(0.004), platform)


@pytest.mark.parametrize("periodic", [False, True])
def test_gives_energies_and_forces(periodic):
    potential = gradus.Potential(*files)
    x, box = places()
    context = context_of(force(potential, ["Ar"] * len(x), periodic=periodic), len(x), box)
    context.setPositions(x / 10)
    state = context.getState(getEnergy=True, getForces=True)
    sides = np.eye(3) * box if periodic else np.zeros((3, 3))
    from gradus._edges import find_edges

    edges, cells = find_edges(x, sides, np.full(3, periodic), potential.cutoff)
    expected = potential.run(x, edges, cells @ sides)
    found = state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole)
    np.testing.assert_allclose(found, expected.energy * ev, rtol=1e-12)
    forces = state.getForces(asNumpy=True).value_in_unit(unit.kilojoule_per_mole / unit.nanometer)
    np.testing.assert_allclose(forces, np.array(expected.forces) * ev * 10, atol=1e-9)


def test_energy_is_conserved():
    x, box = places()
    made = force(gradus.Potential(*files), ["Ar"] * len(x), periodic=True)
    context = context_of(made, len(x), box)
    context.setPositions(x / 10)
    context.setVelocitiesToTemperature(60, 1)

    def total():
        state = context.getState(getEnergy=True)
        return (state.getPotentialEnergy() + state.getKineticEnergy())._value

    context.getIntegrator().step(10)
    before = total()
    context.getIntegrator().step(300)
    kinetic = context.getState(getEnergy=True).getKineticEnergy()._value
    assert abs(total() - before) < 1e-3 * kinetic


def test_moves_some_of_the_particles():
    x, _ = places(2)
    made = force(gradus.Potential(*files), ["Ar"] * 4, particles=[1, 3, 5, 7])
    context = context_of(made, len(x))
    context.setPositions(x / 10)
    forces = np.array(context.getState(getForces=True).getForces(asNumpy=True)._value)
    assert (forces[::2] == 0).all() and (np.abs(forces[[1, 3, 5, 7]]).max(axis=1) > 0).all()


def test_what_does_not_fit_is_refused():
    potential = gradus.Potential(*files)
    with pytest.raises(gradus.Error, match="knows Ar; there are particles of Kr"):
        force(potential, ["Ar", "Kr"])
    with pytest.raises(gradus.Error, match="units are 'lj'"):
        force(gradus.Potential(*files, units="lj"), ["Ar"])
    context = context_of(force(potential, ["Ar"] * 3), 4)
    context.setPositions(np.eye(4, 3))
    with pytest.raises(Exception, match="4 particles, and 3 symbols"):
        context.getState(getEnergy=True)
