"""Potential, as Python has it."""

import copy
import pathlib

import numpy as np
import pytest

import gradus

root = pathlib.Path(__file__).parents[2]
files = [str(root / "examples/potentials" / f"argon.{end}") for end in ("ir", "safetensors")]

positions = np.array([[0.1, 0, 0], [3.7, 0.2, 0], [0.3, 3.6, 0.4], [0, 0, 7.4]])
edges = np.array([[i, j] for i in range(4) for j in range(4) if i != j]).T
shifts = np.zeros((12, 3))


def test_gives_energies_forces_and_virials():
    potential = gradus.Potential(*files)
    assert (potential.cutoff, potential.species, potential.units) == (8.5, ["Ar"], "metal")
    result = potential.run(positions, edges, shifts, atom_virials=True)
    np.testing.assert_allclose(np.array(result.energies).sum(), result.energy)
    np.testing.assert_allclose(np.array(result.forces).sum(axis=0), 0, atol=1e-15)
    forces, pulls = np.array(result.forces), np.array(result.pulls)
    expected = np.zeros((4, 3))
    np.add.at(expected, edges[0], pulls)
    np.add.at(expected, edges[1], -pulls)
    np.testing.assert_allclose(forces, expected, atol=1e-15)
    strain = -np.einsum("ea,eb->ab", positions[edges[1]] - positions[edges[0]], pulls)
    voigt = [strain[a, b] for a, b in ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))]
    np.testing.assert_allclose(result.virial, voigt, atol=1e-15)
    np.testing.assert_allclose(np.array(result.atom_virials).sum(axis=0), voigt, atol=1e-15)
    assert potential.run(positions, edges, shifts).atom_virials is None


def test_results_do_not_follow_their_inputs():
    potential = gradus.Potential(*files)
    moving = positions.copy()
    result = potential.run(moving, edges, shifts)
    before = result.virial, np.array(result.forces)
    moving += np.arange(12).reshape(4, 3)
    assert result.virial == before[0] and (np.array(result.forces) == before[1]).all()


def test_copies_run_beside_each_other():
    potential = gradus.Potential(*files)
    other = copy.copy(potential)
    a = potential.run(positions, edges, shifts)
    b = other.run(positions * 1.1, edges, shifts)
    assert a.energy != b.energy
    assert potential.run(positions, edges, shifts).energy == a.energy


def test_checks_are_told():
    checks = gradus.Potential(*files).check(seed=3)
    assert len(checks) == 11 and all(c.passed for c in checks)
    short = gradus.Potential(*files, cutoff=5.0).check(spacing=3.0)
    assert {c.name for c in short if not c.passed} == {"cutoff", "smooth"}
    assert "smooth: failed" in repr([c for c in short if c.name == "smooth"][0])


def test_what_does_not_fit_is_refused():
    potential = gradus.Potential(*files)
    with pytest.raises(gradus.Error, match=r"'positions' is f64\[12\], and has to be f64\[N, 3\]"):
        potential.run(positions.ravel(), edges, shifts)
    with pytest.raises(gradus.Error, match="atom 1 is of species 1, and the potential has 1: Ar"):
        potential.run(positions, edges, shifts, species=np.array([0, 1, 0, 0]))
    with pytest.raises(gradus.Error, match="cutoff of a potential is greater than 0"):
        gradus.Potential(*files, cutoff=-1.0)
    with pytest.raises(gradus.Error, match="no weights are found for: eps"):
        gradus.Potential(files[0], cutoff=8.5)
