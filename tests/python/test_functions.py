"""Traced functions, and derivatives of Python functions, against NumPy."""

from collections import namedtuple

import numpy as np
import pytest

import gradus
from gradus import ops
from conftest import central_difference


def loss(x, w):
    return (ops.tanh(x @ w) ** 2).sum()


def np_loss(x, w):
    return (np.tanh(x @ w) ** 2).sum()


@pytest.mark.parametrize("shape", [(2, 3, 1), (1, 1, 4), (4, 2, 2)])
def test_function_runs_as_a_program(shape, rng):
    n, k, m = shape
    calls = []

    @gradus.function(order=2)
    def f(x, w):
        calls.append(1)
        return loss(x, w)

    for _ in range(3):
        x, w = rng.normal(size=(n, k)), rng.normal(size=(k, m))
        X, W = (gradus.tensor(a, requires_grad=True) for a in (x, w))
        y = f(X, W)
        np.testing.assert_allclose(y.item(), np_loss(x, w), rtol=1e-13) if not y.requires_grad else None
        np.testing.assert_allclose(y.detach().item(), np_loss(x, w), rtol=1e-13)
        dx, dw = gradus.gradients(y, [X, W], create_graph=True)
        np.testing.assert_allclose(
            dx.detach().numpy(), central_difference(lambda a: np_loss(a, w), x), atol=1e-8
        )
        u = rng.normal(size=w.shape)
        (d2x,) = gradus.gradients((dw * u).sum(), X, create_graph=True)
        want = central_difference(
            lambda a: (central_difference(lambda b: np_loss(a, b), w, 1e-4) * u).sum(), x, 1e-4
        )
        np.testing.assert_allclose(d2x.detach().numpy(), want, atol=1e-5)
        with pytest.raises(gradus.Error, match="2 derivatives|compiled for"):
            gradus.gradients(d2x.sum(), X)
    assert len(calls) == 1


def test_signatures(rng):
    calls = []

    @gradus.function
    def f(x, power, *, flip=False):
        calls.append((x.shape, x.dtype, power, flip))
        y = x**power
        return -y if flip else y

    for _ in range(2):
        assert f(np.full(2, 3.0), 2).tolist() == [9, 9]
        assert f(np.full(3, 3.0), 2).tolist() == [9, 9, 9]
        assert f(np.full(2, 3.0, "f4"), 2).tolist() == [9, 9]
        assert f(np.full(2, 3.0), 3, flip=True).tolist() == [-27, -27]
        assert f(np.full(2, 3.0), 2.0).tolist() == [9, 9]
        assert f(np.full(2, 3), 2.0).dtype == gradus.f32
    assert len(calls) == 6
    with pytest.raises(gradus.Error, match="hash"):
        f(np.ones(2), {1, 2})
    with pytest.raises(TypeError):
        f(np.ones(2))


Layer = namedtuple("Layer", "w b")


def test_trees(rng):
    @gradus.function(order=1)
    def f(params, x):
        for layer in params["layers"]:
            x = ops.tanh(x @ layer.w + layer.b)
        return {"y": x, "parts": [x.sum(), (x * x).sum()]}

    params = {"layers": [Layer(rng.normal(size=(3, 3)), rng.normal(size=3)) for _ in range(2)]}
    x = rng.normal(size=(2, 3))
    got = f(params, x)
    want = x
    for layer in params["layers"]:
        want = np.tanh(want @ layer.w + layer.b)
    np.testing.assert_allclose(got["y"].numpy(), want, rtol=1e-13)
    np.testing.assert_allclose(got["parts"][1].item(), (want**2).sum(), rtol=1e-13)
    program = f.program(params, x)
    assert [n for n, _ in program.inputs()][:2] == ["params.layers.0.w", "params.layers.0.b"]
    g = gradus.grad(lambda p: f(p, x)["parts"][1])(params)
    assert isinstance(g["layers"][1], Layer)
    b = params["layers"][0].b.copy()

    def of_b(b):
        y = np.tanh(x @ params["layers"][0].w + b)
        y = np.tanh(y @ params["layers"][1].w + params["layers"][1].b)
        return (y**2).sum()

    np.testing.assert_allclose(
        g["layers"][0].b.numpy(), central_difference(of_b, b), atol=1e-8
    )


