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


_twice = np.array([[0, 1, 1, 1], [1, 0, 1, 0]])  # some places several times
_target = np.array([0.0, 1, 1, 0])
_factors = np.arange(9.0).reshape(3, 3)
_table = np.arange(6.0).reshape(3, 2)


def _outside(x):
    """The projection to what the column of x leaves out, which is the same for every basis of it."""
    u = ops.svd(x, full=True)[0][:, 1:]
    return ((u @ u.T) * _factors).sum()


# A function and a point at which the derivative of the operator is not that of its parts.
own_derivatives = {
    "norm": (ops.norm, np.zeros(3)),
    "norm of a number": (ops.norm, np.array(0.0)),
    "norm along": (lambda x: ops.norm(x, dim=[-1], keepdim=True).sum(), np.zeros((2, 3))),
    "3-norm": (lambda x: ops.norm(x, p=3.0), np.zeros(3)),
    "matrix_norm": (ops.matrix_norm, np.zeros((2, 2))),
    "std": (ops.std, np.ones(3)),
    "normalize": (lambda x: (ops.normalize(x, dim=0) * np.arange(3.0)).sum(), np.zeros(3)),
    "cdist": (lambda x: ops.cdist(x, _table[:2]).sum(), _table[:2]),
    "bce": (lambda x: ops.bce(x, _target), np.array([0, 1, 0.3, 0.5])),
    "bce, sum": (lambda x: ops.bce(x, _target, reduction="sum"), np.array([[0.0], [1]])),
    "bce, none": (lambda x: ops.bce(x, _target, reduction="none").sum(), np.array([[0.0], [1]])),
    "pinv": (lambda x: (ops.pinv(x) * _factors).sum(), np.eye(3)),
    "pinv, rank 1": (lambda x: (ops.pinv(x) * _factors).sum(), np.outer([1.0, 2, 3], [1, -1, 1])),
    "svd": (_outside, np.array([[1.0], [2], [3]])),
    "scatter_reduce": (
        lambda x: ops.scatter_reduce(np.full((3, 4), -2.0), _twice, x, dim=0, reduce="amax").sum(),
        np.array([[0.1, 0.2, 0.5, 0.1], [0.3, 0.4, 0.2, 0.9]]),
    ),
    "scatter_reduce, equal": (
        lambda x: ops.scatter_reduce(x, _twice, np.ones((2, 4)), dim=-2, reduce="amin").sum(),
        np.ones((3, 4)),
    ),
    "embedding": (
        lambda w: ops.sin(ops.embedding(w, np.array([[0, 1], [1, 2]]), padding_idx=-2)).sum(),
        _table,
    ),
}
# And those whose derivative is the same either way.
own_derivatives |= {
    "softmax": (lambda x: (ops.softmax(x, dim=-1) ** 2).sum(), np.array([[-np.inf, 1, 2]])),
    "log_softmax": (lambda x: (ops.log_softmax(x, dim=0) ** 2).sum(), np.array([0.3, 1, 2])),
    "logsumexp": (lambda x: ops.logsumexp(x, dim=[0]).sum(), np.array([[0.3], [2]])),
    "var": (lambda x: ops.var(x, dim=[0], correction=0).sum(), np.array([[0.3, 1], [2, 5]])),
    "standardize": (lambda x: (ops.standardize(x)[0] ** 3).sum(), np.array([0.3, 1, 2])),
    "standardize along": (
        lambda x: (ops.standardize(x, [1])[0] ** 3).sum() + ops.standardize(x, [1])[1].sum(),
        np.array([[0.3, 1, 2], [4, 3, 7]]),
    ),
    "standardize a number": (lambda x: ops.standardize(x)[0] * x, np.array(2.0)),
    "nan_to_num": (lambda x: (ops.nan_to_num(x) * 2).sum(), np.array([np.nan, 1, np.inf])),
    "cofactor": (lambda x: (ops.cofactor(x) * _factors).sum(), np.diag([1.0, 0, 0])),
}


@pytest.mark.parametrize("name", own_derivatives)
def test_operators_keep_their_derivatives(name):
    """A derivative of what is mapped is that of each slice, a first and a second time."""
    f, x = own_derivatives[name]
    xs = np.stack([x, x])
    second = lambda x: ops.sin(gradus.grad(f)(x)).sum()  # noqa: E731
    in_a_loop = lambda x: gradus.scan(lambda c, y: (c + f(y), None), 0.0, x.unsqueeze(0))[0]  # noqa: E731
    for one, of_one in ((f, f), (second, second), (in_a_loop, f)):
        got = gradus.grad(lambda xs: gradus.vmap(one)(xs).sum())(xs)
        expected = np.asarray(gradus.grad(of_one)(x))
        for row in np.asarray(got):
            same(row, expected, rtol=1e-9, atol=1e-9 * (1 + np.abs(expected).max()))


