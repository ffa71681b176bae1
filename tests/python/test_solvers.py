"""Roots, linear systems by products, and differential equations."""

import numpy as np
import pytest

import gradus
from gradus import ops

same = np.testing.assert_allclose


def kepler(x, m, e):
    return x - e * ops.sin(x) - m


# SPEC L10
def test_root_and_its_derivatives():
    def solved(m, e):
        return gradus.root(kepler, m, m, e, tolerance=1e-14)

    m, e = np.array(0.8), np.array(0.3)
    for x in (solved(m, e), gradus.function(solved)(m, e)):
        x = x.item()
        same(x - 0.3 * np.sin(x) - 0.8, 0, atol=1e-14)
    slope = 1 / (1 - 0.3 * np.cos(x))
    first = gradus.grad(solved, (0, 1))
    dm, de = first(m, e)
    same(dm.item(), slope, rtol=1e-13)
    same(de.item(), np.sin(x) * slope, rtol=1e-13)
    second = gradus.grad(gradus.grad(solved))(m, e)
    same(second.item(), -0.3 * np.sin(x) * slope**3, rtol=1e-12)


def test_root_of_a_vector_reads_what_is_around_it():
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(4, 4)) + 4 * np.eye(4), rng.normal(size=4)

    def loss(a, b):
        x = gradus.root(lambda x: a @ x - b, np.zeros(4))
        return (x * x).sum()

    x = np.linalg.solve(a, b)
    da, db = gradus.grad(loss, (0, 1))(a, b)
    adjoint = np.linalg.solve(a.T, 2 * x)
    same(db.numpy(), adjoint, rtol=1e-10)
    same(da.numpy(), -np.outer(adjoint, x), rtol=1e-10)


def test_batches_of_roots_and_linear_systems():
    a = np.array([2.0, 3.0, 0.7])
    cube = lambda a: gradus.root(lambda x, a: x * x * x - a, np.array(1.0), a)  # noqa: E731
    same(np.asarray(gradus.vmap(cube)(a)), a ** (1 / 3), rtol=1e-7)
    solved = lambda a, b: gradus.linear_solve(lambda x: a * x, b)  # noqa: E731
    rng = np.random.default_rng(4)
    scales, sides = rng.uniform(1, 2, size=(3, 2)), rng.normal(size=(3, 2))
    same(np.asarray(gradus.vmap(solved)(scales, sides)), sides / scales, rtol=1e-9)
    same(np.asarray(gradus.jacobian(lambda b: solved(scales[0], b), sides[0])), np.diag(1 / scales[0]), rtol=1e-9)
    energy = lambda b: (solved(scales[0], b) ** 2).sum()  # noqa: E731
    same(np.asarray(gradus.hessian(energy, sides[0])), np.diag(2 / scales[0] ** 2), rtol=1e-9)


def test_roots_refuse():
    with pytest.raises(gradus.errors.Error, match="50"):
        gradus.root(lambda x: x * x + 1.0, np.array(0.3))
    with pytest.raises(gradus.errors.Error, match="does not depend"):
        gradus.root(lambda x: x.detach() + 1.0, np.array(0.3))
    with pytest.raises(gradus.errors.Error, match="must have one type"):
        gradus.root(lambda x: x.sum(), np.ones(3))
    with pytest.raises(gradus.errors.Error, match="number or a vector"):
        gradus.root(lambda x: x, np.ones((2, 2)))


# SPEC L10
def test_linear_solve_by_products():
    rng = np.random.default_rng(4)
    w, b = rng.normal(size=(5, 3)), rng.normal(size=3)

    def product(x, w, k):
        return w.T @ (w @ x) + k * x

    def loss(b, w, k):
        x = gradus.linear_solve(product, b, w, k, tolerance=1e-14)
        return (x * x * x).sum()

    def dense(b, w, k):
        x = ops.solve(w.T @ w + k * gradus.tensor(np.eye(3)), b)
        return (x * x * x).sum()

    at = b, w, np.array(0.7)
    same(loss(*at).item(), dense(*at).item(), rtol=1e-11)
    for ours, theirs in zip(gradus.grad(loss, (0, 1, 2))(*at), gradus.grad(dense, (0, 1, 2))(*at)):
        same(ours.numpy(), theirs.numpy(), rtol=1e-9)
    twice = lambda f: gradus.grad(lambda k: gradus.grad(f, 2)(b, w, k))(np.array(0.7)).item()  # noqa: E731
    same(twice(loss), twice(dense), rtol=1e-9)


