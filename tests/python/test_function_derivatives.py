"""Derivatives of Python functions: compiled for each signature, in trees, and within recordings."""

import dataclasses
import datetime
import enum
import gc
import os
import time
import weakref
from collections import namedtuple

import numpy as np
import pytest

import gradus
from gradus import ops
from conftest import central_difference

Layer = namedtuple("Layer", "w b")


def energy(x):
    return (ops.tanh(x) * x).sum()


def np_energy(x):
    return (np.tanh(x) * x).sum()


def field(x):
    return ops.sin(x) * x[0]


def second(f, x):
    """The Hessian, by NumPy alone."""
    x = np.array(x)
    rows = [
        central_difference(lambda a: central_difference(f, a, 1e-4)[i], x, 1e-4)
        for i in np.ndindex(*x.shape)
    ]
    return np.array(rows).reshape(x.shape + x.shape)


runs = []


def noted(x):
    runs.append(1)  # a list: what it holds could change
    return energy(x)


def test_a_derivative_is_compiled_once_for_a_signature(rng):
    recorded = []
    plain = gradus.function(lambda x: recorded.append(1) or energy(x))
    g = gradus.grad(plain)
    for n in (2, 3, 2, 3, 2):
        x = rng.normal(size=n)
        np.testing.assert_allclose(g(x).numpy(), central_difference(np_energy, x), atol=1e-8)
        u = rng.normal(size=n)
        for _ in range(2):
            np.testing.assert_allclose(
                gradus.hvp(plain, x, u).numpy(), second(np_energy, x) @ u, atol=1e-6
            )
            y, dy = gradus.jvp(plain, x, u)
            np.testing.assert_allclose(dy.item(), g(x).numpy() @ u, rtol=1e-12)
            np.testing.assert_allclose(y.item(), np_energy(x), rtol=1e-13)
            gradus.hessian(plain, x), gradus.jacobian(plain, x), gradus.laplacian(plain, x)
    assert len(recorded) == 2 * 6  # two sizes of six derivatives


def test_what_a_function_reads_is_what_it_is_now(rng):
    """A plain function is compiled only where nothing that it reads can change unnoticed."""
    x = rng.normal(size=3)
    scale, holder, array = 2.0, [2.0], np.array(2.0)

    def by_number(x):
        return (x * x).sum() * scale

    def by_list(x):
        return (x * x).sum() * holder[0]

    def by_array(x):
        return (x * x).sum() * array

    for f in (by_number, by_list, by_array):
        g = gradus.grad(f)
        for now in (2.0, 3.0, 2.0):
            scale, holder[0], array = now, now, np.array(now)
            np.testing.assert_allclose(g(x).numpy(), 2 * now * x, rtol=1e-14)
            np.testing.assert_allclose(gradus.hvp(f, x, x).numpy(), 2 * now * x, rtol=1e-14)
            np.testing.assert_allclose(gradus.jacobian(f, x).numpy(), 2 * now * x, rtol=1e-14)
    runs.clear()
    for _ in range(3):
        gradus.grad(noted)(x)
    assert len(runs) == 3
    assert not gradus.grad(energy).direct and gradus.grad(noted).direct


class Holder:
    def __init__(self, k):
        self.k = k

    def loss(self, x):
        return (x * x).sum() * self.k

    @staticmethod
    def of_argument(x, o):
        return (x * x).sum() * o.k


@dataclasses.dataclass
class Changing:
    k: float


@dataclasses.dataclass(frozen=True)
class Frozen:
    k: float
    of: object = None

    def loss(self, x):
        return (x * x).sum() * self.k

    def listed(self, x):
        return (x * x).sum() * table[0]


table = [1.0]


def every_derivative(f, x, other):
    """What is linear in f, of f(x, other): as numbers."""
    u = np.ones_like(x)
    yield gradus.jvp(lambda x: f(x, other), x, u)[1].item()
    yield gradus.hvp(lambda x: f(x, other), x, u).numpy().sum()
    yield gradus.jacobian(f, x, other).numpy().sum()
    yield gradus.hessian(f, x, other).numpy().sum()
    yield gradus.laplacian(f, x, other).item()
    yield gradus.vmap(f, (0, None))(x[None], other).item()


