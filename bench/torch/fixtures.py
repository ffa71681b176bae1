"""Exported models beside PyTorch, eager and compiled, at orders 0, 1 and 2, through the Python call.

    python bench/torch/fixtures.py [--threads N] [--rounds N] [--compiled] [--patience SECONDS] [--memory]
                                   [--out FILE.json] [NAME...]

NAME is one of tests/pt2/data; all where none is given. Order 0 is the results; order 1 adds their gradient with
respect to inputs and parameters; order 2 the gradient of that gradient's squares, and of models of energies the
gradient of a loss over forces. Gradus and torch.compile each have two ways: the module is compiled, and torch.autograd
differentiates it; or a function that takes its derivatives by torch.func.grad is compiled as a whole. The faster one
counts. (torch.compile has no second derivative the first way.) With --compiled torch.compile is measured, too; a way
whose first call takes longer than --patience counts as refused.
With --memory each way runs in a process of its own, too: its greatest resident size above that before the model's first
call, after another small model was compiled and run (the libraries that a way loads do not count).
Rounds alternate between all ways; medians are reported; results are compared. It asks for torch and for the gradus
module.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

import gradus.torch

DATA = Path(__file__).resolve().parents[2] / "tests/pt2/data"
WAYS = ("gradus", "eager", "compiled")


def floating(results) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(results)
    return [r for r in leaves if isinstance(r, torch.Tensor) and r.is_floating_point()]


def whole(gradients, of) -> list[torch.Tensor]:
    """Zero where there is none, as torch.func has it."""
    return [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, of)]


class Model:
    """An archive's module and its reference inputs."""

    def __init__(self, name: str) -> None:
        program = torch.export.load(DATA / f"{name}.pt2")
        self.module = program.module()
        reference = np.load(DATA / f"{name}.npz")
        kinds = program.graph_signature.input_specs
        names = [s.arg.name for s in kinds if s.kind.name == "USER_INPUT"]
        self.inputs = [torch.from_numpy(reference["in." + n]) for n in names]
        self.energies = "forces" in reference
        if self.energies:
            self.wanted_forces = torch.from_numpy(reference["fref"])
        for name, x in zip(names, self.inputs):
            x.requires_grad_(x.is_floating_point() and (not self.energies or name == "pos"))
        self.order = 2
        if not any(k.startswith(("g2.", "gl.")) for k in reference.files):
            self.order = 1 if any(k.startswith("g1.") for k in reference.files) else 0

    def results(self, call) -> list[torch.Tensor]:
        """A model may write to its inputs: it is given copies."""
        return floating(call(*[x.clone() for x in self.inputs]))

    def wanted(self) -> list[torch.Tensor]:
        inputs = [x for x in self.inputs if x.requires_grad]
        return inputs + [p for p in self.module.parameters() if p.requires_grad]

    def step(self, call, order: int) -> list[torch.Tensor]:
        """All results of an order, by torch.autograd."""
        if order == 0:
            with torch.no_grad():
                return self.results(call)
        total = sum(r.sum() for r in self.results(call))
        if self.energies:
            place = [x for x in self.inputs if x.requires_grad]
            first = torch.autograd.grad(total, place, create_graph=order > 1)
        else:
            first = torch.autograd.grad(total, self.wanted(), create_graph=order > 1, allow_unused=True)
        if order == 1:
            return first if self.energies else whole(first, self.wanted())
        loss = self.loss([g for g in first if g is not None])
        return whole(torch.autograd.grad(loss, self.wanted(), allow_unused=True), self.wanted())

    def loss(self, first: list[torch.Tensor]) -> torch.Tensor:
        if self.energies:
            return (first[0] + self.wanted_forces).square().mean()
        return sum(g.square().sum() for g in first)

    def functional(self, order: int, compile):
        """The same by torch.func.grad, compiled as one function; it takes no arguments here."""
        parameters = {n: p for n, p in self.module.named_parameters() if p.requires_grad}
        rest = {n: p for n, p in self.module.named_parameters() if not p.requires_grad}
        rest |= dict(self.module.named_buffers())
        at = [i for i, x in enumerate(self.inputs) if x.requires_grad]

        def total(inputs, parameters):
            every = list(self.inputs)
            for i, x in zip(at, inputs):
                every[i] = x
            every = tuple(x.clone() for x in every)
            return sum(r.sum() for r in floating(torch.func.functional_call(self.module, (parameters, rest), every)))

        def first(inputs, parameters):
            if self.energies:
                return list(torch.func.grad(total)(inputs, parameters))
            gradients = torch.func.grad(total, argnums=(0, 1))(inputs, parameters)
            return [*gradients[0], *gradients[1].values()]

        def second(inputs, parameters):
            loss = lambda *a: self.loss(first(*a))
            gradients = torch.func.grad(loss, argnums=(0, 1))(inputs, parameters)
            return [*gradients[0], *gradients[1].values()]

        compiled = compile(first if order == 1 else second)
        inputs = [self.inputs[i].detach() for i in at]
        detached = {n: p.detach() for n, p in parameters.items()}
        return lambda: compiled(inputs, detached)


