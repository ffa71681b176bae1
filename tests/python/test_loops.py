"""Loops and branches of Python functions, recorded and step by step."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

import gradus
from gradus import ops

same = np.testing.assert_allclose


def unrolled(f, init, xs, reverse=False):
    """A scan as Python runs it."""
    carry, rows = init, []
    steps = range(len(xs))
    for t in reversed(steps) if reverse else steps:
        carry, y = f(carry, xs[t])
        rows.append(y)
    return carry, ops.stack(rows[::-1] if reverse else rows, 0)


def cell(w):
    def step(h, x):
        h = ops.tanh(w @ h + x)
        return h, (h * h).sum() * x

    return step


def loss_of(scan, reverse=False):
    def loss(w, h, xs):
        last, ys = scan(cell(w), h, xs, reverse=reverse)
        return (last * last * last).sum() + (ys * xs).sum()

    return loss


def operands(rng, dtype=np.float64):
    w, h, xs = rng.normal(size=(3, 3)) * 0.5, rng.normal(size=3), rng.normal(size=(5, 3))
    return w.astype(dtype), h.astype(dtype), xs.astype(dtype)


def nodes(program, name):
    return str(program).count(f" {name}(")


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_scan_is_its_unrolled_loop(rng, dtype, reverse):
    args = operands(rng, dtype)
    ours, theirs = loss_of(gradus.scan, reverse), loss_of(unrolled, reverse)
    program = gradus.trace(ours, *args)
    assert nodes(program, "scan") == 1 and nodes(program, "tanh") == 1
    f, g = gradus.function(ours, order=2), gradus.function(theirs, order=2)
    for _ in range(2):  # a second run is the first one again
        assert f(*args).item() == g(*args).item()
    eager = ours(*(gradus.tensor(a) for a in args))
    tolerance = 1e-12 if dtype == np.float64 else 2e-5
    same(eager.numpy(), f(*args).numpy(), rtol=tolerance)
    for order in (f, g):
        tensors = [gradus.tensor(a, requires_grad=True) for a in args]
        order.found = gradus.gradients(order(*tensors), tensors, create_graph=True)
        order.second = gradus.gradients(order.found[0].sum(), tensors)
    for a, b in zip(f.found + f.second, g.found + g.second):
        same(a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance)


def test_derivatives_of_a_scan(rng):
    w, h, xs = operands(rng)
    ours, theirs = loss_of(gradus.scan), loss_of(unrolled)
    along = rng.normal(size=(3, 3))

    def curved(f):
        return lambda w: (gradus.grad(f)(w, h, xs) ** 2).sum()

    def all_of(f):
        yield gradus.grad(f)(w, h, xs)
        yield from gradus.grad(f, argnums=(0, 1, 2))(w, h, xs)
        yield gradus.value_and_grad(f)(w, h, xs)[1]
        yield gradus.hessian(f, w, h, xs)
        yield gradus.jacobian(lambda w: gradus.grad(f)(w, h, xs), w)
        yield from gradus.jvp(lambda w: f(w, h, xs), w, along)
        yield gradus.hvp(lambda w: f(w, h, xs), w, along)
        yield gradus.grad(curved(f))(w)
        yield gradus.hessian(curved(f), w)
        yield gradus.laplacian(lambda h: f(w, h, xs), h)

    for a, b in zip(all_of(ours), all_of(theirs), strict=True):
        same(a.numpy(), b.numpy(), rtol=1e-11, atol=1e-12)
    assert gradus.gradcheck(gradus.trace(ours, w, h, xs), order=3)
    assert gradus.gradcheck(gradus.trace(curved(ours), w), order=2)


def test_the_derivative_of_a_recorded_scan_is_a_loop(rng):
    w, h, xs = operands(rng)
    plain = loss_of(gradus.scan)
    for steps in (5, 50):
        xs = rng.normal(size=(steps, 3))
        program = gradus.trace(lambda w: gradus.grad(plain)(w, h, xs), w)
        assert nodes(program, "tanh") <= 2 and nodes(program, "scan") <= 3


def test_closed_forms():
    """x^(2^n) by squaring, and a sum of powers."""
    n, x = 5, 1.01

    def power(x):
        return gradus.fori_loop(0, n, lambda i, c: c * c, x)

    k = 2**n
    f = gradus.function(power, order=3)
    assert np.isclose(f(np.array(x)).item(), x**k)
    at = gradus.tensor(np.array(x))
    same(gradus.grad(power)(at).item(), k * x ** (k - 1))
    same(gradus.grad(gradus.grad(power))(at).item(), k * (k - 1) * x ** (k - 2))
    third = gradus.grad(gradus.grad(gradus.grad(power)))(at)
    same(third.item(), k * (k - 1) * (k - 2) * x ** (k - 3))

    def geometric(x):
        return gradus.fori_loop(2, 7, lambda i, c: c + x ** i.astype(gradus.f64), gradus.zeros([]))

    powers = np.arange(2, 7)
    same(gradus.function(geometric)(at).item(), (x**powers).sum())
    same(geometric(at).item(), (x**powers).sum())
    same(gradus.grad(geometric)(at).item(), (powers * x ** (powers - 1)).sum())


def test_trees(rng):
    """Carries, slices and results in tuples, lists and dicts."""
    xs = {"a": rng.normal(size=(4, 2)), "b": (rng.normal(size=4),)}
    init = {"s": np.zeros(2), "n": 0, "last": [1.0]}

    def step(c, x):
        s = c["s"] + x["a"] * x["b"][0]
        # Keys in another order, a number as a carry.
        return {"n": c["n"] + 1, "last": [x["b"][0]], "s": s}, (s.sum(), {"twice": s * 2, "no": None})

    def run(init, xs):
        return gradus.scan(step, init, xs)

    sums = np.cumsum(xs["a"] * xs["b"][0][:, None], 0)
    for how in (run, gradus.function(run)):
        carry, (y, more) = how(init, xs)
        same(carry["s"].numpy(), sums[-1])
        assert carry["n"].item() == 4 and carry["n"].dtype == gradus.i64
        assert carry["last"][0].item() == xs["b"][0][-1] and more["no"] is None
        same(y.numpy(), sums.sum(1))
        same(more["twice"].numpy(), 2 * sums)


def test_lengths():
    def count(c, x):
        assert x is None
        return c + 1.0, c

    for how in (lambda f: f, gradus.function):
        last, all_of = how(lambda c: gradus.scan(count, c, length=3))(gradus.zeros([]))
        assert last.item() == 3 and all_of.tolist() == [0, 1, 2]
        last, all_of = how(lambda c: gradus.scan(count, c, length=0))(gradus.ones([2]))
        assert last.tolist() == [1, 1] and all_of.shape == (0, 2)
        assert how(lambda x: gradus.map(lambda r: (r * r).sum(), x))(np.ones((4, 3))).tolist() == [3] * 4
        assert how(lambda c: gradus.fori_loop(3, 1, lambda i, c: c + 1, c))(np.ones(2)).tolist() == [1, 1]
        last, _ = how(lambda c: gradus.scan(lambda c, x: (c, None), c, np.ones(3)))(np.ones(2))
        assert last.tolist() == [1, 1]


def test_map_has_derivatives(rng):
    w, xs = rng.normal(size=(3, 3)), rng.normal(size=(6, 3))

    def loss(w):
        return gradus.map(lambda x: ops.tanh(w @ x).sum(), xs).sum()

    t = np.tanh(xs @ w.T)
    same(gradus.grad(loss)(w).numpy(), (1 - t**2).T @ xs)
    inner = gradus.map(gradus.grad(lambda x: ops.sin(x).sum()), xs)  # a gradient in the body
    same(inner.numpy(), np.cos(xs))
    f = gradus.function(lambda xs: gradus.map(gradus.grad(lambda x: ops.sin(x).sum()), xs))
    same(f(xs).numpy(), np.cos(xs))


def test_a_gradient_inside_of_a_body(rng):
    """Gradient descent as a loop, differentiated by its start, its rate and what it reads."""
    a = rng.normal(size=(3, 3))
    a = a @ a.T + np.eye(3)
    b, x0 = rng.normal(size=3), rng.normal(size=3)

    def descend(loop, b, x0, rate):
        def energy(x):
            return 0.5 * (x * (gradus.as_tensor(a) @ x)).sum() - (b * x).sum()

        return loop(lambda x: x - rate * gradus.grad(energy)(x), x0)

    def by_loop(step, x):
        return gradus.fori_loop(0, 8, lambda i, x: step(x), x)

    def by_hand(step, x):
        for _ in range(8):
            x = step(x)
        return x

    def outer(loop):
        return lambda b, x0, rate: (descend(loop, b, x0, rate) ** 2).sum()

    rate = np.array(0.1)
    x = x0
    for _ in range(8):
        x = x - rate * (a @ x - b)
    same(gradus.function(outer(by_loop))(b, x0, rate).item(), (x**2).sum())
    program = gradus.trace(outer(by_loop), b, x0, rate)
    assert nodes(program, "scan") == 1
    assert gradus.gradcheck(program, order=2)
    for n in range(3):
        ours = gradus.grad(outer(by_loop), argnums=n)(b, x0, rate)
        same(ours.numpy(), gradus.grad(outer(by_hand), argnums=n)(b, x0, rate).numpy(), rtol=1e-10)
    h = gradus.hessian(outer(by_loop), b, x0, rate, argnums=2)
    same(h.numpy(), gradus.hessian(outer(by_hand), b, x0, rate, argnums=2).numpy(), rtol=1e-10)


def test_loops_in_loops(rng):
    w, xs = rng.normal(size=(2, 2)) * 0.5, rng.normal(size=(4, 3, 2))

    def nested(scan):
        def loss(w, xs):
            def inner(c, x):
                return ops.sin(w @ c + x), None

            def outer(c, rows):
                if scan is gradus.scan:
                    c, _ = gradus.scan(inner, c, rows)
                else:
                    for t in range(3):
                        c, _ = inner(c, rows[t])
                return c * w[0, 0], c.sum()

            c, ys = scan(outer, gradus.ones([2]), xs)
            return (c * c).sum() + (ys * ys).sum()

        return loss

    ours, theirs = nested(gradus.scan), nested(unrolled)
    program = gradus.trace(ours, w, xs)
    assert nodes(program, "scan") == 2 and nodes(program, "sin") == 1
    assert gradus.gradcheck(program, order=2)
    same(gradus.grad(ours)(w, xs).numpy(), gradus.grad(theirs)(w, xs).numpy(), rtol=1e-12)
    same(gradus.hessian(ours, w, xs).numpy(), gradus.hessian(theirs, w, xs).numpy(), rtol=1e-10)
    f, g = gradus.function(ours), gradus.function(theirs)
    assert f(w, xs).item() == g(w, xs).item()


def test_points(rng):
    """Derivatives at many points of a function with a loop."""
    w, xs = rng.normal(size=3), rng.normal(size=(5, 2))

    def by_loop(x):
        return gradus.fori_loop(0, 3, lambda i, c: ops.sin(c * x), x).sum()

    def by_hand(x):
        c = x
        for _ in range(3):
            c = ops.sin(c * x)
        return c.sum()

    for kind in (gradus.hessian, gradus.laplacian, gradus.jacobian):
        same(kind(by_loop, xs, mapped=0).numpy(), kind(by_hand, xs, mapped=0).numpy(), rtol=1e-11)


def test_cond(rng):
    x, w = rng.normal(size=3), rng.normal(size=3)

    def run(p, x, w):
        return gradus.cond(p, lambda x: ops.sin(x * w), lambda x: x * x * (w * 2), x).sum()

    f = gradus.function(run, order=2)
    program = gradus.trace(run, np.array(True), x, w)
    assert nodes(program, "if") == 1
    for p, expected in ((True, np.sin(x * w).sum()), (False, (x * x * 2 * w).sum())):
        given = np.array(p)
        same(f(given, x, w).item(), expected)
        same(run(gradus.as_tensor(given), gradus.tensor(x), gradus.tensor(w)).item(), expected)
        assert gradus.gradcheck(program, order=2, inputs={"p": gradus.as_tensor(given)})
        slope = gradus.grad(run, argnums=2)(given, x, w).numpy()
        same(slope, np.cos(x * w) * x if p else 2 * x * x)
        # Differentiated within a recording.
        inner = gradus.function(lambda p, w: gradus.grad(run, argnums=2)(p, x, w))
        same(inner(given, w).numpy(), slope)
    # What Python knows is chosen at once.
    known = gradus.trace(lambda x: gradus.cond(True, ops.sin, ops.cos, x), x)
    assert nodes(known, "if") == 0 and nodes(known, "sin") == 1
    tree = gradus.function(
        lambda p, x: gradus.cond(p, lambda t: {"a": t["x"], "b": 1.0}, lambda t: {"b": 2, "a": -t["x"]}, {"x": x})
    )
    assert tree(np.array(False), x)["b"].item() == 2 and tree(np.array(True), x)["a"].tolist() == x.tolist()


def test_a_branch_in_a_loop(rng):
    xs = rng.normal(size=8)

    def run(w):
        def step(c, x):
            return gradus.cond(x > 0, lambda c: c * w + x, lambda c: ops.sin(c) - w, c), None

        return gradus.scan(step, gradus.ones([]), xs)[0]

    def by_hand(w):
        c = 1.0
        for x in xs:
            c = c * w + x if x > 0 else np.sin(c) - w
        return c

    w = np.array(0.7)
    same(gradus.function(run)(w).item(), by_hand(0.7))
    slope = (by_hand(0.7 + 1e-6) - by_hand(0.7 - 1e-6)) / 2e-6
    same(gradus.grad(run)(w).item(), slope, rtol=1e-7)
    assert gradus.gradcheck(gradus.trace(run, w), order=2)


def test_a_million_steps_compile_as_ten():
    taken = {}
    for steps in (10, 1_000_000):
        begin = time.perf_counter()
        f = gradus.trace(
            lambda x: gradus.fori_loop(0, steps, lambda i, c: ops.sin(c) * x, x), np.ones(()), order=1
        )
        code = f.compile()
        taken[steps] = time.perf_counter() - begin, len(str(f)) - 10 * len(str(steps))
    assert taken[1_000_000][1] < taken[10][1] + 100
    assert taken[1_000_000][0] < 10 * taken[10][0] + 0.5
    state = gradus.State(code)
    c = 1.0
    for _ in range(1000):
        c = np.sin(c)
    assert 0 < state.run(np.ones(()))[0].item() < c


def test_what_a_body_reads(rng):
    """Values of recordings further out, arrays, numbers, detached values."""
    k, x = rng.normal(size=3), rng.normal(size=3)

    def run(x, w):
        y = ops.sin(x)

        def step(c, _):
            return c * y + k * 2 + w * 0.5 + y.detach(), None

        return gradus.scan(step, x, length=2)[0].sum()

    def by_hand(x, w, y=None, held=None):
        y = np.sin(x)
        c = x
        for _ in range(2):
            c = c * y + k * 2 + w * 0.5 + (y if held is None else held)
        return c.sum()

    w = np.array(0.3)
    same(gradus.function(run)(x, w).item(), by_hand(x, 0.3))
    slope = [
        (by_hand(x + d, 0.3, held=np.sin(x)) - by_hand(x - d, 0.3, held=np.sin(x))) / 2e-6
        for d in 1e-6 * np.eye(3)
    ]
    same(gradus.grad(run)(x, w).numpy(), slope, rtol=1e-7)
    f = gradus.function(run)
    leaf = gradus.tensor(x, requires_grad=True)
    same(gradus.gradients(f(leaf, w), leaf)[0].numpy(), slope, rtol=1e-7)


def test_names_for_sizes():
    def run(x):
        return gradus.scan(lambda c, r: (c + r * r, None), ops.sin(x[0]), x)[0].sum()

    program = gradus.trace(run, gradus.Type("f64", [gradus.Dim("T"), gradus.Dim("N")]), order=1)
    assert nodes(program, "scan") >= 2
    x = np.arange(12.0).reshape(4, 3)
    state = gradus.State(program.compile())
    same(state.run(x)[0].item(), np.sin(x[0]).sum() + (x * x).sum())
    first = 2 * x
    first[0] += np.cos(x[0])
    same(state.run(1.0)[0].numpy(), first)


def test_a_saved_function_with_a_loop(rng, tmp_path):
    args = operands(rng)
    f = gradus.function(loss_of(gradus.scan))
    gradus.save_function(f, tmp_path / "loop.ir", *args)
    again = gradus.load_function(tmp_path / "loop.ir")
    assert again(*args).item() == f(*args).item()


@pytest.mark.parametrize("how", [lambda f: f, gradus.function])
def test_errors_say_which_leaf(how):
    x = np.ones(3)

    def run(f, init, **given):
        return how(lambda x: gradus.scan(f, init, **given)[0])(x)

    with pytest.raises(gradus.Error, match=r"'carry.h.0' is f64\[\], and the step gives f64\[3\]"):
        run(lambda c, x: ({"h": [x]}, None), {"h": [1.0]}, xs=np.ones((2, 3)))
    with pytest.raises(gradus.Error, match=r"'carry' is i64\[\], and the step gives f32\[\]"):
        run(lambda c, x: (c * 0.5, None), 1, xs=x)
    with pytest.raises(gradus.Error, match=r"'carry.h' is a list of 1, and the step gives a tensor"):
        run(lambda c, x: ({"h": x}, None), {"h": [1.0]}, xs=x)
    with pytest.raises(gradus.Error, match=r"'carry' is a dict with keys \['h'\]"):
        run(lambda c, x: (x, None), {"h": 1.0}, xs=x)
    with pytest.raises(gradus.Error, match=r"a step gives \(carry, y\)"):
        run(lambda c, x: c, 1.0, xs=x)
    with pytest.raises(gradus.Error, match="without xs"):
        run(lambda c, x: (c, None), 1.0)
    with pytest.raises(gradus.Error, match=r"'x.1' has 2 slices, 'x.0' says 3 steps"):
        run(lambda c, x: (c, None), 1.0, xs=(x, np.ones(2)))
    with pytest.raises(gradus.Error, match=r"'x' has 3 slices, the length says 2 steps"):
        run(lambda c, x: (c, None), 1.0, xs=x, length=2)
    with pytest.raises(gradus.Error, match="negative"):
        run(lambda c, x: (c, None), 1.0, length=-1)
    with pytest.raises(gradus.Error, match=r"'x' is f64\[\]; a sequence"):
        run(lambda c, x: (c, None), 1.0, xs=np.ones(()))
    with pytest.raises(gradus.Error, match=r"cond: the predicate is f64\[3\]"):
        how(lambda x: gradus.cond(x, ops.sin, ops.cos, x))(x)


def test_what_cannot_be_recorded(fresh):
    x = np.ones(3)
    p = np.array(True)
    with pytest.raises(gradus.Error, match=r"'result' is f64\[3\] where .* and f64\[\] where not"):
        gradus.function(lambda p, x: gradus.cond(p, ops.sin, lambda x: x.sum(), x))(p, x)
    read = lambda c, r: (c + float(r), None)  # noqa: E731
    for run in (lambda x: gradus.scan(read, x[0], x)[0], lambda x: gradus.scan(
        lambda c, r: (c + float(x[0]), None), x[0], x)[0]):
        with pytest.raises(gradus.Error, match="reads back"):
            gradus.function(run)(x)
        assert run(gradus.tensor(x)).item() == 4  # step by step it can

    @gradus.python_op(fresh())
    def twice(ctx, x):
        return np.asarray(x) * 2

    with pytest.raises(gradus.Error, match="graph of a loop or a branch cannot"):
        gradus.function(lambda x: gradus.scan(lambda c, r: (twice(c), None), x[0], x)[0])(x)
    leaf = gradus.tensor(np.ones(()), requires_grad=True)
    with pytest.raises(gradus.Error, match="requires gradients and is no input"):
        gradus.function(lambda x: gradus.scan(lambda c, r: (c * leaf, None), x[0], x)[0])(x)
    kept = []
    gradus.function(lambda x: gradus.scan(lambda c, r: (kept.append(r) or c, None), x[0], x)[0])(x)
    with pytest.raises(gradus.Error):
        kept[0].item()
    with pytest.raises(gradus.Error):
        gradus.function(lambda x: x + kept[0])(x)


def test_exceptions_pass_through():
    def step(c, x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        gradus.function(lambda x: gradus.scan(step, x[0], x)[0])(np.ones(3))
    assert gradus.function(lambda x: x * 2)(np.ones(2)).tolist() == [2, 2]


def test_gradients_of_eager_loops(rng):
    w, h, xs = (gradus.tensor(a, requires_grad=True) for a in operands(rng))
    found = gradus.gradients(loss_of(gradus.scan)(w, h, xs), [w, h, xs])
    wanted = gradus.grad(loss_of(unrolled), argnums=(0, 1, 2))(w.detach(), h.detach(), xs.detach())
    for a, b in zip(found, wanted):
        same(a.numpy(), b.numpy(), rtol=1e-12)


def root_of(a):
    """The square root, by Newton's steps, and how many there were."""
    return gradus.while_loop(
        lambda c: abs(c[0] * c[0] - a) > 1e-14 * a, lambda c: (0.5 * (c[0] + a / c[0]), c[1] + 1), (a, 0)
    )