@pytest.mark.parametrize("make", [Holder, Changing, lambda k: Frozen(k, Holder(k))])
def test_what_an_argument_holds_is_what_it_is_now(rng, make):
    x = rng.normal(size=3)
    given = make(1.0)
    held = given.of if isinstance(given, Frozen) else given
    f = (lambda x, o: (x * x).sum() * o.of.k) if held is not given else Holder.of_argument
    g, once = gradus.grad(f), list(every_derivative(f, x, given))
    assert not g.direct
    for k in (1.0, 5.0, 2.0):
        held.k = k
        np.testing.assert_allclose(g(x, given).numpy(), 2 * k * x, rtol=1e-14)
        np.testing.assert_allclose(g(x, o=given).numpy(), 2 * k * x, rtol=1e-14)
        np.testing.assert_allclose(list(every_derivative(f, x, given)), k * np.array(once), rtol=1e-13)


def test_a_methods_object_may_change(rng):
    x, m = rng.normal(size=2), Holder(1.0)
    g = gradus.grad(Holder.loss, argnums=1)
    for k in (1.0, 5.0):
        m.k = k
        np.testing.assert_allclose(g(m, x).numpy(), 2 * k * x, rtol=1e-14)
    alive = weakref.ref(m)
    del m
    assert alive() is None


def test_sets_and_generators_may_change():
    some = {1.0}
    g = gradus.grad(lambda x, s: x * sum(s))
    assert g(2.0, some).item() == 1.0
    some.add(3.0)
    assert g(2.0, some).item() == 4.0
    values = gradus.grad(lambda x, o: x * o.value[0])
    for k in (1.0, 2.0):
        Changeable.some.value[0] = k
        assert values(2.0, Changeable.some).item() == k
    for clock in (datetime.datetime, datetime, time.time, os.environ, Frozen):
        told = gradus.grad(lambda x, o: x * 1.0)
        assert told(2.0, clock).item() == 1.0 and told._known == 0
        assert gradus.grad(lambda x: x if clock else x).direct  # noqa: B023
    noise = gradus.grad(lambda x, r: (x * r.normal(size=2)).sum())
    given, expected = np.random.default_rng(0), np.random.default_rng(0)
    for _ in range(2):
        np.testing.assert_array_equal(noise(np.ones(2), given).numpy(), expected.normal(size=2))


def test_functions_among_arguments_may_change():
    k, holder = 1.0, [1.0]
    g = gradus.grad(lambda x, h: h(x))
    by_number, by_list = lambda x: x * k, lambda x: x * holder[0]
    for now in (1.0, 3.0, 2.0):
        k = holder[0] = now
        assert g(2.0, by_number).item() == now and g(2.0, by_list).item() == now
        by_number.attribute = now
        assert gradus.grad(lambda x, h: x * h.attribute)(2.0, by_number).item() == now
    attribute = gradus.grad(lambda x, h: x * h.attribute)
    for now in (1.0, 3.0):
        by_number.attribute = now
        assert attribute(2.0, by_number).item() == now
    known = g._known
    assert g(2.0, by_number).item() == 2.0 and g._known == known > 0


def test_functions_that_were_arguments_are_let_go():
    g, refs = gradus.grad(lambda x, h: h(x)), []
    g._most = 2
    for _ in range(4):
        h = eval("lambda x: x * 2.0")
        refs.append(weakref.ref(h))
        assert g(1.0, h).item() == 2.0
        del h
    gc.collect()
    assert refs[0]() is None and refs[3]() is not None


def test_attributes_and_defaults_of_functions_may_change():
    def helper(x, k=1.0, *, by=1.0):
        return x * k * by

    def f(x):
        return helper(x) * f.k

    f.k = 1.0
    g = gradus.grad(f)
    assert g(2.0).item() == 1.0 and not g.direct
    f.k = 3.0
    assert g(2.0).item() == 3.0
    helper.__defaults__ = (5.0,)
    assert g(2.0).item() == 15.0
    helper.__kwdefaults__["by"] = 2.0
    assert g(2.0).item() == 30.0
    helper.__kwdefaults__ = {"by": 1.0}
    assert g(2.0).item() == 15.0
    helper.__code__ = (lambda x, k, *, by: x + k).__code__
    assert g(2.0).item() == 3.0 and not g.direct
    f.k = [1.0]
    with pytest.raises(TypeError):
        g(2.0)
    assert g.direct


class Mode(enum.Enum):
    one = 1
    two = 2

    def listed(self, x):
        return (x * x).sum() * table[0] * self.value


class Choice(enum.Flag):
    a = 1
    b = 2


class Changeable(enum.Enum):
    some = [1.0]


