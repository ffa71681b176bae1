"""Steps of molecular dynamics a second in ASE: Gradus beside PyTorch on the same potential.

    build/peers-venv/bin/python bench/clients/ase_steps.py --python-path build/bench/python [CELLS...]

Argon, face-centred cubic, cutoff 8.5 angstrom, moved by ASE's VelocityVerlet. Each calculator gives
the energy, forces and virial. All take their edges from Gradus' EdgeList, with a skin of 1 angstrom. PyTorch
runs examples/potentials/argon.ir written with its operators, in f64, and its autograd gives the
forces: eager, and compiled by torch.compile. All compute on one thread, in turns. Figures are
medians of rounds, and the forces after the last step are compared.

`scripts/bench peers` makes the environment; ASE and vesin are needed in addition:
build/peers-venv/bin/pip install ase vesin safetensors
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402
import torch  # noqa: E402
from ase import units  # noqa: E402
from ase.build import bulk  # noqa: E402
from ase.calculators.calculator import Calculator, all_changes  # noqa: E402
from ase.calculators.lj import LennardJones  # noqa: E402
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution  # noqa: E402
from ase.md.verlet import VelocityVerlet  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402

root = pathlib.Path(__file__).parents[2]
files = [str(root / f"examples/potentials/argon.{end}") for end in ("ir", "safetensors")]
SKIN = 1.0


def energies(positions, edges, shifts, eps, sigma, onset, cutoff):
    """Of atoms [N]: the operators of argon.ir, one for one."""
    start, end = edges[0], edges[1]
    d = positions[end] - positions[start] + shifts
    d2 = d.square().sum(1)
    s2 = sigma.square() / d2
    s6 = s2.square() * s2
    u = (s6.square() - s6) * (2.0 * eps)
    c, o = cutoff.square(), onset.square()
    inside = torch.minimum(torch.maximum(d2, o), c)
    w = (c - inside).square() * (c - 3.0 * o + 2.0 * inside) / ((c - o).square() * (c - o))
    zeros = torch.zeros(len(positions), dtype=torch.float64)
    return zeros.index_add(0, start, u * w)


class Torch(Calculator):
    """The potential by PyTorch, as force fields are written there: forces and virial are gradients
    by the positions and by a strain."""

    implemented_properties = ["energy", "energies", "free_energy", "forces", "stress"]

    def __init__(self, edges, compiled):
        super().__init__()
        self.edges = edges
        self.energies = torch.compile(energies, dynamic=True) if compiled else energies
        weights = load_file(files[1])
        self.weights = [torch.from_numpy(weights[n].copy()) for n in ("eps", "sigma", "onset", "cutoff")]

    def calculate(self, atoms=None, properties=("energy",), system_changes=all_changes):
        super().calculate(atoms, list(properties), list(system_changes))
        found = self.edges.find(self.atoms.positions, self.atoms.cell.array, self.atoms.pbc)
        edges, shifts = (torch.from_numpy(np.asarray(a)) for a in found)
        positions = torch.from_numpy(self.atoms.positions).requires_grad_()
        strain = torch.eye(3, dtype=torch.float64).requires_grad_()
        each = self.energies(positions @ strain, edges, shifts @ strain, *self.weights)
        energy = each.sum()
        forces, virial = torch.autograd.grad(energy, (positions, strain))
        stress = virial.numpy() / self.atoms.get_volume()
        self.results = {
            "energy": energy.item(),
            "free_energy": energy.item(),
            "energies": each.detach().numpy(),
            "forces": -forces.numpy(),
            "stress": stress.flat[[0, 4, 8, 5, 2, 1]],
        }


def simulation(calculator, cells):
    atoms = bulk("Ar", "fcc", a=5.4, cubic=True) * (cells, cells, cells)
    MaxwellBoltzmannDistribution(atoms, temperature_K=60, rng=np.random.default_rng(4928))
    atoms.calc = calculator
    return VelocityVerlet(atoms, 2 * units.fs)


def row(options, cells, calculators):
    runs = {name: simulation(make(), cells) for name, make in calculators.items()}
    atoms = 4 * cells**3
    steps = max(10, options.work // atoms)
    for run in runs.values():
        run.run(5)
    seconds = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run.run(steps)
            seconds[name].append(time.perf_counter() - start)
    ours = runs["gradus"].atoms.get_forces()
    differences = [abs(run.atoms.get_forces() - ours).max() for n, run in runs.items() if "torch" in n]
    rate = {name: steps / statistics.median(times) for name, times in seconds.items()}
    ratio = {n: statistics.median(a / b for a, b in zip(t, seconds["gradus"])) for n, t in seconds.items()}
    print(
        f"{atoms:6}",
        *(f"{rate[name]:12.1f} ({ratio[name]:5.2f})" for name in runs),
        f"{max(differences):10.1e}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--python-path", help="folder of the Python module")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--work", type=int, default=12_000, help="atoms times steps of a round")
    parser.add_argument("cells", nargs="*", type=int, default=[2, 4, 8])
    options = parser.parse_args()
    if options.python_path:
        sys.path.insert(0, options.python_path)
    from gradus._edges import EdgeList
    from gradus.ase import Calculator as Gradus

    torch.set_num_threads(1)
    weights = load_file(files[1])
    cutoff = float(weights["cutoff"])
    calculators = {
        "gradus": lambda: Gradus(*files, skin=SKIN),
        "torch eager": lambda: Torch(EdgeList(cutoff, SKIN), False),
        "torch.compile": lambda: Torch(EdgeList(cutoff, SKIN), True),
        "ASE's LennardJones": lambda: LennardJones(
            sigma=float(weights["sigma"]), epsilon=float(weights["eps"]),
            ro=float(weights["onset"]), rc=cutoff, smooth=True,
        ),
    }
    if options.no_compile:
        del calculators["torch.compile"]
    print("Steps a second, and the time of a step over that of Gradus:")
    print(f"{'atoms':>6}", *(f"{name:>20}" for name in calculators), "difference")
    for cells in options.cells:
        row(options, cells, calculators)


if __name__ == "__main__":
    main()
