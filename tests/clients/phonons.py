"""Relaxes a crystal of argon by ASE; compares ASE's Hessian and LAMMPS' dynamical matrix there.

relax FOLDER: writes relaxed.data for LAMMPS and relaxed.extxyz. compare FOLDER: reads dynmat.dat, which
LAMMPS has written by central differences.
"""

import sys

import numpy as np
from ase.build import bulk
from ase.filters import UnitCellFilter
from ase.io import read, write
from ase.optimize import BFGS
from gradus.ase import Calculator

step, folder = sys.argv[1:]
calculator = Calculator(f"{folder}/argon.ir", f"{folder}/argon.safetensors")
if step == "relax":
    atoms = bulk("Ar", "fcc", a=5.15, cubic=True) * (2, 2, 2)
    atoms.rattle(0.05, seed=3)
    atoms.calc = calculator
    before = atoms.get_potential_energy()
    if not BFGS(UnitCellFilter(atoms, mask=[1, 1, 1, 0, 0, 0]), logfile=None).run(fmax=1e-3, steps=100):
        sys.exit("ASE does not relax the crystal")
    edge = atoms.cell.lengths().mean() / 2
    print(f"edge {edge:.5f} angstrom, energy {before:.5f} -> {atoms.get_potential_energy():.5f} eV")
    if not 5.2 < edge < 5.3:
        sys.exit("the crystal has another edge than solid argon's")
    write("relaxed.extxyz", atoms)
    write("relaxed.data", atoms, format="lammps-data")
else:
    atoms = read("relaxed.extxyz")
    # Both in eV/angstrom^2 per unit of mass.
    ours = calculator.get_hessian(atoms) / atoms.get_masses()[0]
    theirs = np.loadtxt("dynmat.dat").reshape(ours.shape)
    off = np.abs(ours - theirs).max() / np.abs(ours).max()
    squares = np.linalg.eigvalsh(ours), np.linalg.eigvalsh(theirs)
    frequencies = [np.sqrt(np.maximum(s, 0)) for s in squares]
    by = np.abs(frequencies[0] - frequencies[1])[3:].max() / frequencies[0].max()
    print(f"dynamical matrices differ by {off:.1e}, frequencies by {by:.1e} of the highest")
    if off > 1e-5 or by > 1e-5:
        sys.exit("they are not the same")
    if squares[0][3] <= 0:
        sys.exit("the crystal is not stable")
