"""Gradus beside PyTorch, JAX, CasADi and NumExpr, from Python; `scripts/bench peers` builds what it needs and runs it.

    peers.py [--isa 256|512] [--threads 1|2] [--rounds N] [--peers NAME,NAME...] [--python-path FOLDER] [--docs]
             [--out FILE.json] [--patience SECONDS] [--clock wall|process] [ROW...]

FOLDER has the module, and FOLDER/../bin/bench_prepared is the program for prepared states (without it, they are run
from Python). ROW is the beginning of a row's name; all rows where none is given.

Each peer runs in a process of its own, on as many cores as threads. The processes run in turns and are stopped between
their turns. A turn is as many calls as take 0.05 s; a row's figure is the median over the rounds. All results are
compared with those of Gradus. A peer that fails, or takes longer than --patience for a row's first calls, has an empty
cell, and its message is in the JSON. The JSON and the Markdown table beside it are written after every round; with
--docs the table is put into docs/benchmarks.md, too. Rows that are not measured keep the figures that the JSON has.
With --clock process, times are those of the processors, without compilers that a peer starts: for trying one thread on
a busy machine.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

import numpy as np
import peer_rows as rows

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULES = {"gradus": "gradus", "gradus call": "gradus", "torch.compile": "torch"}  # else the peer's name
PACKAGES = ("gradus", "numpy", "torch", "jax", "jaxlib", "folx", "casadi", "numexpr")
FIRST = ("gradus", "gradus call", "torch.compile", "jax")  # peers that compile, for the rows of first calls
MEMORY = ("LSTM step", "transformer step", "transformer with penalty")


def environment(options) -> dict[str, str]:
    """Of a peer's process: the width of vectors, one pool of threads of the given size, no caches on disk."""
    threads, python_path, wide = options.threads, options.python_path, options.isa == 512
    prepared = pathlib.Path(python_path).parent / "bin/bench_prepared"
    march = ["x86-64-v4", "x86-64-v3"]
    given = {
        "PYTHONPATH": str(pathlib.Path(python_path).resolve()) if python_path else "",
        "XLA_FLAGS": f"--xla_cpu_max_isa={'AVX512' if wide else 'AVX2'}",
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_X64": "1",
        "ATEN_CPU_CAPABILITY": "avx512" if wide else "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512" if wide else "AVX2",
        "OPENBLAS_CORETYPE": "SkylakeX" if wide else "Haswell",
        "GRADUS_PEERS_CLOCK": options.clock,
        **({"GRADUS_PREPARED": str(prepared.resolve())} if prepared.exists() else {}),
        "GRADUS_PEERS_MARCH": march[not wide],
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": "1",
        "NUMEXPR_MAX_THREADS": str(threads),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    if not wide:
        given |= {"GRADUS_ISA": "x86-64-v3", "ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2"}
    return {**os.environ, **given}


# A peer's process.


class PreparedCall:
    """A program on a prepared state in C++ (bench/python/prepared.cpp), which makes the calls."""

    def __init__(self, program, inputs, workers: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.results, self.dtype = len(program.results()), inputs[0].dtype
        path = pathlib.Path(self.folder.name)
        for i, x in enumerate(inputs):
            x.tofile(path / f"input_{i}")
        (path / "program.ir").write_text(str(program))
        self.process = subprocess.Popen([os.environ["GRADUS_PREPARED"]], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)  # fmt: skip
        self.ask(f"load {path}/program.ir {path} {workers}")

    def ask(self, line: str) -> float:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer or answer.startswith("error"):
            raise RuntimeError(answer or "the process ended")
        return float(answer)

    def seconds(self, times: int) -> float:
        return self.ask(f"run {times}")

    def __call__(self):
        self.ask("run 1")
        self.ask(f"results {self.folder.name}")
        return [np.fromfile(f"{self.folder.name}/result_{i}", self.dtype) for i in range(self.results)]

    def __del__(self) -> None:
        self.process.kill()
        self.process.wait()


class Peer:
    """What a peer needs to run rows: its words, and its threads."""

    def __init__(self, name: str, threads: int, isa: int) -> None:
        self.name, self.threads = name, threads
        self.alone = False  # whether all work is to be in this process
        start = clock()
        self.module = importlib.import_module(MODULES.get(name, name))
        if name == "torch.compile":
            import torch._dynamo
            import torch._inductor.config

            torch._inductor.config.cpp.simdlen = isa
            torch._inductor.config.force_disable_caches = True
            torch._dynamo.config.cache_size_limit = 1000
        self.import_seconds = clock() - start
        if name.startswith("torch"):
            self.module.set_num_threads(threads)
        elif name in rows.GRADUS:
            self.context = self.module.Context(workers=threads)
            self.context.__enter__()
            self.words = rows.gradus_words()
        elif name == "jax":
            self.words = rows.jax_words()
        elif name == "numexpr":
            self.module.set_num_threads(threads)

    def ways(self, row: rows.Row, inputs: list[np.ndarray]):
        """(name, function that gives a call) of each formulation; the call gives the results when they are ready."""
        extra = row.extra.get(self.name, [])
        steps = [*([] if self.name in row.without else row.steps), *extra]
        if self.name in ("casadi", "numexpr"):
            return [(f"way {i}", lambda make=make: make(*inputs)) for i, make in enumerate(extra)]
        if self.name == "gradus call" and row.direct:
            return [("direct", lambda: row.direct(*inputs))]
        if self.name == "gradus" and row.program:
            return [("program", lambda: self.prepared(row.program(*inputs), inputs))]
        make = getattr(self, self.name.replace(".", "_").replace(" ", "_"))
        names = ["function", "loss"] if self.name == "torch.compile" else [""]
        return [(f"{s.__name__} {n}".strip(), lambda s=s, n=n: make(s, inputs, n)) for s in steps for n in names]

    def gradus(self, step, inputs, _):
        m = self.words
        return self.prepared(self.module.trace(lambda *given: rows.leaves(step(m, *given)), *inputs), inputs)

    def prepared(self, program, inputs):
        gradus = self.module
        if not self.alone and "GRADUS_PREPARED" in os.environ:
            return PreparedCall(program, inputs, self.threads)
        state = gradus.State(program.compile(), fusion="first")
        state.prepare()
        given = [gradus.from_numpy(x) for x in inputs]
        into = [np.empty(t.shape, inputs[0].dtype) for _, t in program.results()]

        def call():
            state.restart()
            state.run(*given, into=into)
            return into

        return call

    def gradus_call(self, step, inputs, _):
        m = self.words
        call = self.module.function(lambda *given: tuple(rows.leaves(step(m, *given))))
        given = [self.module.tensor(x) for x in inputs]
        return lambda: call(*given)

    def jax(self, step, inputs, _):
        jax, m = self.module, self.words
        given = [jax.device_put(x) for x in inputs]
        call = jax.jit(lambda *given: step(m, *given))
        return lambda: jax.block_until_ready(call(*given))

    def torch(self, step, inputs, _, way="eager"):
        torch = self.module
        m = rows.torch_words(way)
        given = [torch.from_numpy(x) for x in inputs]

        def call():
            with torch.no_grad():
                return step(m, *given)

        call.words = m
        return call

    def torch_compile(self, step, inputs, way):
        if way == "loss":
            return self.torch(step, inputs, "", "loss")
        m = rows.torch_words("function")
        compiled = self.module.compile(lambda *given: step(m, *given), dynamic=False)
        return self.torch(lambda _, *given: compiled(*given), inputs, "", "function")

    def forget(self):
        """What was compiled for the row before."""
        if self.name == "torch.compile":
            self.module._dynamo.reset()
        elif self.name == "jax":
            self.module.clear_caches()

    def settle(self):
        """Until kernels that are compiled in the background are there."""
        if self.name in rows.GRADUS:
            self.context.wait_for_kernels()


def arrays(results) -> list[np.ndarray]:
    return [np.array(r.detach().numpy() if hasattr(r, "detach") else r, "f8") for r in rows.leaves(results)]


def clock() -> float:
    return time.process_time() if os.environ.get("GRADUS_PEERS_CLOCK") == "process" else time.perf_counter()


def seconds(call, times: int) -> float:
    if isinstance(call, PreparedCall):
        return call.seconds(times)
    start = clock()
    for _ in range(times):
        call()
    return (clock() - start) / times


class Served:
    """A row that a process has loaded: the fastest of its ways. After half of the `patience`, no other way begins."""

    def __init__(self, peer: Peer, row: rows.Row, results_file: str, patience: float) -> None:
        inputs, self.ways, self.failed, best = row.inputs(), {}, {}, math.inf
        start = time.perf_counter()
        for name, make in peer.ways(row, inputs):
            if self.ways and time.perf_counter() - start > patience / 2:
                self.failed[name] = "not tried: the other ways took long"
                continue
            try:
                call = make()
                results = arrays(call())
                if name.endswith(" loss") and not call.words.compiled:
                    continue  # nothing was compiled
                peer.settle()
                for _ in range(3):
                    took = seconds(call, 1)
                times = max(1, min(10000, int(0.05 / took)))
                took = min(seconds(call, times) for _ in range(3 if took < 0.3 else 1))
                self.ways[name] = took
            except Exception as fault:  # of one way; others may run
                traceback.print_exc()
                self.failed[name] = f"{type(fault).__name__}: {fault}"[:500]
                continue
            if took < best:
                best, self.way, self.call = took, name, call
                self.times = max(1, min(100000, int(0.05 / took)))
                np.savez(results_file, *results)
        if not self.ways:
            raise RuntimeError(f"no way runs: {self.failed}")

    def answer(self):
        return {"way": self.way, "ways": self.ways, "failed": self.failed, "calls": self.times}


def rss(what: str) -> float:
    """VmRSS or VmHWM, in MiB."""
    text = pathlib.Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith(what))) / 1024


