"""Recordings with names for sizes."""

import numpy as np
import pytest

import gradus
from gradus import Dim, Type, ops


def np_net(x, w):
    return np.tanh(x @ w).sum(0)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_one_program_for_all_sizes(rng, n):
    def net(x, w):
        y = ops.tanh(x @ w)
        both = ops.cat([y, y * 2.0], 0).reshape(2 * len(x), w.shape[1])
        return {"y": both.sum(0), "flat": y.reshape(-1), "pairs": x[:, None] - x[None, :], "t": x.T, "head": x[: len(x) - 1]}

    program = gradus.trace(net, Type("f64", [Dim("N"), 3]), w=Type("f64", [3, Dim("M")]))
    assert program.inputs()[0][1] == Type("f64", [Dim("N"), 3])
    x, w = rng.normal(size=(n, 3)), rng.normal(size=(3, n + 1))
    y, flat, pairs, t, head = gradus.State(program.compile()).run(x, w)
    np.testing.assert_allclose(y.numpy(), 3 * np_net(x, w), rtol=1e-13)
    np.testing.assert_allclose(flat.numpy(), np.tanh(x @ w).reshape(-1), rtol=1e-13)
    np.testing.assert_array_equal(pairs.numpy(), x[:, None] - x[None])
    np.testing.assert_array_equal(t.numpy(), x.T)
    np.testing.assert_array_equal(head.numpy(), x[:-1])


def test_derivatives_have_the_names(rng):
    e = gradus.function(lambda x: (ops.tanh(x) * x).mean())
    program = gradus.trace(e, Type("f64", [Dim("N")]), order=2)
    inner = gradus.trace(gradus.grad(lambda x: (x * x * x).sum()), Type("f64", [Dim("N")]))
    for n in (1, 4):
        x = rng.normal(size=n)
        state = gradus.State(program.compile())
        np.testing.assert_allclose(state.run(x)[0].item(), (np.tanh(x) * x).mean())
        want = (np.tanh(x) + x / np.cosh(x) ** 2) / n
        np.testing.assert_allclose(state.run(1.0)[0].numpy(), want, rtol=1e-12)
        np.testing.assert_allclose(gradus.State(inner.compile()).run(x)[0].numpy(), 3 * x * x)


def test_without_names_types_are_numbers():
    program = gradus.trace(lambda x: x * 2, Type("f32", [2, 3]))
    assert program.inputs()[0][1] == Type("f32", [2, 3])


def test_what_has_no_names():
    n = Type("f64", [Dim("N")])
    for f, why in [
        (lambda x: x if len(x) % 3 else x * 2, "other things"),
        (lambda x: x * (1.0 / len(x)), "a size decides"),
        (lambda x: x[: len(x) // 2], "a number in the program"),
    ]:
        with pytest.raises(gradus.Error, match=why):
            gradus.trace(f, n)
    with pytest.raises(gradus.Error, match="a number or a name"):
        gradus.trace(lambda x: x, Type("f64", [Dim("N") * 2]))
