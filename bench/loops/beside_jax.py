#!/usr/bin/env python3
"""The programs of this folder beside JAX, in turns, one thread each:

  beside_jax.py [--isa 512|256] [--rounds N] [--json FILE] [ROW...]

Run it by a Python that has jax and numpy, from the root of the tree, after `scripts/bench loops` has
built build/bench/bin/bench_loops. Both run on one core (`--core`); XLA is kept to one thread, and
both to the same width of vectors. A round is a run of ours, then of JAX's; the table has the medians.
JAX's compile time is `lower().compile()` of the jitted function, ours is from the file's text to the
prepared state. ROW is FILE/CASE; none is all.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

here = pathlib.Path(__file__).resolve().parent
root = here.parent.parent
rows = [
    f"{file}/{what}_{steps}"
    for file, lengths in (
        ("cell_16", (1000, 8192)),
        ("cell_256", (1000, 8192)),
        ("cholesky", (2000,)),
        ("leaves", (2000,)),
        ("rk4", (1000, 100000)),
        ("md", (1000,)),
    )
    for steps in lengths
    for what in ("forward", "gradient", "training")
    if what != "training" or file.startswith("cell")
]


class Gradus:
    def __init__(self, isa):
        environment = dict(os.environ)
        if isa == 256:
            environment["GRADUS_ISA"] = "x86-64-v3"
        self.process = subprocess.Popen(
            [root / "build/bench/bin/bench_loops", "--serve"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(f"{line}: {answer['error']}")
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def function_of(file, what, steps):
    """JAX's function of the program's inputs, in their order, and what it is differentiated by."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    if file.startswith("cell"):

        def loss(h0, xs, w, u, b):
            def cell(h, x):
                h = jnp.tanh(w @ h + u @ x + b)
                return h, h if what == "training" else None

            h, hs = lax.scan(cell, h0, xs)
            return jnp.sum(hs * hs) if what == "training" else jnp.sum(h * h)

        wrt = (2, 3, 4, 1)
    elif file == "cholesky":

        def loss(f0, d, p, q, a):
            def step(f, data):
                d, p, q, a = data
                c = jnp.sqrt(d - p @ f @ p)
                t = f @ a.T
                w = (q - p @ t) / c
                return a @ t + jnp.outer(w, w), (c, w)

            _, (c, w) = lax.scan(step, f0, (d, p, q, a))
            return jnp.sum(jnp.log(c)) + jnp.sum(w * w)

        wrt = (1, 2, 3, 4)
    elif file == "leaves":

        def loss(*given):
            *starts, xs, rate = given

            def step(carry, x):
                after, last, first = [], x, None
                for m, p, v in zip(carry[0::3], carry[1::3], carry[2::3]):
                    expected = 1 / (jnp.exp(v) * rate + 1 / p)
                    d = last - m
                    q = expected + 1
                    c = d / q
                    first = c if first is None else first
                    last = m + c
                    after += [last, q, v * 0.9 + jnp.tanh(d * c) * 0.1]
                return tuple(after), first

            end, cs = lax.scan(step, tuple(starts), xs)
            return jnp.sum(cs * cs) + end[-3]

        wrt = (61, 60, *range(60))
    elif file == "rk4":

        def loss(y0, a, b):
            def slope(y):
                return jnp.tanh(a @ y + b) - y

            def step(y, _):
                k1 = slope(y)
                k2 = slope(y + k1 * 0.005)
                k3 = slope(y + k2 * 0.005)
                k4 = slope(y + k3 * 0.01)
                return y + (k1 + k4 + (k2 + k3) * 2) * 0.0016666666666666668, None

            y, _ = lax.scan(step, y0, None, length=steps)
            return jnp.sum(y * y)

        wrt = (0, 1, 2)
    else:

        def energy(x, epsilon, sigma):
            d = x[:, None] - x[None, :]
            one = jnp.eye(13)
            q = sigma * sigma / (jnp.sum(d * d, 2) + one)
            q6 = q * q * q
            return jnp.sum((q6 * q6 - q6) * (1 - one)) * 2 * epsilon

        def loss(x0, v0, epsilon, sigma):
            def step(carry, _):
                x, v, g = carry
                v = v + g * -0.001
                x = x + v * 0.002
                g = jax.grad(energy)(x, epsilon, sigma)
                return (x, v + g * -0.001, g), None

            g0 = jax.grad(energy)(x0, epsilon, sigma)
            (_, v, _), _ = lax.scan(step, (x0, v0, g0), None, length=steps)
            return jnp.sum(v * v)

        wrt = (2, 3)
    if what == "forward":
        return lambda *given: (loss(*given),)

    def both(*given):
        value, slopes = jax.value_and_grad(loss, wrt)(*given)
        return (value, *slopes)

    return both


