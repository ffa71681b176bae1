"""Derivatives at points that are constants, of functions that read what is differentiated around them."""

import numpy as np
import pytest

import gradus
from gradus import grad, ops
from conftest import central_difference

# Each gives 4 x = d/dq (x q^2) at q = 2, by a derivative at a constant.
two, three = np.array(2.0), np.array([2.0, 2.0, 2.0])
slopes = {
    "grad": lambda x: grad(lambda q: x * q * q)(2.0),
    "grad of an array": lambda x: grad(lambda q: x * q * q)(two),
    "grad of a tensor": lambda x: grad(lambda q: x * q * q)(gradus.tensor(2.0)),
    "grad by place": lambda x: grad(lambda x, q: x * q * q, argnums=1)(x, two),
    "grad of grad": lambda x: grad(grad(lambda q: x * q * q * q / 3.0))(2.0),
    "grad of a tree": lambda x: grad(lambda p: x * p["q"] * p["r"])({"q": two, "r": 2 * two})["q"],
    "value_and_grad": lambda x: gradus.value_and_grad(lambda q: x * q * q)(2.0)[0],
    "value_and_grad, the slope": lambda x: gradus.value_and_grad(lambda q: x * q * q)(2.0)[1],
    "aux": lambda x: grad(lambda q: (x * q, {"a": 2.0 * x * q}), has_aux=True)(2.0)[1]["a"],
    "aux alone": lambda x: grad(lambda q: (q * q, {"a": 4.0 * x}), has_aux=True)(2.0)[1]["a"],
    "value beside aux": lambda x: gradus.value_and_grad(lambda q: (x * q * q, q), has_aux=True)(2.0)[0][0],
    "vjp": lambda x: gradus.vjp(lambda q: x * q * q, 2.0)[0],
    "pullback": lambda x: gradus.vjp(lambda q: x * q * q, 2.0)[1](1.0)[0],
    "pullback, by its cotangent": lambda x: gradus.vjp(lambda q: q * q, 2.0)[1](x)[0],
    "vjp's aux": lambda x: gradus.vjp(lambda q: (q, 4.0 * x), 2.0, has_aux=True)[2],
    "jvp": lambda x: gradus.jvp(lambda q: x * q * q, two, np.array(1.0))[1],
    "jvp's value": lambda x: gradus.jvp(lambda q: x * q * q, two, np.array(1.0))[0],
    "jvp, by its tangent": lambda x: gradus.jvp(lambda q: q * q, two, x)[1],
    "hvp": lambda x: gradus.hvp(lambda q: x * q * q, two, two),
    "jacobian": lambda x: gradus.jacobian(lambda q: x * q * q, three).sum() / 3.0,
    "jacobian by place": lambda x: gradus.jacobian(lambda x, q: x * q * q, x, two, argnums=1),
    "hessian": lambda x: gradus.hessian(lambda q: x * (q**3).sum(), three).sum() / 9.0,
    "laplacian": lambda x: gradus.laplacian(lambda q: x * (q**3).sum(), three) / 9.0,
    "laplacian at points": lambda x: gradus.laplacian(lambda q: x * (q**3).sum(), three[None], mapped=0)[0] / 9.0,
    "a function": lambda x: grad(gradus.function(lambda q, x: x * q * q, order=4))(2.0, x),
    "vmap of grad": lambda x: gradus.vmap(lambda t: grad(lambda q: x * q * q)(t))(three).sum() / 3.0,
    "vmap": lambda x: gradus.vmap(lambda t: grad(lambda q: x * q * q * t)(2.0))(np.ones(3)).sum() / 3.0,
    "scan": lambda x: gradus.scan(lambda c, t: (grad(lambda q: c * q * q)(2.0), t), x, np.ones(1))[0],
    "scan, at a slice": lambda x: gradus.scan(lambda c, t: (grad(lambda q: c * q * q)(t), t), x, three[:1])[0],
    "scan, what it reads": lambda x: gradus.scan(lambda c, t: (grad(lambda q: x * q * q)(2.0), t), 0.0, three)[0],
    "scan, an array": lambda x: gradus.scan(
        lambda c, t: (grad(lambda q: x * (q * q).sum())(three).sum() / 3.0, t), 0.0, three
    )[0],
    "map": lambda x: gradus.map(lambda t: grad(lambda q: x * q * q * t)(2.0), np.ones(3)).sum() / 3.0,
    "fori_loop": lambda x: gradus.fori_loop(0, 2, lambda i, c: grad(lambda q: c * q * q)(1.0), x),
    "cond": lambda x: gradus.cond(x > -9, lambda x: grad(lambda q: x * q * q)(2.0), lambda x: x, x),
    "root": lambda x: gradus.root(lambda y: grad(lambda q: x * q * q)(2.0) - y, 1.0),
}