def test_grad_nests_and_traces(rng):
    x = rng.normal(size=3)
    f = lambda x: (ops.sin(x) * x).sum()  # noqa: E731
    want1 = np.cos(x) * x + np.sin(x)
    want2 = 2 * np.cos(x) - np.sin(x) * x
    want3 = -3 * np.sin(x) - np.cos(x) * x
    g1 = gradus.grad(f)
    g2 = gradus.grad(lambda x: g1(x).sum())
    g3 = gradus.grad(lambda x: g2(x).sum())
    for g, want in [(g1, want1), (g2, want2), (g3, want3)]:
        np.testing.assert_allclose(g(x).numpy(), want, rtol=1e-12)
        np.testing.assert_allclose(gradus.function(g)(x).numpy(), want, rtol=1e-12)
    # A gradient penalty, in one program, differentiated further.
    penalty = gradus.function(lambda x: (g1(x) ** 2).sum(), order=1)
    X = gradus.tensor(x, requires_grad=True)
    penalty(X).backward()
    np.testing.assert_allclose(X.grad.numpy(), 2 * want1 * want2, rtol=1e-12)
    assert gradus.gradcheck(gradus.trace(lambda x: (g1(x) ** 2).sum(), x), 2)


def test_grad_is_by_its_argument_alone():
    # d/dz of z * x at z = x is x, not 2 x.
    g = lambda x: gradus.grad(lambda z: (z * x).sum())(x)  # noqa: E731
    x = np.array([2.0, 3.0])
    np.testing.assert_array_equal(g(x).numpy(), x)
    np.testing.assert_array_equal(gradus.function(g)(x).numpy(), x)
    np.testing.assert_array_equal(gradus.grad(lambda x: (g(x) ** 2).sum())(x).numpy(), 2 * x)


def test_value_and_grad_forms(rng):
    x, w = rng.normal(size=(2, 3)), rng.normal(size=(3, 2))
    value, (dx, dw) = gradus.value_and_grad(loss, argnums=(0, 1))(x, w)
    np.testing.assert_allclose(value.item(), np_loss(x, w), rtol=1e-13)
    np.testing.assert_allclose(dw.numpy(), central_difference(lambda b: np_loss(x, b), w), atol=1e-8)
    np.testing.assert_allclose(
        gradus.grad(loss, 1)(x, w).numpy(), dw.numpy(), rtol=1e-15
    )
    assert gradus.grad(lambda t: t * t)(3.0).item() == 6
    assert gradus.grad(lambda a, b: (a * 2).sum(), 1)(x, w).tolist() == np.zeros((3, 2)).tolist()
    with gradus.no_grad():
        assert gradus.grad(lambda t: t * t)(3.0).item() == 6
    with pytest.raises(gradus.Error, match="0-d"):
        gradus.grad(lambda a: a)(x)