def runs_of(model: Model, order: int, way: str) -> list:
    """The ways to run a step: by torch.autograd, and as one function with its derivatives inside."""
    if way == "eager":
        return [lambda: model.step(model.module, order)]
    if way == "gradus":
        call = gradus.torch.function(model.module, order=order)
        whole_step = lambda f: gradus.torch.function(f, order=0)
    else:  # it refuses a second derivative by torch.autograd
        call = torch.compile(model.module) if order < 2 else None
        whole_step = torch.compile
    runs = [lambda: model.step(call, order)] if call is not None else []
    return runs + ([model.functional(order, whole_step)] if order > 0 else [])


def seconds(run, least: float = 0.02) -> float:
    """Of one run, of as many as take `least` seconds."""
    runs, begin = 0, time.perf_counter()
    while (spent := time.perf_counter() - begin) < least or runs == 0:
        run()
        runs += 1
    return spent / runs


def difference(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    """Relative to the largest value; NaN is equal to NaN."""
    pairs = [(a.detach(), b.detach()) for a, b in zip(ours, theirs) if b.numel()]
    finite = [float(b[b.isfinite()].abs().max()) for _, b in pairs if b.isfinite().any()]
    apart = [~(a.isnan() & b.isnan()) & (a != b) for a, b in pairs]
    gaps = [(a.to(b.dtype)[i] - b[i]).abs().max() for (a, b), i in zip(pairs, apart) if i.any()]
    return float(max(gaps, default=0)) / max(finite + [1e-300])


def reason(e: Exception) -> str:
    return (str(e).strip().splitlines() or [type(e).__name__])[0][:120]


@contextmanager
def at_most(patience: float):
    """An exception if what runs inside takes longer: torch.compile can take minutes."""

    def give_up(*_) -> None:
        raise TimeoutError(f"the first call takes longer than {patience:g} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, patience)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def measure(name: str, order: int, ways: tuple[str, ...], rounds: int, patience: float) -> dict:
    model = Model(name)
    row: dict = {"name": name, "order": order}
    runs: list[tuple[str, object]] = []
    for way in ways:
        begin = time.perf_counter()
        for run in runs_of(model, order, way):
            try:
                with at_most(patience):
                    run()
            except Exception as e:  # a refusal is a part of the row, too
                row.setdefault(f"{way}_refused", []).append(reason(e))
                continue
            row.setdefault(f"{way}_first_s", time.perf_counter() - begin)
            begin = time.perf_counter()
            runs.append((way, run))
    until = time.perf_counter() + 2  # kernels are compiled behind the first calls
    while time.perf_counter() < until:
        for way, run in runs:
            if way == "gradus":
                run()
    times = [[seconds(run) for _, run in runs] for _ in range(rounds)]
    for way in ways:
        column = [i for i, (w, _) in enumerate(runs) if w == way]
        if column:
            medians = [1e3 * statistics.median(t[i] for t in times) for i in column]
            row |= {f"{way}_ms": min(medians), f"{way}_each_ms": medians}
    row["difference"] = worst(name, order)
    return row


def worst(name: str, order: int) -> float | None:
    """Steps that write buffers go on from where those before left off: each begins anew."""
    try:
        eager = runs_of(Model(name), order, "eager")[0]()
        ours = [runs_of(Model(name), order, "gradus")[i]() for i in range(2 if order else 1)]
    except Exception:
        return None
    return max(difference(o, eager) for o in ours)


def resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) << 10


def peak_here(name: str, order: int, way: str) -> None:
    """Prints the bytes by which a few steps raise this process's greatest resident size."""
    small = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64))
    call = {"gradus": gradus.torch.function, "eager": lambda f: f, "compiled": torch.compile}[way](small)
    call(torch.zeros(256, 64)).sum().backward()
    time.sleep(1)  # kernels are compiled behind the first calls
    model = Model(name)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the greatest so far is what there is now
    before = resident("VmRSS")
    for run in reversed(runs_of(model, order, way)):  # the whole step, where it is not refused
        try:
            for _ in range(5):
                run()
            break
        except Exception:
            continue
    else:
        raise SystemExit("every way is refused")
    time.sleep(1)
    for _ in range(5):
        run()
    print(resident("VmHWM") - before)