@pytest.mark.parametrize("name", slopes)
def test_a_constant_point_within_a_derivative(name):
    """Whether it runs as it is written, or as a part of a program, and of every order."""
    f = slopes[name]
    for x in (3.0, -0.5):
        alone = f(gradus.tensor(x))
        assert alone.item() == pytest.approx(4 * x, rel=1e-12) and not alone.requires_grad
        assert grad(f)(x).item() == pytest.approx(4, rel=1e-12) and not grad(f)(x).requires_grad
        assert grad(lambda x: f(x) if x > -9 else x)(x).item() == pytest.approx(4, rel=1e-12)  # by values
        value, slope = gradus.value_and_grad(lambda x: f(x) ** 2)(x)
        assert (value.item(), slope.item()) == pytest.approx((16 * x * x, 32 * x), rel=1e-12)
        assert grad(grad(lambda x: f(x) ** 3))(x).item() == pytest.approx(384 * x, rel=1e-12)
        leaf = gradus.tensor(x, requires_grad=True)
        (d,) = gradus.gradients(f(leaf), leaf)
        assert d.item() == pytest.approx(4, rel=1e-12)
        with gradus.no_grad():
            alone = f(leaf)
        assert alone.item() == pytest.approx(4 * x, rel=1e-12) and not alone.requires_grad


@pytest.mark.parametrize("name", slopes)
def test_a_constant_point_within_a_recording(name):
    f = slopes[name]
    g = gradus.function(f, order=2)
    slope = gradus.function(grad(lambda x: f(x) ** 2))
    for x in (3.0, -0.5, 3.0):
        assert g(np.array(x)).item() == pytest.approx(4 * x, rel=1e-12)
        assert slope(np.array(x)).item() == pytest.approx(32 * x, rel=1e-12)
        leaf = gradus.tensor(x, requires_grad=True)
        (d,) = gradus.gradients(g(leaf) ** 3, leaf, create_graph=True)
        (d2,) = gradus.gradients(d, leaf)
        assert (d.detach().item(), d2.item()) == pytest.approx((192 * x * x, 384 * x), rel=1e-12)
        assert gradus.jvp(g, np.array(x), np.array(1.0))[1].item() == pytest.approx(4, rel=1e-12)


def test_a_constant_point_in_the_body_of_a_while_loop():
    """Its gradient is taken outside of a recording, or of a function that has it."""

    def f(x):
        step = lambda c: (c[0] + 1, grad(lambda q: x * q * q)(c[1]))  # noqa: E731
        return gradus.while_loop(lambda c: c[0] < 2, step, (0, 1.0))[1]  # 4 x^2

    for x in (3.0, -0.5):
        assert grad(f)(x).item() == pytest.approx(8 * x, rel=1e-12)
        leaf = gradus.tensor(x, requires_grad=True)
        (d,) = gradus.gradients(gradus.function(f)(leaf), leaf)
        assert d.item() == pytest.approx(8 * x, rel=1e-12)


def u(w, t):
    return (w["v"] * ops.tanh(w["w"] * t + w["b"])).sum()


def np_u(v, w, b, t):
    return (v * np.tanh(w * t + b)).sum()


def residual(w, t, order):
    """Of u'' + u, or u' + u, at one time."""
    slope = grad(u, argnums=1)
    return (grad(slope, argnums=1) if order == 2 else slope)(w, t) + u(w, t)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("times", [[0.5], [0.5, -1.0, 2.0]])
def test_a_loss_of_derivatives_at_constant_times(rng, order, times):
    """As a network is trained on a differential equation."""
    w = {k: rng.normal(size=4) for k in "vwb"}
    at_times = np.array(times)

    def np_residual(v, w, b, t):
        h = np.tanh(w * t + b)
        first = v * w * (1 - h * h)
        return (first if order == 1 else -2 * w * h * first).sum() + np_u(v, w, b, t)

    def np_loss(p):
        return sum(np_residual(*p, t) ** 2 for t in times) / len(times)

    def by_loop(w):
        return sum(residual(w, t, order) ** 2 for t in times) / len(times)

    def by_closures(w):
        at = lambda t: u(w, t)  # noqa: E731
        slope = grad(at) if order == 1 else grad(lambda t: grad(at)(t))
        return sum((slope(np.array(t)) + at(t)) ** 2 for t in times) / len(times)

    def by_tangents(w):
        at, one = lambda t: u(w, t), np.array(1.0)  # noqa: E731
        slope = lambda t: gradus.jvp(at, t, one)[1] if order == 1 else gradus.hvp(at, t, one)  # noqa: E731
        return sum((slope(np.array(t)) + at(t)) ** 2 for t in times) / len(times)

    def by_map(w):
        return (gradus.map(lambda t: residual(w, t, order), at_times) ** 2).mean()

    def by_vmap(w):
        return (gradus.vmap(lambda t: residual(w, t, order))(at_times) ** 2).mean()

    def by_points(w):
        if order == 1:
            found = gradus.jacobian(u, w, at_times, argnums=1, mapped=1)
        else:
            found = gradus.laplacian(lambda t: u(w, t), at_times, mapped=0)
        return ((found + gradus.vmap(lambda t: u(w, t))(at_times)) ** 2).mean()

    def by_aux(w):
        f = (lambda t: u(w, t)) if order == 1 else grad(lambda t: u(w, t))
        slope = gradus.value_and_grad(lambda t: (f(t), {"twice": 2.0 * u(w, t)}), has_aux=True)
        found = [slope(t) for t in times]
        return sum((d + aux["twice"] / 2.0) ** 2 for (_, aux), d in found) / len(times)

    for loss in (by_loop, by_closures, by_tangents, by_map, by_vmap, by_points, by_aux):
        compiled = gradus.function(gradus.value_and_grad(loss))
        for scale in (1.0, 0.5):
            p = np.array([scale * w[k] for k in "vwb"])
            tree = dict(zip("vwb", p))
            for value, slopes in (gradus.value_and_grad(loss)(tree), compiled(tree)):
                assert value.item() == pytest.approx(np_loss(p), rel=1e-10), loss.__name__
                np.testing.assert_allclose(
                    [slopes[k].numpy() for k in "vwb"], central_difference(np_loss, p),
                    atol=1e-6, err_msg=loss.__name__,
                )
        assert gradus.gradcheck(gradus.trace(loss, w), 1)