def test_a_table_for_all_or_for_each(rng):
    """The row of the padding has no gradient, whatever is mapped."""
    tables, index = rng.normal(size=(2, 3, 2)), np.array([[0, 1], [2, 1]])
    f = lambda w, i: ops.sin(ops.embedding(w, i, padding_idx=1)).sum()  # noqa: E731
    slope = gradus.grad(f)
    both = gradus.grad(lambda w: gradus.vmap(f)(w, index).sum())(tables)
    same(np.asarray(both), [np.asarray(slope(w, i)) for w, i in zip(tables, index)], rtol=1e-12)
    one = gradus.grad(lambda w: gradus.vmap(f, in_axes=(None, 0))(w, index).sum())(tables[0])
    same(np.asarray(one), sum(np.asarray(slope(tables[0], i)) for i in index), rtol=1e-12)
    assert not np.asarray(both)[:, 1].any() and not np.asarray(one)[1].any()


@pytest.mark.parametrize("axes", [(None, 0, None), (None, 0, 0), (None, None, 0), (0, None, None)])
def test_losses_of_targets_and_weights(rng, axes):
    shapes = ((3,), (2, 3), (2, 1))
    p, target, weight = (rng.uniform(0.1, 0.9, size=(2, *s)) for s in shapes)
    given = [x[0] if axis is None else x for x, axis in zip((p, target, weight), axes)]
    for reduction in ("mean", "sum", "none"):
        f = lambda *x: ops.bce(*x, reduction=reduction).sum()  # noqa: B023, E731
        got = gradus.grad(lambda *x: gradus.vmap(f, in_axes=axes)(*x).sum(), argnums=(0, 1, 2))(*given)
        each = [[x if axis is None else x[i] for x, axis in zip(given, axes)] for i in range(2)]
        slopes = [[np.asarray(g) for g in gradus.grad(f, argnums=(0, 1, 2))(*one)] for one in each]
        for k, axis in enumerate(axes):
            rows = [slopes[i][k] for i in range(2)]
            same(np.asarray(got[k]), sum(rows) if axis is None else np.stack(rows), rtol=1e-12)


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


CALL_WITH_VJP = """graph main {
  stage 0 (%x: f64[3], %w: f64[3], %n: i64[3]) {
    %y, %m, %z = call(%x, %w, %n) {graph = "f", vjp = "f_vjp"}
    %q = square(%y)
    %s = sum(%q)
    return %s
  }
}
graph f {
  stage 0 (%x: f64[N], %w: f64[N], %n: i64[N]) {
    %y = mul(%x, %w)
    %z = add(%x, 1.0)
    return %y, %n, %z
  }
}
graph f_vjp {
  stage 0 (%x: f64[N], %w: f64[N], %n: i64[N], %y: f64[N], %m: i64[N], %z: f64[N], %dy: f64[N], %dz: f64[N]) {
    %u = mul(%dy, %x)
    %v = mul(%u, 3.0)
    return dx = RESULT, dw = %v
  }
}
"""


@pytest.mark.parametrize("mapped", [["x", "w", "n"], ["x"], ["w"], ["x", "n"]])
@pytest.mark.parametrize("by_x", ["none", "%v"])
def test_a_batch_of_a_call_keeps_its_derivative(rng, mapped, by_x):
    """Here the derivative is not that of the function."""
    text = CALL_WITH_VJP.replace("RESULT", by_x)
    program = gradus.parse(text, "calls.ir")
    given = {"x": rng.normal(size=(2, 3)), "w": rng.normal(size=(2, 3)), "n": np.arange(6).reshape(2, 3)}
    one = gradus.State(program.differentiate(2).compile())
    by_slice = []
    cotangents = rng.normal(size=2)
    seconds = {name: rng.normal(size=(2, 3)) for name in ("x", "w")}
    inputs = {name: a if name in mapped else np.stack([a[0]] * 2) for name, a in given.items()}
    for b in range(2):
        one.restart()
        one.run(*(inputs[name][b] for name in ("x", "w", "n")))
        first = one.run(cotangents[b])
        second = one.run(*(seconds[name][b] for name in ("x", "w")))
        by_slice.append([None if r is None else np.asarray(r) for r in [*first, *second]])
    batched = gradus.State(program.batch(mapped, 2).differentiate(1).compile())
    batched.run(*(inputs[name] if name in mapped else inputs[name][0] for name in ("x", "w", "n")))
    got = batched.run(cotangents)
    for k, name in enumerate(("x", "w")):
        expected = [r[k] for r in by_slice]
        if expected[0] is None:
            assert got[k] is None or not np.asarray(got[k]).any()
        elif name in mapped:
            same(np.asarray(got[k]), np.stack(expected))
        else:
            same(np.asarray(got[k]), sum(expected))


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