def test_what_cannot_change_is_compiled_for_its_value():
    one_set = frozenset("a")
    fixed = [
        (lambda: "text", "other"),
        (lambda: (1, "a", (2.5, None)), (1, "a", (2.5, False))),
        (lambda: 10**30, 10**30 + 1),
        (lambda: complex(0.0, 0.0), complex(0.0, -0.0)),
        (lambda: b"bytes" * int("2"), b"others"),
        (lambda: range(1000, 2000), range(1000, 2001)),
        (lambda: {("a", 1000 * int("1")): 1}, {("a", 1001): 1}),
        (lambda: Frozen(0.0), Frozen(-0.0)),
        (lambda: Frozen(3.0, Frozen(1.0)), Frozen(3.0, Frozen(2.0))),
        (lambda: Frozen(3.0, (1, "a")), Frozen(3.0, (1.0, "a"))),
        (lambda: Mode.one, Mode.two),
        (lambda: Choice.a | Choice.b, Choice.b),
        (lambda: (Layer(1, Mode.one), one_set), (Layer(1, Mode.two), frozenset("a"))),
        (lambda: np.dtype("f4"), np.dtype("f8")),
        (lambda: gradus.DType.f32, gradus.DType.f64),
        (lambda: np.float32, np.float64),
        (lambda: energy, field),
        (lambda: float("nan"), -0.0),
        (lambda: ..., NotImplemented),
    ]
    for make, other in fixed:
        g = gradus.grad(lambda x, o: x * 2.0)
        for _ in range(3):
            made = make()
            assert g(2.0, made).item() == 2.0
        assert g._known == 1, made
        g(2.0, other)
        assert g._known == 2, other


def test_attributes_of_enums_are_read_anew():
    class Scaled(enum.Enum):
        one = 1

    Scaled.one.scale = 2.0
    g = gradus.grad(lambda x, m: x * x * m.scale)
    assert g(3.0, Scaled.one).item() == 12.0
    Scaled.one.scale = 5.0
    assert g(3.0, Scaled.one).item() == 30.0


def test_methods_of_frozen_arguments(rng, monkeypatch):
    x, by_fields, by_list = rng.normal(size=2), *map(gradus.grad, (
        lambda x, o: o.loss(x), lambda x, o: o.listed(x)
    ))
    for k in (1.0, 2.0):
        table[0] = k
        np.testing.assert_allclose(by_list(x, Frozen(7.0)).numpy(), 2 * k * x, rtol=1e-14)
        np.testing.assert_allclose(by_list(x, Mode.two).numpy(), 4 * k * x, rtol=1e-14)
        np.testing.assert_allclose(by_fields(x, Frozen(3.0)).numpy(), 6 * x, rtol=1e-14)
    assert by_list._known == 0 and by_fields._known == 1
    monkeypatch.setattr(Frozen, "loss", lambda self, x: x.sum())
    np.testing.assert_array_equal(by_fields(x, Frozen(3.0)).numpy(), np.ones(2))


def test_who_decides_by_values_is_called_anew(rng):
    g = gradus.grad(lambda x: x * x if x > 0 else x * 3.0)
    for _ in range(2):
        assert g(2.0).item() == 4.0 and g(-2.0).item() == 3.0
    with pytest.raises(gradus.Error, match="reads back"):
        gradus.grad(gradus.function(lambda x: x if x > 0 else -x))(2.0)


def test_wrappers_do_not_share_derivatives(rng):
    import functools

    x = rng.normal(size=2)
    first = gradus.hvp(energy, x, x)

    @functools.wraps(energy)
    def doubled(x):
        return energy(x) * 2.0

    np.testing.assert_allclose(gradus.hvp(doubled, x, x).numpy(), 2 * first.numpy(), rtol=1e-13)


def test_derivatives_go_with_their_function(rng):
    def make():
        def f(x):
            return energy(x)

        gradus.hvp(f, rng.normal(size=2), rng.normal(size=2))
        return weakref.ref(f)

    f = make()
    gc.collect()
    assert f() is None


def test_has_aux(rng):
    x = rng.normal(size=3)

    def f(x):
        y = ops.tanh(x)
        return (y * x).sum(), {"y": y, "n": 3}

    want = central_difference(np_energy, x)
    g = gradus.grad(f, has_aux=True)
    both = gradus.value_and_grad(f, has_aux=True)
    for call in (lambda h: h(x), lambda h: gradus.function(h)(x)):
        for _ in range(2):
            d, aux = call(g)
            np.testing.assert_allclose(d.numpy(), want, atol=1e-8)
            np.testing.assert_allclose(aux["y"].numpy(), np.tanh(x), rtol=1e-13)
            assert aux["n"] == 3 and not aux["y"].requires_grad
            (value, aux), d = call(both)
            np.testing.assert_allclose(value.item(), np_energy(x), rtol=1e-13)
            np.testing.assert_allclose(d.numpy(), want, atol=1e-8)
    with pytest.raises(gradus.Error, match="value, aux"):
        gradus.grad(energy, has_aux=True)(x)