def clear_peak() -> None:
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def memory_of(peer: Peer, row: rows.Row) -> dict:
    """Growth of the resident size, after a small program was compiled: over the first and later calls, and over later
    calls alone, above the same start."""
    peer.alone = True
    small = rows.Row("small", lambda: rows.lstm_inputs(4, 16, 3), [rows.training(rows.lstm_loss, 4)], 1)
    for _, make in peer.ways(small, small.inputs()):
        make()()
    peer.settle()
    inputs = row.inputs()
    name, make = peer.ways(row, inputs)[0]
    clear_peak()
    start = rss("VmRSS")
    call = make()
    for _ in range(3):
        call()
    peer.settle()
    call()
    first = rss("VmHWM") - start
    clear_peak()
    for _ in range(3):
        call()
    return {"way": name, "first": first, "later": rss("VmHWM") - start}


def first_of(peer: Peer, row: rows.Row) -> dict:
    peer.alone = True
    inputs = row.inputs()
    name, make = peer.ways(row, inputs)[0]
    start = clock()
    make()()
    return {"way": name, "import": peer.import_seconds, "first": clock() - start}


def serve(options) -> None:
    """One answer a line for each line of commands."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print goes to the log
    peer = Peer(options.serve, options.threads, options.isa)
    found = {r.name: r for r in rows.rows()}
    first = {r.name: r for r in rows.first_rows()}
    served = None
    print(json.dumps({"ready": True}), file=out, flush=True)
    for line in sys.stdin:
        command, *rest = json.loads(line)
        try:
            if command == "load":
                served = None
                peer.forget()
                served = Served(peer, found[rest[0]], rest[1], options.patience)
                answer = served.answer()
            elif command == "run":
                served.call()
                answer = {"seconds": seconds(served.call, served.times)}
            elif command == "memory":
                answer = memory_of(peer, found[rest[0]])
            else:
                answer = first_of(peer, first[rest[0]])
        except Exception as fault:
            traceback.print_exc()
            answer = {"error": f"{type(fault).__name__}: {fault}"[:2000]}
        print(json.dumps(answer), file=out, flush=True)


# The driver.


class Process:
    """A peer's process; it runs only while it is asked."""

    def __init__(self, name: str, options) -> None:
        self.name = name
        cores = sorted(os.sched_getaffinity(0))[-options.threads :]
        log = open(options.logs / f"{name.replace(' ', '-')}.log", "a")
        given = environment(options)
        if name in rows.GRADUS:
            given["OMP_WAIT_POLICY"] = "passive"  # oneDNN's team would keep cores from Gradus' workers
        arguments = ["--serve", name, "--isa", str(options.isa), "--threads", str(options.threads),
                     "--patience", str(options.patience)]  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, pathlib.Path(__file__).resolve(), *arguments], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=log, text=True, cwd=options.work, env=given,
            preexec_fn=lambda: start_of_process(cores), start_new_session=True,
        )  # fmt: skip
        log.close()
        self.read(options.patience)
        self.signal(signal.SIGSTOP)

    def signal(self, number) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def read(self, limit: float) -> dict:
        ready, _, _ = select.select([self.process.stdout], [], [], limit)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.end()
            raise TimeoutError(f"no answer in {limit:.0f} s" if not ready else "the process ended")
        return json.loads(line)

    def ask(self, limit: float, *command) -> dict:
        self.signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        answer = self.read(limit)
        self.signal(signal.SIGSTOP)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()