def test_derivatives_within_derivatives_within_derivatives():
    """Each by another variable: x^2 y^3 z^4 at x = 2, y = 3, z = 5, once by each."""
    f = lambda x: grad(lambda y: grad(lambda z: x**2 * y**3 * z**4)(5.0))(3.0)  # noqa: E731
    want = 2 * 2 * 3 * 9 * 4 * 125
    assert grad(f)(2.0).item() == pytest.approx(want)
    assert gradus.function(grad(f))(np.array(2.0)).item() == pytest.approx(want)
    assert grad(lambda x: f(x) if x > 0 else x)(2.0).item() == pytest.approx(want)
    assert gradus.hessian(f, 2.0).item() == pytest.approx(want / 2)
    assert gradus.jvp(f, np.array(2.0), np.array(10.0))[1].item() == pytest.approx(10 * want)


def test_what_is_read_beside_a_function_leads_on(rng):
    """From jvp and the others, of a function that reads a tensor that requires gradients."""
    w, v = rng.normal(size=3), rng.normal(size=3)
    x = gradus.tensor(rng.normal(size=3), requires_grad=True)
    a, y = x.detach().numpy(), x * 2.0
    cube = lambda q: (q * q * q * x).sum()  # noqa: E731
    value, slope = gradus.jvp(cube, w, v)
    found = {
        "value": (value, w**3),
        "jvp": (slope, 3 * w**2 * v),
        "hvp": (gradus.hvp(cube, w, v).sum(), 6 * w * v),
        "hessian": (gradus.hessian(cube, w).sum(), 6 * w),
        "laplacian": (gradus.laplacian(cube, w), 6 * w),
        "jacobian": (gradus.jacobian(lambda q: q * q * x, w).sum(), 2 * w),
        "of what is made of it": (gradus.jacobian(lambda q: q * q * y, w).sum(), 4 * w),
    }
    for name, (got, by_x) in found.items():  # each is linear in x
        np.testing.assert_allclose(got.detach().item(), by_x @ a, rtol=1e-12, err_msg=name)
        (d,) = gradus.gradients(got, x, keep_graph=True)
        np.testing.assert_allclose(d.numpy(), by_x, rtol=1e-12, err_msg=name)
    with gradus.no_grad():
        assert not gradus.jvp(cube, w, v)[1].requires_grad and not gradus.hessian(cube, w).requires_grad
    with pytest.raises(gradus.Error, match="make it one, or detach it"):
        gradus.jvp(gradus.function(cube), w, v)  # what a gradus.function reads is constant
    with pytest.raises(gradus.Error, match="make it one, or detach it"):
        gradus.function(lambda q: grad(cube)(q))(w)


def test_nothing_is_kept_where_nobody_asks_further(rng):
    x, data = rng.normal(size=3), [2.0]

    def f(x):
        y = x * data[0]  # a list: the function itself runs
        return (y * y).sum(), {"y": y}

    for made in (
        grad(f, has_aux=True)(x),
        gradus.value_and_grad(f, has_aux=True)(x),
        gradus.value_and_grad(lambda x: grad(lambda q: f(x * q)[0])(3.0))(x),
        gradus.vjp(f, x, has_aux=True)[::2],
        gradus.vjp(lambda x: f(x)[0], x)[1](1.0),
        gradus.jvp(lambda x: f(x)[0], x, x),
    ):
        leaves, _ = gradus._trees.flatten(made)
        assert leaves and not any(t.requires_grad for _, t in leaves)


def test_a_graph_that_aux_shares_with_the_value_is_kept():
    x = gradus.tensor(3.0, requires_grad=True)

    def f(q):
        y = ops.exp(q)
        return y * y, y * x

    d, aux = grad(f, has_aux=True)(2.0)
    assert d.item() == pytest.approx(2 * np.exp(4)) and aux.requires_grad
    aux.backward()
    assert x.grad.item() == pytest.approx(np.exp(2))
