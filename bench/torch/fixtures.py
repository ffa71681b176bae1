"""Exported models beside eager PyTorch at orders 0, 1 and 2, through the Python call.

    python bench/torch/fixtures.py [--threads N] [--rounds N] [--out FILE.json] [NAME...]

NAME is one of tests/pt2/data; all where none is given. Order 0 is the results; order 1 adds their gradient with
respect to inputs and parameters; order 2 the gradient of that gradient's squares, and of models of energies the
gradient of a loss over forces. Rounds alternate between both, medians are reported; results are compared. It asks
for torch and for the gradus module.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch

import gradus.torch

DATA = Path(__file__).resolve().parents[2] / "tests/pt2/data"


class Model:
    """An archive's module and its reference inputs."""

    def __init__(self, name: str) -> None:
        program = torch.export.load(DATA / f"{name}.pt2")
        self.module = program.module()
        self.reference = np.load(DATA / f"{name}.npz")
        kinds = program.graph_signature.input_specs
        names = [s.arg.name for s in kinds if s.kind.name == "USER_INPUT"]
        self.inputs = [torch.from_numpy(self.reference["in." + n]) for n in names]
        self.energies = "forces" in self.reference
        for name, x in zip(names, self.inputs):
            x.requires_grad_(x.is_floating_point() and (not self.energies or name == "pos"))
        self.order = 2
        if not any(k.startswith(("g2.", "gl.")) for k in self.reference.files):
            self.order = 1 if any(k.startswith("g1.") for k in self.reference.files) else 0

    def wanted(self) -> list[torch.Tensor]:
        inputs = [x for x in self.inputs if x.requires_grad]
        return inputs + [p for p in self.module.parameters() if p.requires_grad]


def floating(results) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(results)
    return [r for r in leaves if isinstance(r, torch.Tensor) and r.is_floating_point()]


def step(model: Model, call, order: int) -> list[torch.Tensor]:
    """What is timed: all results of an order."""
    if order == 0:
        with torch.no_grad():
            return floating(call(*model.inputs))
    total = sum(r.sum() for r in floating(call(*model.inputs)))
    wanted = model.wanted()
    if model.energies:
        place = [x for x in model.inputs if x.requires_grad]
        (slope,) = torch.autograd.grad(total, place, create_graph=order > 1)
        if order == 1:
            return [slope]
        loss = (slope + torch.from_numpy(model.reference["fref"])).square().mean()
    else:
        first = torch.autograd.grad(total, wanted, create_graph=order > 1, allow_unused=True)
        if order == 1:
            return [g for g in first if g is not None]
        loss = sum(g.square().sum() for g in first if g is not None)
    second = torch.autograd.grad(loss, wanted, allow_unused=True)
    return [g for g in second if g is not None]


def seconds(run, least: float = 0.02) -> float:
    """Of one run, of as many as take `least` seconds."""
    runs, begin = 0, time.perf_counter()
    while (spent := time.perf_counter() - begin) < least or runs == 0:
        run()
        runs += 1
    return spent / runs


def difference(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    scale = max([float(t.abs().max()) for t in theirs if t.numel()] + [1e-300])
    return max([float((a - b).abs().max()) for a, b in zip(ours, theirs) if b.numel()] + [0.0]) / scale


def measure(name: str, rounds: int) -> list[dict]:
    model = Model(name)
    rows = []
    for order in range(model.order + 1):
        begin = time.perf_counter()
        call = gradus.torch.function(model.module, order=order)
        run_ours = lambda: step(model, call, order)
        run_theirs = lambda: step(model, model.module, order)
        try:
            ours = run_ours()
            first = time.perf_counter() - begin
            theirs = run_theirs()
        except Exception as e:  # a refusal of either is a row, too
            rows.append({"name": name, "order": order, "refused": str(e).splitlines()[0]})
            continue
        until = time.perf_counter() + 2  # kernels are compiled behind the first calls
        while time.perf_counter() < until:
            run_ours()
        pairs = [(seconds(run_ours), seconds(run_theirs)) for _ in range(rounds)]
        rows.append(
            {
                "name": name,
                "order": order,
                "gradus_ms": 1e3 * statistics.median(p[0] for p in pairs),
                "torch_ms": 1e3 * statistics.median(p[1] for p in pairs),
                "first_call_s": first,
                "difference": difference(ours, theirs),
            }
        )
        print(line(rows[-1]), flush=True)
    return rows


def line(row: dict) -> str:
    if "refused" in row:
        return f"| {row['name']} | {row['order']} | {row['refused']} | | | | |"
    return (
        f"| {row['name']} | {row['order']} | {row['gradus_ms']:.3f} | {row['torch_ms']:.3f} "
        f"| {row['torch_ms'] / row['gradus_ms']:.2f} | {row['first_call_s']:.2f} | {row['difference']:.0e} |"
    )


def instruction_set() -> str:
    flags = Path("/proc/cpuinfo").read_text() if platform.system() == "Linux" else ""
    return "AVX-512" if "avx512bw" in flags else "AVX2" if "avx2" in flags else platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    gradus.set_workers(options.threads) if hasattr(gradus, "set_workers") else None
    every = sorted(f.stem for f in DATA.glob("*.pt2") if not f.stem.startswith(("hop_", "control_")))
    print("| model | order | gradus, ms | eager, ms | times as fast | first call, s | difference |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    rows = [row for name in options.names or every for row in measure(name, options.rounds)]
    for order in range(3):
        ratios = [r["torch_ms"] / r["gradus_ms"] for r in rows if r["order"] == order and "torch_ms" in r]
        if ratios:
            print(f"order {order}: geometric mean {statistics.geometric_mean(ratios):.2f}, least {min(ratios):.2f}")
    if options.out:
        about = {
            "instruction_set": instruction_set(),
            "threads": options.threads,
            "torch": torch.__version__,
            "command": "bench/torch/fixtures.py " + " ".join(sys.argv[1:]),
        }
        options.out.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