def test_while():
    f = gradus.function(root_of)
    assert nodes(f.program(np.array(2.0), order=0), "while") == 1
    for a in (2.0, 9.0, 2.0):
        for root, steps in (root_of(gradus.as_tensor(a)), f(np.array(a))):
            same(root.item(), np.sqrt(a), rtol=1e-14)
            assert steps.dtype == gradus.i64 and 3 < steps.item() < 9


def test_derivatives_of_while():
    def root(a):
        return root_of(a)[0]

    a = np.array(2.0)
    same(gradus.grad(root)(a).item(), 0.5 * a**-0.5, rtol=1e-9)
    leaf = gradus.tensor(a, requires_grad=True)
    same(gradus.gradients(gradus.function(root)(leaf), leaf)[0].item(), 0.5 * a**-0.5, rtol=1e-9)
    # Of the steps that are taken: their number is what it is.
    def by_hand(a):
        x = a
        for _ in range(steps):
            x = 0.5 * (x + a / x)
        return x

    steps = root_of(gradus.as_tensor(2.0))[1].item()
    same(
        gradus.grad(gradus.grad(root))(a).item(), gradus.grad(gradus.grad(by_hand))(a).item(), rtol=1e-10
    )
    same(gradus.hessian(root, a).item(), gradus.hessian(by_hand, a).item(), rtol=1e-10)
    along = gradus.hvp(root, a, np.array(3.0)).item()
    same(along, 3 * gradus.hessian(by_hand, a).item(), rtol=1e-10)
    # A recording has numbers for sizes, and this would be kept for so many steps as data say.
    with pytest.raises(gradus.Error, match="a derivative of 'while' .data decide its number of steps"):
        gradus.trace(gradus.grad(root), a)