class Jax:
    def __init__(self, row, answer, folder):
        import jax
        import numpy

        file, case = row.split("/")
        what, steps = case.split("_")
        inputs = [
            numpy.fromfile(
                f"{folder}/{i['name']}", {"f32": numpy.float32, "f64": numpy.float64}[i["dtype"]]
            ).reshape(i["shape"])
            for i in answer["inputs"]
        ]
        self.inputs = [jax.device_put(i) for i in inputs]
        start = time.perf_counter()
        self.compiled = jax.jit(function_of(file, what, int(steps))).lower(*self.inputs).compile()
        self.seconds = time.perf_counter() - start
        memory = self.compiled.memory_analysis()
        self.bytes = memory.temp_size_in_bytes if memory else 0

    def run(self, times):
        import jax

        start = time.perf_counter()
        for _ in range(times):
            jax.block_until_ready(self.compiled(*self.inputs))
        return (time.perf_counter() - start) / times

    def difference(self, answer, folder):
        """The largest difference of a result, relative to the largest element."""
        import numpy

        worst = 0.0
        for i, (mine, theirs) in enumerate(zip(answer["results"], self.compiled(*self.inputs))):
            ours = numpy.fromfile(
                f"{folder}/result_{i}", {"f32": numpy.float32, "f64": numpy.float64}[mine["dtype"]]
            ).reshape(mine["shape"])
            theirs = numpy.asarray(theirs)
            assert ours.shape == theirs.shape, (i, ours.shape, theirs.shape)
            scale = max(abs(theirs).max(), 1e-30)
            worst = max(worst, float(abs(ours - theirs).max() / scale))
        return worst


def measure(row, isa, rounds):
    file, case = row.split("/")
    with tempfile.TemporaryDirectory() as folder:
        gradus = Gradus(isa)
        answer = gradus.ask(f"load {here}/{file}.ir {case} {folder} loop")
        jax = Jax(row, answer, folder)
        apart = jax.difference(gradus.ask(f"results {folder}"), folder)
        gradus.ask("run 1")
        slower = max(gradus.ask("run 1")["seconds"], jax.run(1))
        times = max(1, int(0.02 / slower))
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(gradus.ask(f"run {times}")["seconds"])
            theirs.append(jax.run(times))
        gradus.close()
    return {
        "row": row,
        "isa": isa,
        "gradus_ms": statistics.median(ours) * 1e3,
        "jax_ms": statistics.median(theirs) * 1e3,
        "ratio": statistics.median(t / o for o, t in zip(ours, theirs)),
        "gradus_compile_ms": answer["ready"] * 1e3,
        "jax_compile_ms": jax.seconds * 1e3,
        "gradus_MiB": answer["buffer"] / 2**20,
        "jax_MiB": jax.bytes / 2**20,
        "difference": apart,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--isa", type=int, choices=(256, 512), default=512)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--json")
    parser.add_argument("rows", nargs="*")
    given = parser.parse_args()
    os.sched_setaffinity(0, {given.core})  # before XLA makes its threads; ours inherit it
    isa = "AVX512" if given.isa == 512 else "AVX2"
    os.environ["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen=false --xla_cpu_max_isa={isa}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["JAX_ENABLE_X64"] = "1"
    import jax

    print(f"jax {jax.__version__}, {given.isa} bits", file=sys.stderr)
    found = []
    print("| row | Gradus | JAX | ratio | compile | JAX's | memory | JAX's | apart |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in given.rows or rows:
        r = measure(row, given.isa, given.rounds)
        found.append(r)
        print(
            f"| {r['row']} | {r['gradus_ms']:.3f} ms | {r['jax_ms']:.3f} ms | {r['ratio']:.2f} | "
            f"{r['gradus_compile_ms']:.0f} ms | {r['jax_compile_ms']:.0f} ms | "
            f"{r['gradus_MiB']:.2f} MiB | {r['jax_MiB']:.2f} MiB | {r['difference']:.1e} |",
            flush=True,
        )
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