def test_vjp(rng):
    x, w = rng.normal(size=(2, 3)), rng.normal(size=(3, 2))
    u, v = rng.normal(size=(2, 2)), rng.normal()

    def f(p, w):
        y = ops.tanh(p["x"] @ w)
        return {"y": y, "s": y.sum()}

    def by(x, w):
        y = np.tanh(x @ w)
        return (y * u).sum() + y.sum() * v

    value, pullback = gradus.vjp(f, {"x": x}, w)
    np.testing.assert_allclose(value["y"].numpy(), np.tanh(x @ w), rtol=1e-13)
    for _ in range(2):
        dp, dw = pullback({"y": u, "s": np.array(v)})
        np.testing.assert_allclose(dp["x"].numpy(), central_difference(lambda a: by(a, w), x), atol=1e-8)
        np.testing.assert_allclose(dw.numpy(), central_difference(lambda a: by(x, a), w), atol=1e-8)

    @gradus.function
    def traced(x, w, u):
        value, pullback, aux = gradus.vjp(lambda x: (ops.tanh(x @ w), x * 2), x, has_aux=True)
        return pullback(u)[0], aux

    dx, aux = traced(x, w, u)
    want = central_difference(lambda a: (np.tanh(a @ w) * u).sum(), x)
    np.testing.assert_allclose(dx.numpy(), want, atol=1e-8)
    np.testing.assert_array_equal(aux.numpy(), 2 * x)


def test_trees_and_argnums(rng):
    p = Layer(rng.normal(size=(2, 2)), rng.normal(size=2))
    x = rng.normal(size=2)

    def f(p, x):
        return ops.tanh(p.w @ x + p.b)

    def np_f(w, b, x):
        return np.tanh(w @ x + b)

    def rows(g, a):
        return np.array([central_difference(lambda z: g(z)[i], a) for i in range(2)])

    j = gradus.jacobian(f, p, x)
    np.testing.assert_allclose(j.w.numpy(), rows(lambda w: np_f(w, p.b, x), p.w), atol=1e-8)
    np.testing.assert_allclose(j.b.numpy(), rows(lambda b: np_f(p.w, b, x), p.b), atol=1e-8)
    jp, jx = gradus.jacobian(f, p, x, argnums=(0, 1))
    np.testing.assert_allclose(jx.numpy(), rows(lambda a: np_f(p.w, p.b, a), x), atol=1e-8)
    np.testing.assert_array_equal(jp.w.numpy(), j.w.numpy())
    of_tree = gradus.jacobian(lambda x: {"a": x * x, "b": (x.sum(), x[0])}, x)
    np.testing.assert_allclose(of_tree["a"].numpy(), np.diag(2 * x), rtol=1e-13)
    assert of_tree["b"][0].tolist() == [1, 1] and of_tree["b"][1].tolist() == [1, 0]

    def g(p, x):
        return (f(p, x) ** 2).sum()

    h = gradus.hessian(g, p, x)
    want = second(lambda b: (np_f(p.w, b, x) ** 2).sum(), p.b)
    np.testing.assert_allclose(h.b.b.numpy(), want, atol=1e-5)
    assert h.w.b.shape == (2, 2, 2) and h.b.w.shape == (2, 2, 2)
    np.testing.assert_allclose(
        gradus.laplacian(g, p, x, argnums=1).item(),
        np.trace(second(lambda a: (np_f(p.w, p.b, a) ** 2).sum(), x)),
        atol=1e-5,
    )
    assert gradus.hessian(lambda a, b: (a * 3.0).sum(), x, x, argnums=1).tolist() == [[0, 0], [0, 0]]
    assert gradus.hvp(g, (p, x), (p, x))[0].w.shape == (2, 2)
    with pytest.raises(gradus.Error, match="argument 3"):
        gradus.jacobian(f, p, x, argnums=3)