def test_bounds_that_data_say():
    def power(x, n):
        return gradus.fori_loop(0, n, lambda i, c: c * x, gradus.ones([]))

    f = gradus.function(power)
    x = np.array(1.5)
    for n in (3, 5, 0):
        assert f(x, np.array(n)).item() == 1.5**n
        same(gradus.grad(power)(x, np.array(n)).item(), n * 1.5 ** (n - 1))
    assert nodes(gradus.trace(power, x, np.array(3)), "while") == 1
    for way in (power, f, gradus.grad(power), gradus.function(gradus.grad(power))):
        for n in (np.array(5.7), np.array(5.0), gradus.tensor(5.0), 5.7):
            with pytest.raises(gradus.Error, match="fori_loop: 'upper' is .*; it has to be an integer"):
                way(x, n)
    with pytest.raises(gradus.Error, match="fori_loop: 'lower' is .*; it has to be an integer"):
        gradus.function(lambda x, n: gradus.fori_loop(0.5, n, lambda i, c: c * x, 1.0))(x, np.array(3))


@pytest.mark.skipif(
    "san" in os.environ.get("LD_PRELOAD", ""), reason="sanitizers take terabytes of addresses"
)
def test_a_process_with_few_addresses_records_loops():
    """As on a cluster that limits them: RLIMIT_AS."""
    program = """
import numpy, resource
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
import gradus

@gradus.function
def run(h, xs):
    h, ys = gradus.scan(lambda h, x: (h + x, h * x), h, xs)
    return h, ys.sum()

h, y = run(numpy.zeros(3), numpy.ones((4, 3)))
print(numpy.asarray(h), float(numpy.asarray(y)))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.stdout == "[4. 4. 4.] 18.0\n", found.stderr
