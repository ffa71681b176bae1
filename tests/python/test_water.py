"""The potential of water: its training, and the weights that lie beside it."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

import gradus

folder = pathlib.Path(__file__).parents[2] / "examples/potentials"
files = [str(folder / f"water.{end}") for end in ("ir", "safetensors")]


def test_training_makes_the_loss_fall():
    done = subprocess.run(
        [sys.executable, folder / "water.py", "--small"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("seed", range(3))
def test_the_weights_pass_all_checks(seed):
    potential = gradus.Potential(*files)
    assert (potential.species, potential.cutoff, potential.units) == (["O", "H"], 4.5, "metal")
    # `ghosts` too: KIM and LAMMPS want it.
    assert [c.name for c in potential.check(seed=seed) if not c.passed] == []


def test_molecules_stay_whole():
    pytest.importorskip("ase")
    from ase import units
    from ase.io import read
    from ase.md.verlet import VelocityVerlet

    from gradus.ase import Calculator

    atoms = read(folder / "water.xyz")
    atoms.set_velocities(atoms.arrays["vel"] / (1000 * units.fs))
    atoms.calc = Calculator(*files, skin=0.5)
    first = atoms.get_total_energy()
    VelocityVerlet(atoms, 0.5 * units.fs).run(200)
    molecules = atoms.positions.reshape(-1, 3, 3)
    bonds = np.linalg.norm(molecules[:, 1:] - molecules[:, :1], axis=-1)
    assert 0.8 < bonds.min() and bonds.max() < 1.3
    assert abs(atoms.get_total_energy() - first) < 1e-3 * len(atoms)
