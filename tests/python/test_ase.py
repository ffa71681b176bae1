"""Potentials in ASE, beside ASE's own Lennard-Jones."""
# SPEC S3

import pathlib
import threading

import numpy as np
import pytest

ase = pytest.importorskip("ase")
pytest.importorskip("vesin")

from ase import units
from ase.build import bulk, fcc111, molecule
from ase.calculators.lj import LennardJones
from ase.calculators.socketio import SocketClient, SocketIOCalculator
from ase.filters import FrechetCellFilter
from ase.md.verlet import VelocityVerlet
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution
from ase.optimize import BFGS
from ase.vibrations import VibrationsData

import gradus
from gradus import _edges
from gradus.ase import Calculator

root = pathlib.Path(__file__).parents[2]
smooth = [str(root / "examples/potentials" / f"argon.{end}") for end in ("ir", "safetensors")]
shifted = [str(root / "clients/kim/argon" / f"argon.{end}") for end in ("ir", "safetensors")]


def theirs():
    return LennardJones(sigma=3.4, epsilon=0.0104, rc=9.23, smooth=False)


def crystal(repeat=3, off=0.1):
    atoms = bulk("Ar", "fcc", a=5.3, cubic=True) * (repeat, 2, 2)
    atoms.rattle(off, seed=3)
    return atoms


def leaning():
    atoms = bulk("Ar", "fcc", a=5.3)  # one atom, in a cell whose vectors lean
    return atoms


def slab():
    atoms = fcc111("Ar", (2, 3, 3), a=5.3, vacuum=6.0)
    atoms.rattle(0.1, seed=4)
    return atoms


def cluster():
    atoms = crystal()
    atoms.pbc = False
    atoms.cell = None
    return atoms


@pytest.mark.parametrize("make", [crystal, leaning, slab, cluster])
@pytest.mark.parametrize("library", ["vesin", "ase"])
def test_gives_what_ase_gives(make, library, monkeypatch):
    if library == "ase":
        monkeypatch.setattr(
            _edges, "_module", lambda name: None if name == "vesin" else ase.neighborlist
        )
    ours, other = make(), make()
    ours.calc, other.calc = Calculator(*shifted), theirs()
    np.testing.assert_allclose(ours.get_potential_energy(), other.get_potential_energy(), rtol=1e-13)
    np.testing.assert_allclose(
        ours.get_potential_energies(), other.get_potential_energies(), rtol=1e-12
    )
    np.testing.assert_allclose(ours.get_forces(), other.get_forces(), atol=1e-14)
    if ours.cell.rank == 3:
        np.testing.assert_allclose(ours.get_stress(), other.get_stress(), atol=1e-15)


def test_edges_serve_until_an_atom_has_moved_far(monkeypatch):
    searches = []
    search = _edges.find_edges
    monkeypatch.setattr(_edges, "find_edges", lambda *a: searches.append(0) or search(*a))
    atoms = crystal()
    plain, skinned = Calculator(*shifted), Calculator(*shifted, skin=1.0)
    rng = np.random.default_rng(5)
    for step in range(30):
        atoms.positions += rng.normal(size=atoms.positions.shape) * 0.02
        if step == 20:
            atoms.set_cell(atoms.cell * 1.01, scale_atoms=True)
        found = []
        for calculator in (plain, skinned):
            calculator.calculate(atoms, ["energy"])
            found.append(calculator.results)
        np.testing.assert_allclose(found[1]["forces"], found[0]["forces"], atol=1e-14)
        np.testing.assert_allclose(found[1]["stress"], found[0]["stress"], atol=1e-16)
    assert 30 + 2 <= len(searches) <= 30 + 8


def test_energy_is_conserved():
    atoms = crystal()
    atoms.calc = Calculator(*smooth, skin=1.0)
    MaxwellBoltzmannDistribution(atoms, temperature_K=40, rng=np.random.default_rng(6))
    before = atoms.get_total_energy()
    VelocityVerlet(atoms, 4 * units.fs).run(200)
    assert abs(atoms.get_total_energy() - before) < 1e-4 * atoms.get_kinetic_energy()


def test_relaxes_atoms_and_cell():
    atoms = crystal()
    atoms.calc = Calculator(*smooth, skin=0.5)
    assert BFGS(FrechetCellFilter(atoms), logfile=None).run(fmax=1e-4, steps=200)
    assert np.abs(atoms.get_forces()).max() < 1e-4
    assert np.abs(atoms.get_stress()).max() < 1e-5


def test_hessian_is_the_slope_of_the_forces():
    atoms = crystal(1)
    calculator = Calculator(*smooth)
    atoms.calc = calculator
    hessian = calculator.get_hessian(atoms)
    h = 1e-5
    for k in range(3 * len(atoms)):
        forces = []
        for by in (h, -h):
            moved = atoms.copy()
            moved.positions.flat[k] += by
            moved.calc = calculator
            forces.append(moved.get_forces().ravel())
        np.testing.assert_allclose(hessian[k], (forces[1] - forces[0]) / (2 * h), atol=1e-8)
    VibrationsData.from_2d(atoms, (hessian + hessian.T) / 2).get_energies()


def test_units_are_converted():
    in_real = Calculator(*shifted, units="real")
    atoms = crystal()
    plain = Calculator(*shifted)
    energies = []
    for calculator in (plain, in_real):
        calculator.calculate(atoms, ["energy"])
        energies.append(calculator.results)
    factor = units.kcal / units.mol
    for name in ("energy", "energies", "forces", "stress"):
        np.testing.assert_allclose(energies[1][name], factor * np.array(energies[0][name]), rtol=1e-14)
    np.testing.assert_allclose(
        in_real.get_hessian(atoms), factor * plain.get_hessian(atoms), rtol=1e-14
    )


def test_what_does_not_fit_is_refused():
    with pytest.raises(gradus.Error, match="knows Ar; there are atoms of H, O"):
        Calculator(*shifted).calculate(molecule("H2O"), ["energy"])
    with pytest.raises(gradus.Error, match="units are 'lj'"):
        Calculator(*shifted, units="lj")
    with pytest.raises(gradus.Error, match="skin is a length of at least 0"):
        Calculator(*shifted, skin=-1)
    with pytest.raises(gradus.Error, match="cannot be read"):
        Calculator("nothing.ir")


def test_runs_behind_a_socket(tmp_path):
    """As i-PI asks it: ASE's server in place of i-PI's."""
    atoms, alone = crystal(), crystal()
    alone.calc = Calculator(*shifted)
    name = f"gradus-{tmp_path.name}"
    with SocketIOCalculator(unixsocket=name, timeout=60) as server:
        atoms.calc = server

        def serve():
            other = crystal()
            other.calc = Calculator(*shifted)
            SocketClient(unixsocket=name, timeout=60).run(other, use_stress=True)

        server.launch_client = None
        client = threading.Thread(target=serve)
        client.start()
        np.testing.assert_allclose(
            atoms.get_potential_energy(), alone.get_potential_energy(), rtol=1e-12
        )
        np.testing.assert_allclose(atoms.get_forces(), alone.get_forces(), atol=1e-12)
        np.testing.assert_allclose(atoms.get_stress(), alone.get_stress(), atol=1e-13)
    client.join()