class Bench:
    def __init__(self, options) -> None:
        self.options = options
        self.processes: dict[str, Process] = {}
        self.unavailable: dict[str, str] = {}
        self.report = {"rows": {}, "first": {}, "memory": {}}
        if options.out.exists():
            self.report |= json.loads(options.out.read_text())
        self.report |= {"isa": options.isa, "threads": options.threads, **about(options)}

    def ask(self, peer: str, limit: float, *command) -> dict:
        if peer in self.unavailable:
            raise RuntimeError(f"{peer} is not there: {self.unavailable[peer]}")
        if peer not in self.processes:
            self.processes[peer] = Process(peer, self.options)
        try:
            return self.processes[peer].ask(limit, *command)
        except (TimeoutError, OSError):
            self.processes.pop(peer).end()
            raise

    def find_peers(self) -> None:
        for peer in self.options.peers:
            try:
                self.processes[peer] = Process(peer, self.options)
            except (TimeoutError, OSError) as fault:
                self.unavailable[peer] = str(fault)
                say(f"{peer} is left out ({fault}); see {self.options.logs}")
        self.report["missing"] = sorted(self.unavailable)

    def measure(self, row: rows.Row) -> None:
        here = [p for p in self.options.peers if runs(p, row)]
        found = {"date": today(), "rounds": 0, "tolerance": row.tolerance, "peers": {}}
        self.report["rows"][row.name] = found
        with tempfile.TemporaryDirectory() as folder:
            first = None  # to which the others are compared; Gradus, if it runs
            for peer in here:
                cell = found["peers"][peer] = {"times": []}
                results = f"{folder}/{peer}.npz"
                try:
                    cell |= self.ask(peer, self.options.patience, "load", row.name, results)
                    first = first or results
                    cell["apart"] = apart(first, results)
                except Exception as fault:
                    cell["error"] = str(fault)
            for _ in range(self.options.rounds):
                for peer, cell in found["peers"].items():
                    if "error" in cell:
                        continue
                    try:
                        cell["times"].append(self.ask(peer, self.options.patience, "run")["seconds"])
                        cell["seconds"] = statistics.median(cell["times"])
                    except Exception as fault:
                        cell["error"] = str(fault)
                found["rounds"] += 1
                self.write()
        say(line_of(row.name, found))

    def alone(self, kind: str, peer: str, row: str) -> None:
        """A row's figures from new processes, one for each round."""
        cell = self.report[kind].setdefault(row, {})[peer] = {}
        found = []
        for _ in range(min(3, self.options.rounds)):
            try:
                process = Process(peer, self.options)
                try:
                    found.append(process.ask(self.options.patience, kind, row))
                finally:
                    process.end()
            except Exception as fault:
                cell["error"] = str(fault)
                break
            for key in found[0]:
                cell[key] = found[0][key] if key == "way" else statistics.median(f[key] for f in found)
            self.write()
        say(f"{kind}, {row}, {peer}: {cell}")

    def write(self) -> None:
        out = self.options.out
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(self.report, indent=1) + "\n")
        out.with_suffix(".md").write_text(table(self.report))

    def run(self) -> None:
        wanted = lambda name: not self.options.rows or any(name.startswith(r) for r in self.options.rows)
        self.find_peers()
        for row in rows.rows():
            if wanted(row.name):
                self.measure(row)
        for process in self.processes.values():
            process.end()
        self.processes.clear()
        there = [p for p in self.options.peers if p not in self.unavailable]
        for row in rows.first_rows():
            if wanted(f"first call, {row.name}"):
                for peer in (p for p in there if p in FIRST):
                    self.alone("first", peer, row.name)
        for row in MEMORY:
            if wanted(f"memory, {row}"):
                for peer in (p for p in there if p not in ("casadi", "numexpr")):
                    self.alone("memory", peer, row)
        self.write()


