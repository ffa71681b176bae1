"""Recording a function: of shapes alone, which takes no time and leaves nothing behind."""

import re
import resource
import subprocess
import sys
import time

import numpy as np
import pytest

import gradus
from gradus import ops


def test_a_recording_computes_nothing():
    """One whose intermediates would fill the machine."""

    def f(x):
        wide = x.reshape(1 << 18, 1) * x.reshape(1, 1 << 18)  # 512 GiB
        return (ops.tanh(wide) @ ops.exp(wide)).sum(0)[:3]

    begin = time.perf_counter()
    program = gradus.trace(f, np.ones(1 << 18))
    assert program.results()[0][1] == gradus.Type("f64", [3])
    assert time.perf_counter() - begin < 5


def test_its_gradients_compute_nothing_either():
    def f(x, w):
        for _ in range(4):
            x = ops.tanh(x @ w)
        return (x * x).mean()

    x, w = np.ones((1 << 16, 1 << 8), "f4"), np.ones((1 << 8, 1 << 8), "f4")  # 64 MiB each
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    program = gradus.trace(gradus.grad(f, (0, 1)), x, w)
    program = gradus.trace(gradus.grad(lambda x, w: (gradus.grad(f)(x, w) ** 2).sum()), x, w)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert len(program.results()) == 1 and grown < 32 << 10, f"{grown} KiB"


def test_values_cannot_be_read_while_recording(rng):
    x = rng.normal(size=3)
    for f in [
        lambda x: x * float((x * 2).sum()),
        lambda x: x if (x * 2)[0] > 0 else -x,
        lambda x: x * np.asarray(x * 2),
        lambda x: x * (x + 1).copy(),
        lambda x: ops.nonzero(x > 0),
    ]:
        with pytest.raises(gradus.Error, match="traced|recorded|operators"):
            gradus.trace(f, x)


def test_what_is_left_of_a_recording_is_refused(rng):
    left = []

    @gradus.function
    def f(x):
        left.append(x * 2)
        return left[-1].sum()

    x = rng.normal(size=3)
    np.testing.assert_allclose(f(x).item(), 2 * x.sum())
    for read in (
        lambda t: t.numpy(),
        lambda t: t.tolist(),
        lambda t: t + 1,
        lambda t: -t,
        lambda t: 1 + t,
        lambda t: ops.tanh(t),
        lambda t: t[0],
        lambda t: gradus.tensor(t),
        lambda t: gradus.function(lambda a: a + 1)(t),
        lambda t: gradus.function(lambda a: a + t)(x),
        lambda t: gradus.gradients(t.sum(), t),
        lambda t: np.from_dlpack(t),
        lambda t: t.copy(),
    ):
        with pytest.raises(gradus.Error, match="recorded|recording|cannot be traced"):
            read(left[0])
    assert left[0].shape == (3,) and left[0].dtype == gradus.f64


def test_a_function_that_needs_values_has_them(rng, fresh):
    """What calls Python is recorded with values, as it was."""
    seen = []

    def forward(ctx, x):
        seen.append(np.asarray(x).copy())
        return np.sin(x)

    op = gradus.python_op(fresh(), forward, lambda ctx, d: d, replayable=True)
    f = gradus.function(lambda x: op(x * 2) * 3)
    x = rng.normal(size=3)
    np.testing.assert_allclose(f(x).numpy(), 3 * np.sin(2 * x))
    assert seen and all(np.array_equal(s, 2 * x) for s in seen)


def test_constants_are_what_they_are(rng):
    c = rng.normal(size=3)
    made = gradus.tensor(c)
    f = gradus.function(lambda x: x * made + ops.arange(end=3) + gradus.zeros(3) + gradus.tensor(c))
    x = rng.normal(size=3)
    np.testing.assert_allclose(f(x).numpy(), x * c + np.arange(3) + c)


def test_a_gradient_leaves_no_reshapes(rng):
    """grad of a function within a recording: nothing that does nothing is left in what runs."""
    e = gradus.grad(lambda x: (ops.tanh(x) * x).sum())
    program = gradus.trace(lambda x: gradus.grad(lambda z: (e(z) ** 2).sum())(x) + e(x), rng.normal(size=4))
    assert "reshape" in str(program)
    text = program.compile().disassemble()
    assert "reshape" not in text
    assert len(re.findall(r"\btanh\b", text)) == 1