@pytest.mark.parametrize("wrap", [lambda f: f, gradus.function])
def test_within_a_recording(rng, wrap):
    """Each of them is a part of what is recorded around it, with what that closes over."""
    x, u, c = (rng.normal(size=3) for _ in range(3))

    def f(x, u, c):
        e = wrap(lambda z: (ops.tanh(z * c) * z).sum())
        y, dy = gradus.jvp(e, x, u)
        out, along = gradus.jvp(lambda z: {"a": z * z * c, "n": ops.argmax(z)}, x, u)
        assert along["n"] is None
        return {
            "jvp": dy,
            "value": y,
            "tree": along["a"],
            "hvp": gradus.hvp(e, x, u),
            "jacobian": gradus.jacobian(lambda z: ops.sin(z) * z[0] * c, x),
            "hessian": gradus.hessian(e, x),
            "laplacian": gradus.laplacian(e, x),
        }

    got = gradus.function(f, order=1)(x, u, c)

    def np_e(z):
        return (np.tanh(z * c) * z).sum()

    H = second(np_e, x)
    np.testing.assert_allclose(got["value"].item(), np_e(x), rtol=1e-12)
    np.testing.assert_allclose(got["jvp"].item(), central_difference(np_e, x) @ u, atol=1e-7)
    np.testing.assert_allclose(got["tree"].numpy(), 2 * x * u * c, rtol=1e-12)
    np.testing.assert_allclose(got["hvp"].numpy(), H @ u, atol=1e-5)
    np.testing.assert_allclose(got["hessian"].numpy(), H, atol=1e-5)
    np.testing.assert_allclose(got["laplacian"].item(), np.trace(H), atol=1e-5)
    J = np.diag(np.cos(x) * x[0] * c) + np.outer(np.sin(x) * c, [1, 0, 0])
    np.testing.assert_allclose(got["jacobian"].numpy(), J, rtol=1e-12)
    program = gradus.trace(lambda x, u, c: f(x, u, c)["hvp"].sum(), x, u, c)
    assert gradus.gradcheck(program, 1)


def test_tensors_that_require_gradients_lead_on(rng):
    x = rng.normal(size=3)
    X = gradus.tensor(x, requires_grad=True)
    (d,) = gradus.gradients(gradus.hvp(energy, X, np.ones(3)).sum(), X)
    third = central_difference(lambda a: second(np_energy, a).sum(), x, 1e-3)
    np.testing.assert_allclose(d.numpy(), third, atol=1e-4)
    (d,) = gradus.gradients(gradus.laplacian(energy, X), X)
    third = central_difference(lambda a: np.trace(second(np_energy, a)), x, 1e-3)
    np.testing.assert_allclose(d.numpy(), third, atol=1e-4)


# ---- At many points ----


def potential(p, x):
    return (ops.tanh(p.w @ x + p.b) * p.b).sum() * (x * x).sum()


def np_potential(w, b, x):
    return (np.tanh(w @ x + b) * b).sum() * (x * x).sum()


def test_matrices_at_points_are_those_of_each_point(rng):
    p = Layer(rng.normal(size=(5, 3)), rng.normal(size=5))
    for points in (1, 4, 7):
        xs = rng.normal(size=(points, 3))
        for of in (gradus.laplacian, gradus.jacobian, gradus.hessian):
            got = of(potential, p, xs, argnums=1, mapped=1)
            assert got.tolist() == [of(potential, p, x, argnums=1).tolist() for x in xs]
        by_weights = gradus.jacobian(potential, p, xs, mapped=1)
        for i, x in enumerate(xs):
            assert by_weights.w[i].tolist() == gradus.jacobian(potential, p, x).w.tolist()
    np.testing.assert_allclose(
        gradus.laplacian(potential, p, xs, argnums=1, mapped=1).numpy(),
        [np.trace(second(lambda a: np_potential(*p, a), x)) for x in xs],
        atol=1e-5,
    )