def decay(y, t, k):
    return -k * y


def spring(y, t, k):
    return ops.stack([y[1], -k * y[0]], 0)


METHODS = [{"method": "rk4", "steps": 50}, {"method": "dopri5", "rtol": 1e-10, "atol": 1e-12}]


@pytest.mark.parametrize("how", METHODS, ids=lambda h: h["method"])
@pytest.mark.parametrize("recorded", [False, True])
def test_odes(how, recorded):
    run = gradus.function if recorded else lambda f: f
    ts, k = [0.0, 0.5, 2.0], np.array(1.3)
    ys = run(lambda y, k: gradus.odeint(decay, y, ts, k, **how))(np.array([1.0, 2.0]), k)
    same(ys.numpy(), np.exp(-1.3 * np.array(ts))[:, None] * [1.0, 2.0], rtol=1e-6)
    ys = run(lambda y, k: gradus.odeint(spring, y, ts, k, **how))(np.array([1.0, 0.0]), k)
    same(ys.numpy()[:, 0], np.cos(np.sqrt(1.3) * np.array(ts)), rtol=1e-6)


@pytest.mark.parametrize("how", METHODS, ids=lambda h: h["method"])
def test_odes_have_derivatives(how):
    def last(k):
        return gradus.odeint(decay, np.array(2.0), [0.0, 0.7, 1.5], k, **how)[2]

    k = np.array(0.9)
    y = 2 * np.exp(-0.9 * 1.5)
    same(gradus.grad(last)(k).item(), -1.5 * y, rtol=1e-6)
    same(gradus.grad(gradus.grad(last))(k).item(), 1.5**2 * y, rtol=1e-6)


def test_tolerances_are_held():
    errors = []
    for rtol in (1e-4, 1e-6, 1e-8):
        y = gradus.odeint(spring, np.array([1.0, 0.0]), [0.0, 10.0], 1.0, method="dopri5", rtol=rtol, atol=rtol)
        errors.append(abs(y.numpy()[1, 0] - np.cos(10.0)))
        assert errors[-1] < 50 * rtol
    assert errors[0] > 10 * errors[1] > 100 * errors[2]


def test_odes_refuse():
    y = np.array(1.0)
    with pytest.raises(gradus.errors.Error, match="stiff"):
        gradus.odeint(decay, y, [0.0, 1.0], 1e6, method="dopri5", max_steps=100)
    with pytest.raises(gradus.errors.Error, match="ascend; 1.0 comes after 2.0"):
        gradus.odeint(decay, y, [0.0, 2.0, 1.0], 1.0)
    with pytest.raises(gradus.errors.Error, match="the function gives"):
        gradus.odeint(lambda y, t: y.sum(), np.ones(2), [0.0, 1.0])
    with pytest.raises(gradus.errors.Error, match="'euler'"):
        gradus.odeint(decay, y, [0.0, 1.0], 1.0, method="euler")
    stiff = gradus.function(lambda y: gradus.odeint(decay, y, [0.0, 1.0], 1e6, method="dopri5", max_steps=100))
    assert np.isnan(stiff(y).numpy()[1])


def test_a_rejected_step_leaves_no_nan():
    """The first trials of it take a root of less than nothing."""

    def f(y, t):
        return (1.0 - ops.sqrt(y)) * ops.where(t < 20.0, 1.0, 0.0)

    def safe(y, t):
        return (1.0 - ops.sqrt(ops.where(y > 0.0, y, 1.0))) * ops.where(t < 20.0, 1.0, 0.0)

    def last(f, y):
        return gradus.odeint(f, y, [0.0, 5000.0], method="dopri5").sum()

    y0 = np.array([4.0])
    for order in (1, 2):
        ours, theirs = (lambda y, g=g: last(g, y) for g in (f, safe))
        for _ in range(order):
            ours, theirs = (gradus.grad(lambda y, h=h: h(y).sum()) for h in (ours, theirs))
        assert np.isfinite(ours(y0).item())
        same(ours(y0).item(), theirs(y0).item(), rtol=1e-6)
    y = gradus.tensor(y0)
    y.requires_grad = True
    last(f, y).backward()
    same(y.grad.item(), gradus.grad(lambda y: last(safe, y))(y0).item(), rtol=1e-6)


@pytest.mark.parametrize("method", ["rk4", "dopri5"])
def test_an_equation_of_nothing(method):
    ys = gradus.odeint(decay, np.zeros((0, 2)), [0.0, 1.0, 2.0], 1.0, method=method)
    assert ys.shape == (3, 0, 2)