def peak(name: str, order: int, way: str, threads: int) -> float | None:
    command = [sys.executable, __file__, "--threads", str(threads), "--peak", way, str(order), name]
    done = subprocess.run(command, capture_output=True, text=True)
    return int(done.stdout) / 2**20 if done.returncode == 0 else None


HEAD = "| model | order | gradus, ms | eager, ms | compiled, ms | eager / gradus | compiled / gradus | first call, s | compiled's, s | peak, MiB: gradus, eager, compiled | difference |"


def line(row: dict) -> str:
    def shown(key: str, form: str) -> str:
        return format(row[key], form) if row.get(key) is not None else "–"

    def ratio(way: str) -> str:
        return f"{row[way + '_ms'] / row['gradus_ms']:.2f}" if {way + "_ms", "gradus_ms"} <= row.keys() else "–"

    peaks = ", ".join(shown(f"{way}_peak_mib", ".0f") for way in WAYS)
    cells = [row["name"], str(row["order"]), *(shown(f"{way}_ms", ".3f") for way in WAYS), ratio("eager"), ratio("compiled")]
    cells += [shown("gradus_first_s", ".2f"), shown("compiled_first_s", ".1f"), peaks, shown("difference", ".0e")]
    return "| " + " | ".join(cells) + " |"


def summary(rows: list[dict]) -> list[str]:
    lines = []
    for order in range(3):
        for way in WAYS[1:]:
            ratios = [r[f"{way}_ms"] / r["gradus_ms"] for r in rows if r["order"] == order and {f"{way}_ms", "gradus_ms"} <= r.keys()]
            if ratios:
                lines.append(f"order {order}, {way}: geometric mean {statistics.geometric_mean(ratios):.2f}, least {min(ratios):.2f} of {len(ratios)}")
    return lines


def instruction_set() -> str:
    """What either may use: GRADUS_ISA and ATEN_CPU_CAPABILITY can ask for less than the machine has."""
    flags = Path("/proc/cpuinfo").read_text() if platform.system() == "Linux" else ""
    widest = "AVX-512" if "avx512bw" in flags else "AVX2" if "avx2" in flags else platform.machine()
    ours = os.environ.get("GRADUS_ISA", widest)
    return f"gradus {ours}, torch {torch.backends.cpu.get_cpu_capability()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--patience", type=float, default=0, help="seconds; 0 waits for ever")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--peak", nargs=2, metavar=("WAY", "ORDER"), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    if options.peak:
        peak_here(options.names[0], int(options.peak[1]), options.peak[0])
        return
    ways = WAYS if options.compiled else WAYS[:2]
    every = sorted(f.stem for f in DATA.glob("*.pt2") if not f.stem.startswith(("hop_", "control_")))
    print(HEAD)
    print("| --- " * HEAD.count(" | ") + "| --- |")
    rows = []
    for name in options.names or every:
        for order in range(Model(name).order + 1):
            row = measure(name, order, ways, options.rounds, options.patience)
            if options.memory:
                row |= {f"{way}_peak_mib": peak(name, order, way, options.threads) for way in ways if f"{way}_ms" in row}
            rows.append(row)
            print(line(row), flush=True)
            torch._dynamo.reset()
            gc.collect()
    print("\n".join(summary(rows)))
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
