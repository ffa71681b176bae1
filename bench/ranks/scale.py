"""Measures steps on one and two ranks, and computes from them what up to 10,000 ranks would take.

    python3 bench/ranks/scale.py measure build/dev/bin   # writes bench/results/ranks.json; wants vesin and MPI
    python3 bench/ranks/scale.py model                   # prints the tables of docs/scale.md

The model plays steps: each rank's clock goes on by a computing time, drawn from those measured, and by
the calls' times; a sum waits for all ranks, an exchange for the neighbours.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy as np

here = pathlib.Path(__file__).parent
results = here.parent / "results" / "ranks.json"

CELL, CUTOFF = 5.26, 7.5  # angstrom: argon
ACROSS = 4  # cells of four atoms along y and z
SLABS = {64 * c: c for c in (4, 16, 64)}  # atoms of a rank: cells along x
ROWS, WIDTH = (16, 64, 256), 512  # of a rank's batch; of the network's layers


# ---- measuring ----


def halo_inputs(atoms, ranks):
    """What each rank begins with: its own atoms, and edges to those of both neighbours."""
    from vesin import NeighborList

    along = SLABS[atoms]
    corners = np.array([[0, 0, 0], [0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]])
    cells = np.stack(
        np.meshgrid(range(along * ranks), range(ACROSS), range(ACROSS), indexing="ij"), -1
    )
    x = ((cells.reshape(-1, 1, 3) + corners) * CELL).reshape(-1, 3)
    x += np.random.default_rng(1).normal(size=x.shape) * 0.05
    box = np.array([along * ranks, ACROSS, ACROSS]) * CELL
    i, j, turns = NeighborList(cutoff=CUTOFF, full_list=True).compute(
        points=x, box=np.diag(box), periodic=True, quantities="ijS"
    )
    i, j, turns = i.astype(np.int64), j.astype(np.int64), turns.astype(np.int64)
    for rank in range(ranks):
        of = i // atoms == rank
        part = j[of] // atoms + turns[of, 0] * ranks - rank  # 0 own, -1 left, 1 right
        assert np.abs(part).max() <= 1
        to = np.choose(part % 3, [0, 2 * atoms, atoms]) + j[of] % atoms
        yield {
            "x": x[rank * atoms : (rank + 1) * atoms],
            "edges": np.stack([i[of] % atoms, to]),
            "shifts": turns[of] * box,
            "cutoff": np.float64(CUTOFF),
            "eps": np.float64(0.0103),
            "sigma": np.float64(3.405),
        }


def dense_inputs(rows, ranks):
    random = np.random.default_rng(2)
    weights = {
        f"w{k}": random.normal(size=(WIDTH, WIDTH)).astype(np.float32) / WIDTH**0.5
        for k in (1, 2, 3)
    }
    for _ in range(ranks):
        x, t = random.normal(size=(2, rows, WIDTH)).astype(np.float32)
        yield {"x": x, "t": t, **weights}


def steps(binaries, program, inputs, count):
    with tempfile.TemporaryDirectory() as folder:
        for rank, arrays in enumerate(inputs):
            np.savez(f"{folder}/{rank}.npz", **arrays)
        ranks = rank + 1
        text = f"{here}/{program}.ir"
        if program == "dense":
            text = f"{folder}/dense1.ir"
            subprocess.run(
                [f"{binaries}/gradus", "grad", f"{here}/dense.ir", "--order", "1", "--wrt", "w1,w2,w3"]
                + ["-o", text],
                check=True,
            )
        launch = ["mpirun", "--allow-run-as-root", "-np", str(ranks)] if ranks > 1 else []
        done = subprocess.run(
            [*launch, f"{binaries}/bench_rank_steps", text, f"{folder}/%r.npz", str(count)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    found = json.loads(done.stdout)
    whole, calls = np.array(found["whole"]), np.array(found["calls"])
    computing = whole - calls
    return {
        "ranks": ranks,
        "step": float(np.median(whole)),
        "calls": float(np.median(calls)),
        "computing": float(np.median(computing)),
        "bytes": found["bytes"],
        # Quantiles of computing times, as multiples of their median.
        "noise": np.round(np.quantile(computing, np.linspace(0, 1, 201)) / np.median(computing), 4).tolist(),
    }


def measure(binaries):
    rows = []
    for program, sizes, inputs in (("halo", SLABS, halo_inputs), ("dense", ROWS, dense_inputs)):
        for size in sizes:
            for ranks in (1, 2):
                row = {"program": program, "size": size}
                row |= steps(binaries, program, inputs(size, ranks), 1000)
                rows.append(row)
                print(
                    f"{program:6} {size:5} on {ranks}: step {row['step']:8.1f} us, computing "
                    f"{row['computing']:8.1f}, calls {row['calls']:7.1f}, bytes {row['bytes']}"
                )
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    name = next(line for line in flags.splitlines() if line.startswith("model name"))
    isa = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "SSE2"
    machine = f"{name.split(': ')[1]}, {isa}, 2 cores, shared"
    results.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


# ---- the model ----

LATENCY = 2e-6  # seconds a message takes between nodes
BANDWIDTH = 1e9  # bytes/s that a rank has of its node's network while all ranks of the node send
CALL = 1e-6  # seconds that a call of a group takes of the rank's time, beside the library's
ALL = (1, 16, 128, 1024, 10000)


def of_sum(ranks, size):
    """Seconds of an all_reduce: reduce-scatter and all-gather by halves (Thakur, Rabenseifner and
    Gropp, Int. J. High Perform. Comput. Appl. 19, 49, 2005)."""
    if ranks == 1:
        return CALL
    return CALL + 2 * np.ceil(np.log2(ranks)) * LATENCY + 2 * size * (1 - 1 / ranks) / BANDWIDTH


def fitted(rows, program):
    """Seconds of computing by size: a line through what was measured on one rank."""
    found = [r for r in rows if r["program"] == program and r["ranks"] == 1]
    slope, constant = np.polyfit([r["size"] for r in found], [1e-6 * r["computing"] for r in found], 1)
    noise = np.array(found[-1]["noise"])[:-1]  # without what the machine did once in 200 steps
    return (lambda size: max(constant, 0) + slope * size), noise


def draws(random, noise, count):
    return np.interp(random.random(count), np.linspace(0, 1, len(noise)), noise)


def play(ranks, computing, noise, neighbours, exchange, sum_bytes, count=300):
    """Seconds of a step. The ranks are a cube, or a row where they have no neighbours."""
    random = np.random.default_rng(3)
    side = round(ranks ** (1 / 3)) if neighbours else 0
    clocks = np.zeros((side, side, side) if neighbours else ranks)
    for _ in range(count):
        clocks += computing * draws(random, noise, clocks.size).reshape(clocks.shape)
        if neighbours and ranks > 1:
            for axis in range(3):
                others = np.maximum(np.roll(clocks, 1, axis), np.roll(clocks, -1, axis))
                clocks = np.maximum(clocks, others) + 2 * (CALL + LATENCY) + exchange / BANDWIDTH
        clocks[:] = clocks.max() + of_sum(clocks.size, sum_bytes)
    return clocks.max() / count


def halo(rows, atoms_of_rank, title):
    computing, noise = fitted(rows, "halo")
    density = 4 / CELL**3
    print(f"\n{title}\n\n| ranks | atoms of a rank | ghosts | step, us | efficiency | without noise |")
    print("| --- | --- | --- | --- | --- | --- |")
    for ranks in (1, 27, 125, 1000, 10648):
        atoms = atoms_of_rank(ranks)
        side = (atoms / density) ** (1 / 3)
        ghosts = ((side + 2 * CUTOFF) ** 3 - side**3) * density
        # Gradients of ghosts go back: positions and forces of them pass each way, in 3 directions.
        exchange = 2 * 24 * ghosts / 3
        times = [play(ranks, computing(atoms), n, True, exchange, 8) for n in (noise, np.ones(2))]
        ideal = computing(atoms)
        print(
            f"| {ranks:,} | {atoms:,.0f} | {ghosts:,.0f} | {1e6 * times[0]:,.0f} | {ideal / times[0]:.2f} | "
            f"{ideal / times[1]:.2f} |"
        )


def dense(rows, rows_of_rank, title):
    computing, noise = fitted(rows, "dense")
    gradients = 3 * 4 * WIDTH**2
    print(f"\n{title}\n\n| ranks | rows of a rank | step, us | sum, us | efficiency | without noise |")
    print("| --- | --- | --- | --- | --- | --- |")
    for ranks in ALL:
        size = rows_of_rank(ranks)
        times = [play(ranks, computing(size), n, False, 0, gradients) for n in (noise, np.ones(2))]
        ideal = computing(size)
        print(
            f"| {ranks:,} | {size:,.0f} | {1e6 * times[0]:,.0f} | {1e6 * of_sum(ranks, gradients):,.0f} | "
            f"{ideal / times[0]:.2f} | {ideal / times[1]:.2f} |"
        )


def model():
    found = json.loads(results.read_text())
    rows = found["rows"]
    print(f"Measured on: {found['machine']}")
    halo(rows, lambda ranks: 8000, "Molecular dynamics, 8,000 atoms a rank")
    halo(rows, lambda ranks: 1_064_800 / ranks, "Molecular dynamics, 1,064,800 atoms in all")
    dense(rows, lambda ranks: 256, "Training, 256 rows a rank")
    dense(rows, lambda ranks: 160_000 / ranks, "Training, 160,000 rows in all")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("what", choices=["measure", "model"])
    parser.add_argument("binaries", nargs="?", default="build/dev/bin")
    options = parser.parse_args()
    if options.what == "measure":
        measure(options.binaries)
    else:
        model()
