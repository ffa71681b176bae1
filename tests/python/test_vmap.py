"""Functions of one, for many at once."""

import numpy as np
import pytest

import gradus
from gradus import ops

same = np.testing.assert_allclose


def net(w, x):
    return ops.tanh(w @ x).sum() * x[0]


def each(f, *mapped):
    """The function, once for each slice."""
    rows = [np.asarray(f(*(gradus.tensor(m[i]) for m in mapped))) for i in range(len(mapped[0]))]
    return np.stack(rows)


def operands(rng, dtype=np.float64, points=5):
    return rng.normal(size=(4, 3)).astype(dtype), rng.normal(size=(points, 3)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_is_the_function_of_each_slice(rng, dtype):
    w, xs = operands(rng, dtype)
    mapped = gradus.vmap(net, in_axes=(None, 0))
    expected = each(lambda x: net(gradus.tensor(w), x), xs)
    for _ in range(3):  # the compiled program and its second run too
        got = mapped(w, xs)
        assert got.dtype == gradus.tensor(w).dtype and got.shape == (5,)
        same(np.asarray(got), expected, rtol=1e-12 if dtype == np.float64 else 1e-5)


def test_is_no_loop(rng):
    w, xs = operands(rng)
    for points in (5, 50):
        xs = rng.normal(size=(points, 3))
        program = gradus.trace(gradus.vmap(net, in_axes=(None, 0)), w, xs)
        assert str(program).count(" tanh(") == 1 and " scan(" not in str(program)


@pytest.mark.parametrize("size", [0, 1])
def test_none_and_one(rng, size):
    w, xs = operands(rng, points=size)
    got = gradus.vmap(net, in_axes=(None, 0))(w, xs)
    assert got.shape == (size,)
    if size:
        same(np.asarray(got), each(lambda x: net(gradus.tensor(w), x), xs), rtol=1e-12)


def test_axes(rng):
    a, b = rng.normal(size=(3, 5, 2)), rng.normal(size=(2, 5))
    f = lambda x, y: (x @ y, y * 2)  # noqa: E731
    got = gradus.vmap(f, in_axes=(1, -1), out_axes=(-1, 0))(a, b)
    expected = np.stack([a[:, i] @ b[:, i] for i in range(5)], 1)
    same(np.asarray(got[0]), expected, rtol=1e-12)
    same(np.asarray(got[1]), 2 * b.T, rtol=1e-12)


def test_trees_names_and_what_is_no_tensor(rng):
    w, xs = operands(rng)

    def f(params, x, scale, *, shift):
        return {"y": net(params["w"], x) * scale + params["b"] + shift}

    params = {"w": w, "b": rng.normal(size=5)}
    shift = rng.normal(size=5)
    got = gradus.vmap(f, in_axes=({"w": None, "b": 0}, 0, None))(params, xs, 3, shift=shift)
    each_y = each(lambda x: net(gradus.tensor(w), x), xs)
    same(np.asarray(got["y"]), each_y * 3 + params["b"] + shift, rtol=1e-12)


def test_a_result_that_no_slice_decides_is_repeated(rng):
    w, xs = operands(rng)
    got = gradus.vmap(lambda w, x: (w.sum(), x), in_axes=(None, 0))(w, xs)
    same(np.asarray(got[0]), np.full(5, w.sum()), rtol=1e-12)


def test_gradients_of_each_sample(rng):
    w, xs = operands(rng)
    per_sample = gradus.vmap(gradus.grad(net), in_axes=(None, 0))
    expected = each(lambda x: gradus.grad(net)(gradus.tensor(w), x), xs)
    for _ in range(2):
        same(np.asarray(per_sample(w, xs)), expected, rtol=1e-11)


def test_hessians_of_each_sample(rng):
    w, xs = operands(rng)
    f = lambda x: net(gradus.tensor(w), x)  # noqa: E731
    expected = each(lambda x: gradus.hessian(f, x), xs)
    same(np.asarray(gradus.vmap(lambda x: gradus.hessian(f, x))(xs)), expected, rtol=1e-10, atol=1e-12)
    nested = gradus.vmap(lambda x: gradus.grad(lambda z: gradus.grad(f)(z)[1])(x))(xs)
    same(np.asarray(nested), expected[:, 1], rtol=1e-10, atol=1e-12)


def test_derivatives_through_it(rng):
    """By arguments, and by what the function reads beside them; a first and a second time."""
    w, xs = operands(rng)
    whole = lambda w: gradus.vmap(lambda x: net(w, x))(gradus.tensor(xs)).sum()  # noqa: E731
    by_hand = lambda w: sum(net(w, gradus.tensor(x)) for x in xs)  # noqa: E731
    for f in (gradus.grad, lambda f: gradus.grad(lambda w: (gradus.grad(f)(w) ** 2).sum())):
        same(np.asarray(f(whole)(w)), np.asarray(f(by_hand)(w)), rtol=1e-10)

    def of_both(w, xs):
        return (gradus.vmap(net, in_axes=(None, 0))(w, xs) ** 3).sum()

    def of_each(w, xs):
        return sum(net(w, xs[i]) ** 3 for i in range(5))

    got, expected = (gradus.grad(f, argnums=(0, 1))(w, xs) for f in (of_both, of_each))
    for a, b in zip(got, expected):
        same(np.asarray(a), np.asarray(b), rtol=1e-10)
    report = gradus.trace(of_both, w, xs).gradcheck(2)
    assert report, report


def test_variables_lead_on(rng):
    w, xs = operands(rng)
    v = gradus.tensor(w)
    v.requires_grad = True
    y = gradus.vmap(net, in_axes=(None, 0))(v, xs).sum()
    (g,) = gradus.gradients(y, v)
    expected = gradus.grad(lambda w: sum(net(w, gradus.tensor(x)) for x in xs))(w)
    same(np.asarray(g), np.asarray(expected), rtol=1e-11)


def test_within_itself_and_within_a_function(rng):
    a, b = rng.normal(size=(3, 4)), rng.normal(size=(5, 4))
    dot = lambda x, y: (x * y).sum()  # noqa: E731
    table = gradus.vmap(gradus.vmap(dot, in_axes=(None, 0)), in_axes=(0, None))
    same(np.asarray(table(a, b)), a @ b.T, rtol=1e-12)
    compiled = gradus.function(lambda a, b: table(a, b) * 2)
    for _ in range(2):
        same(np.asarray(compiled(a, b)), 2 * a @ b.T, rtol=1e-12)


def test_loops_and_branches_within(rng):
    """Each of the batch takes its own number of steps."""
    xs = np.array([0.3, 2.0, 9.0, 50.0])

    def root(a):
        return gradus.while_loop(lambda x: ops.abs(x * x - a) > 1e-9, lambda x: (x + a / x) / 2, a + 1.0)

    def rollout(a):
        return gradus.scan(lambda h, t: (ops.sin(h * a) + t, h), a, np.arange(4.0))[1]

    def chosen(k, a):
        return gradus.cond(k > 1.0, lambda x: ops.log(x), lambda x: x * 3, a)

    same(np.asarray(gradus.vmap(root)(xs)), np.sqrt(xs), rtol=1e-9)
    same(np.asarray(gradus.vmap(rollout)(xs)), each(rollout, xs), rtol=1e-12)
    for k, expected in ((2.0, np.log(xs)), (0.5, xs * 3)):
        same(np.asarray(gradus.vmap(chosen, in_axes=(None, 0))(np.array(k), xs)), expected, rtol=1e-12)


def test_a_loop_over_batches(rng):
    w, xs = operands(rng)
    steps = lambda h: gradus.scan(  # noqa: E731
        lambda h, _: (gradus.vmap(lambda x: ops.tanh(gradus.tensor(w).transpose(0, 1) @ (gradus.tensor(w) @ x)))(h), None),
        h, length=3,
    )[0]
    h = xs
    for _ in range(3):
        h = np.tanh(h @ w.T @ w)
    same(np.asarray(gradus.function(steps)(xs)), h, rtol=1e-10)


def test_names_that_would_be_one(rng):
    tree = {"a b": rng.normal(size=(3, 2)), "a_b": rng.normal(size=(3, 2))}
    f = lambda d: (d["a b"] * ops.sin(d["a_b"])).sum()  # noqa: E731
    for call in (gradus.vmap(f), gradus.function(gradus.vmap(f))):
        same(call(tree).numpy(), (tree["a b"] * np.sin(tree["a_b"])).sum(1))
    gradients = gradus.grad(f)(tree)
    same(gradients["a_b"].numpy(), tree["a b"] * np.cos(tree["a_b"]))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda w, xs: gradus.vmap(net)(w, xs), "'1' has 5 along its axis, and '0' has 4"),
        (lambda w, xs: gradus.vmap(net, in_axes=None)(w, xs), "no tensor is mapped"),
        (lambda w, xs: gradus.vmap(net, in_axes=(0,))(w, xs), "1 entries for 2 arguments"),
        (lambda w, xs: gradus.vmap(net, in_axes=(None, 2))(w, xs), "has no axis 2"),
        (lambda w, xs: gradus.vmap(net, in_axes=(None, [0, 0]))(w, xs), "in_axes.1. is"),
        (lambda w, xs: gradus.vmap(net, (None, 0), out_axes=1)(w, xs), "out_axes has 1 for a result"),
        (lambda w, xs: gradus.vmap(net, (None, 0), out_axes=None)(w, xs), "say where its axis goes"),
        (lambda w, xs: gradus.vmap(net, (None, {1, 2}))(w, xs), "trees of numbers"),
        (lambda w, xs: gradus.vmap(lambda x: float(x.sum()))(xs), "value"),
        (lambda w, xs: gradus.vmap(lambda x: gradus.cond(x[0] > 0, ops.sin, ops.cos, x))(xs), "where"),
    ],
)
def test_errors(rng, call, message):
    with pytest.raises(gradus.Error, match=message):
        call(*operands(rng))