def runs(peer: str, row: rows.Row) -> bool:
    return peer in row.extra if peer in ("casadi", "numexpr") else bool(peer not in row.without or peer in row.extra)


def start_of_process(cores: list[int]) -> None:
    """It ends with its parent, also while it is stopped."""
    os.sched_setaffinity(0, cores)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def apart(ours: str, theirs: str) -> float:
    """The largest difference of a result, by the result's largest element."""
    with np.load(ours) as a, np.load(theirs) as b:
        if len(a.files) != len(b.files):
            raise RuntimeError(f"{len(b.files)} results in place of {len(a.files)}")
        worst = 0.0
        for name in a.files:
            x, y = a[name], b[name]
            if x.size != y.size:
                raise RuntimeError(f"{name} has the shape {y.shape} in place of {x.shape}")
            off = np.abs(x.ravel() - y.ravel()).max() / max(np.abs(x).max(), 1e-30)
            worst = max(worst, float(off)) if off == off else math.inf
    return worst


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def today() -> str:
    return time.strftime("%-d %B %Y")


def about(options) -> dict:
    versions = {}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    commit = subprocess.run(["git", "-c", f"safe.directory={ROOT}", "-C", ROOT, "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True)  # fmt: skip
    versions["gradus"] = commit.stdout.strip() or "?"
    model = next((line.split(": ")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
                 platform.machine())  # fmt: skip
    return {
        "machine": f"{model}, {os.cpu_count()} cores", "python": platform.python_version(), "versions": versions,
        "command": f"scripts/bench peers --isa {options.isa} --threads {options.threads} --rounds {options.rounds}",
        "date": today(), "clock": options.clock,
    }  # fmt: skip


# The table.

HEADS = {"gradus": "Gradus", "gradus call": "call", "torch": "PyTorch", "torch.compile": "compiled",
         "jax": "JAX", "casadi": "CasADi", "numexpr": "NumExpr"}  # fmt: skip


def good(cell: dict, tolerance: float) -> bool:
    return "seconds" in cell and "error" not in cell and cell.get("apart", 0) <= tolerance


def shown(value: float, scale: float) -> str:
    value *= scale
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def ratios(found: dict) -> list[str]:
    """The best peer's time by that of Gradus. CasADi's functions on fixed memory are no calls on new arrays."""
    out = []
    for peer in rows.GRADUS:
        others = set(found["peers"]) - {*rows.GRADUS, *(["casadi"] if peer == "gradus call" else [])}
        fit = [found["peers"][p]["seconds"] for p in others if good(found["peers"][p], found["tolerance"])]
        best, cell = min(fit, default=None), found["peers"].get(peer, {})
        out.append(f"{best / cell['seconds']:.2f}" if best and good(cell, found["tolerance"]) else "–")
    return out


def line_of(name: str, found: dict) -> str:
    times = [c["seconds"] for c in found["peers"].values() if "seconds" in c]
    scale, unit = (1e3, "ms") if min(times, default=0) >= 1e-3 else (1e6, "µs")
    cells = []
    for peer in HEADS:
        cell = found["peers"].get(peer, {})
        text = shown(cell["seconds"], scale) if "seconds" in cell and "error" not in cell else "–"
        cells.append(f"({text})" if text != "–" and not good(cell, found["tolerance"]) else text)
    return f"| {name} | {unit} | {' | '.join(cells)} | {' | '.join(ratios(found))} |"


def table(report: dict) -> str:
    order = [r.name for r in rows.rows()]
    lines = ["| row | unit | " + " | ".join(HEADS.values()) + " | ratio | of calls |",
             "| --- " * (len(HEADS) + 4) + "|"]  # fmt: skip
    measured = sorted((n for n in report["rows"] if n in order), key=order.index)
    lines += [line_of(n, report["rows"][n]) for n in measured]
    if report["first"]:
        lines += ["", "| until the first result, s | " + " | ".join(HEADS[p] for p in FIRST) + " |",
                  "| --- " * (len(FIRST) + 1) + "|"]  # fmt: skip
        part = lambda cells, p, k: f"{cells[p][k]:.2f}" if k in cells.get(p, {}) else "–"
        some = next(iter(report["first"].values()))
        lines.append("| import | " + " | ".join(part(some, p, "import") for p in FIRST) + " |")
        for n, cells in report["first"].items():
            lines.append(f"| {n} | " + " | ".join(part(cells, p, "first") for p in FIRST) + " |")
    if report["memory"]:
        peers = [p for p in HEADS if p not in ("casadi", "numexpr")]
        lines += ["", "| peak memory, MiB | " + " | ".join(HEADS[p] for p in peers) + " |",
                  "| --- " * (len(peers) + 1) + "|"]  # fmt: skip
        for n, cells in report["memory"].items():
            both = [f"{cells[p]['later']:.0f}, {cells[p]['first']:.0f}" if "later" in cells.get(p, {}) else "–"
                    for p in peers]  # fmt: skip
            lines.append(f"| {n} | " + " | ".join(both) + " |")
    versions = ", ".join(f"{k} {v}" for k, v in report["versions"].items())
    missing = ", ".join(HEADS.get(p, p) for p in report.get("missing", []))
    dates = sorted({report["rows"][n]["date"] for n in measured} or {report["date"]})
    head = [f"`{report['command']}`, {report['machine']}, {report['isa']} bits, threads: {report['threads']}, "
            f"{' and '.join(dates)}. Python {report['python']}, {versions}."
            + (" Times of processors." if report["clock"] == "process" else "")
            + (f" Not installed: {missing}." if missing else "")]  # fmt: skip
    return "\n".join([*fill(head[0]), "", *lines]) + "\n"


def fill(text: str) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        if len(lines[-1]) + len(word) + 1 > 120:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return lines


def put_into_docs(options, text: str) -> None:
    page = ROOT / "docs/benchmarks.md"
    start, end = (f"<!-- peers {options.isa} {options.threads}{what} -->" for what in ("", " end"))
    before, rest = page.read_text().split(start)
    page.write_text(f"{before}{start}\n\n{text}\n{end}{rest.split(end)[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    widest = 512 if "avx512bw" in pathlib.Path("/proc/cpuinfo").read_text() else 256
    parser.add_argument("--isa", type=int, choices=(256, 512), default=widest)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peers", type=lambda s: s.split(","), default=list(rows.PEERS))
    parser.add_argument("--python-path", default=os.environ.get("PYTHONPATH", ""))
    parser.add_argument("--patience", type=float, default=600, help="seconds for a row's first calls")
    parser.add_argument("--clock", choices=("wall", "process"), default="wall")
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--serve", help="a peer's name: be that peer's process")
    parser.add_argument("rows", nargs="*")
    options = parser.parse_args()
    if options.serve:
        return serve(options)
    options.out = options.out or ROOT / f"bench/results/peers-{options.isa}-{options.threads}.json"
    options.logs = ROOT / "build/peers-logs"
    options.logs.mkdir(parents=True, exist_ok=True)
    bench = Bench(options)
    with tempfile.TemporaryDirectory() as options.work:  # CasADi writes its programs to the folder that it runs in
        bench.run()
    text = table(bench.report)
    print(text)
    if options.docs:
        put_into_docs(options, text)


if __name__ == "__main__":
    main()