def test_points_are_of_several_arguments_and_may_be_none(rng):
    xs, ts = rng.normal(size=(4, 3)), rng.normal(size=4)

    def f(x, t, c):
        return (ops.sin(x * t) * c).sum()

    got = gradus.laplacian(f, xs, ts, 2.0, argnums=(0, 1), mapped=(0, 1))
    for i in range(4):
        want = gradus.laplacian(f, xs[i], ts[i], 2.0, argnums=(0, 1))
        assert [g[i].item() for g in got] == [w.item() for w in want]
    assert gradus.laplacian(f, xs[:0], ts[:0], 2.0, mapped=(0, 1)).shape == (0,)
    no_path = gradus.laplacian(lambda x, y: (x * x).sum(), xs, ts, argnums=1, mapped=(0, 1))
    assert no_path.tolist() == [0, 0, 0, 0]
    assert gradus.jacobian(lambda x, y: x.sum(), xs, xs, argnums=1, mapped=(0, 1)).shape == (4, 3)
    with pytest.raises(gradus.Error, match="dimension of the points in front"):
        gradus.laplacian(f, xs, ts[:3], 2.0, mapped=(0, 1))
    with pytest.raises(gradus.Error, match="dimension of the points in front"):
        gradus.laplacian(f, xs, 1.0 * ts[0], 2.0, mapped=(0, 1))
    with pytest.raises(gradus.Error, match="argument 5"):
        gradus.laplacian(f, xs, ts, 2.0, mapped=5)


def test_a_loss_of_laplacians_at_points_has_gradients(rng):
    """Of every order, compiled and by the engine; a loop over the points gives the same."""
    w, b, xs = rng.normal(size=(5, 3)), rng.normal(size=5), rng.normal(size=(4, 3))

    def miss(w, b, xs):
        found = gradus.laplacian(potential, Layer(w, b), xs, argnums=1, mapped=1)
        return (found**2).mean()

    def by_loop(w, b, xs):
        each = [gradus.laplacian(potential, Layer(w, b), xs[i], argnums=1) for i in range(4)]
        return (ops.stack(*each, dim=0) ** 2).mean()

    got, want = (gradus.grad(f, argnums=(0, 1, 2))(w, b, xs) for f in (miss, by_loop))
    for g, v in zip(got, want):
        np.testing.assert_allclose(g.numpy(), v.numpy(), rtol=1e-11, atol=1e-11)
    u = rng.normal(size=5)
    v, us = gradus.tensor(w), gradus.tensor(xs)
    along = [gradus.hvp(lambda b, f=f: f(v, b, us), b, u).numpy() for f in (miss, by_loop)]
    np.testing.assert_allclose(*along, rtol=1e-10)
    W, B = (gradus.tensor(a, requires_grad=True) for a in (w, b))
    for g, v in zip(gradus.gradients(miss(W, B, xs), [W, B]), want):
        np.testing.assert_allclose(g.numpy(), v.numpy(), rtol=1e-11, atol=1e-11)
    assert gradus.gradcheck(gradus.trace(miss, w, b, xs), 2)


def test_what_a_function_reads_beside_its_points_has_gradients(rng):
    xs, c = rng.normal(size=(4, 3)), rng.normal(size=3)

    def miss(c):
        return (gradus.laplacian(lambda x: (ops.sin(x) * c).sum(), xs, mapped=0) ** 2).sum()

    found, slope = gradus.value_and_grad(miss)(c)
    np.testing.assert_allclose(found.item(), ((np.sin(xs) @ c) ** 2).sum(), rtol=1e-13)
    np.testing.assert_allclose(slope.numpy(), 2 * np.sin(xs).T @ (np.sin(xs) @ c), rtol=1e-13)
    leaf = gradus.tensor(c, requires_grad=True)
    (by_engine,) = gradus.gradients(miss(leaf), leaf)
    np.testing.assert_allclose(by_engine.numpy(), slope.numpy(), rtol=1e-13)
    assert gradus.gradcheck(gradus.trace(miss, c), 2)


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
def test_a_pool_of_zeros_has_no_derivative_either_way(p):
    x, along = np.zeros((1, 1, 2, 4)), np.ones((1, 1, 2, 4))
    x[..., 2:] = 1
    pool = lambda x: ops.lp_pool2d(x, p, [2, 2]).sum()  # noqa: E731
    slope = np.asarray(gradus.grad(pool)(x))
    assert not slope[..., :2].any() and slope[..., 2:].all()
    np.testing.assert_allclose(gradus.jvp(pool, x, along)[1].item(), slope.sum(), rtol=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shapes", [((1, 4), (4,), (2, 1)), ((4,), (2, 4), (4,)), ((1,), (3,), None)])
def test_bce_by_targets_and_weights_of_more_elements(rng, shapes, reduction):
    given = [rng.normal(size=s) for s in shapes if s is not None]

    def loss(*x):
        return ops.sin(ops.bce(*map(ops.sigmoid, x), reduction=reduction)).sum()

    slopes = gradus.grad(loss, argnums=tuple(range(len(given))))(*given)
    assert [g.shape for g in slopes] == [x.shape for x in given]
    assert gradus.gradcheck(gradus.trace(loss, *given), order=2)