def test_jvp_hvp_jacobian_hessian(rng):
    x, w = rng.normal(size=(2, 3)), rng.normal(size=(3, 2))
    u, v = rng.normal(size=x.shape), rng.normal(size=w.shape)
    h = 1e-5
    y, dy = gradus.jvp(loss, (x, w), (u, v))
    np.testing.assert_allclose(y.item(), np_loss(x, w), rtol=1e-13)
    slope = (np_loss(x + h * u, w + h * v) - np_loss(x - h * u, w - h * v)) / (2 * h)
    np.testing.assert_allclose(dy.item(), slope, atol=1e-7)
    hx, hw = gradus.hvp(loss, (x, w), (u, v))
    up = central_difference(lambda a: np_loss(a, w + h * v), x + h * u, 1e-4)
    down = central_difference(lambda a: np_loss(a, w - h * v), x - h * u, 1e-4)
    np.testing.assert_allclose(hx.numpy(), (up - down) / (2 * h), atol=2e-4)
    single = gradus.hvp(lambda x: (x**3).sum(), x, u)
    np.testing.assert_allclose(single.numpy(), 6 * x * u, rtol=1e-12)
    t = rng.normal(size=3)
    np.testing.assert_allclose(
        gradus.jacobian(lambda t: ops.sin(t) * t[0], t).numpy(),
        np.diag(np.cos(t) * t[0]) + np.outer(np.sin(t), [1, 0, 0]),
        rtol=1e-12,
    )
    np.testing.assert_allclose(
        gradus.hessian(lambda t: (t**3).sum() + t[0] * t[1], t).numpy(),
        np.diag(6 * t) + np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]),
        rtol=1e-12,
    )
    out, along = gradus.jvp(gradus.function(lambda x: {"a": x * x, "n": ops.argmax(x)}), t, t)
    np.testing.assert_allclose(along["a"].numpy(), 2 * t * t, rtol=1e-13)
    assert along["n"] is None and out["n"].item() == np.argmax(t)
    with pytest.raises(gradus.Error, match="tangents"):
        gradus.jvp(loss, (x, w), (u,))


def test_what_a_trace_cannot_hold(rng):
    x = rng.normal(size=3)
    for f in [
        lambda x: x * x.sum().item(),
        lambda x: x * float(x[0]),
        lambda x: x if x[0] > 0 else -x,
        lambda x: x * np.asarray(x),
        lambda x: x * np.from_dlpack(x),
        lambda x: x * x.tolist()[0],
    ]:
        with pytest.raises(gradus.Error):
            gradus.trace(f, x)
    outside = gradus.tensor(x, requires_grad=True)
    with pytest.raises(gradus.Error):
        gradus.trace(lambda x: x * outside, x)
    with pytest.raises(gradus.Error, match="no tensor"):
        gradus.trace(lambda x: 1.0, x)


def test_the_users_exceptions_arrive():
    class Mine(Exception):
        pass

    @gradus.function
    def f(x):
        raise Mine("no")

    with pytest.raises(Mine) as e:
        f(np.ones(2))
    assert "raise Mine" in str(e.traceback[-1].statement)
    with pytest.raises(KeyboardInterrupt):
        gradus.trace(lambda x: (_ for _ in ()).throw(KeyboardInterrupt()), np.ones(2))
    assert not gradus._gradus.is_tracing()


def test_nested_functions_are_one_program(rng):
    inner = gradus.function(lambda x: ops.exp(x))
    program = gradus.trace(lambda x: inner(x) * 2, rng.normal(size=2))
    assert "exp" in str(program) and program.stages == 1


def test_the_programs_called_last_are_kept():
    recorded = []

    @gradus.function(most_programs=2)
    def f(x):
        recorded.append(x.shape)
        return x * 2.0

    def runs(n):
        assert f(np.ones(n)).numpy().tolist() == [2.0] * n
        return len(recorded)

    assert [runs(n) for n in (1, 2, 1, 3, 1, 2, 3)] == [1, 2, 2, 3, 3, 4, 5]
    with pytest.raises(gradus.Error, match="most_programs must be 1 or more, not 0"):
        gradus.function(most_programs=0)(lambda x: x)


def test_methods():
    class Model:
        def __init__(self, w):
            self.w = w

        @gradus.function(order=1)
        def __call__(self, x):
            return x * self.w

    model = Model(np.array([2.0, 3.0]))
    assert model(np.array([1.0, 1.0])).tolist() == [2, 3]


def test_staged_function(rng):
    program = gradus.parse(
        "graph g { stage 0 (%x: f64[N]) { %y = square(%x) %z = mul(%y, %x) return %z } }"
    )
    f = gradus.StagedFunction(program.differentiate(2).compile())
    assert f.derivatives == 2
    x = gradus.tensor(rng.normal(size=4), requires_grad=True)
    (z,) = f(x)
    (d,) = gradus.gradients(z.sum(), x, create_graph=True)
    (d2,) = gradus.gradients(d.sum(), x)
    np.testing.assert_allclose(d2.numpy(), 6 * x.detach().numpy(), rtol=1e-13)
