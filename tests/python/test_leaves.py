"""What stands in the trees by which functions are differentiated: floats, integers, and others."""

from collections import namedtuple

import numpy as np
import pytest

import gradus
from gradus import grad, ops

Pair = namedtuple("Pair", "a b")


class Body:
    mass = np.array(2.0)


def numbers(tree):
    """The tree as NumPy has it; every leaf must be a tensor, or None."""
    leaves, structure = gradus._trees.flatten(tree)
    assert all(isinstance(x, gradus.Tensor) for _, x in leaves)
    return gradus._trees.unflatten(structure, [x.detach().tolist() for _, x in leaves])


def cubed(p):
    return (p["a"] ** 2).sum() * p["b"] ** 3


calls = {
    "as they are": lambda f: f,
    "compiled": gradus.function,
    "by values": lambda f: lambda p: f(p) if p["b"] > -9 else p["b"],
}


@pytest.mark.parametrize("how", calls)
def test_floats_in_a_tree_are_numbers_to_differentiate_by(how):
    f = calls[how](cubed)
    for b in (5.0, -2.0):
        p = {"a": np.array([1.0, 2.0]), "b": b}
        want = {"a": [2 * b**3, 4 * b**3], "b": 15 * b**2}
        assert numbers(grad(f)(p)) == want
        value, slope = gradus.value_and_grad(f)(p)
        assert value.item() == 5 * b**3 and numbers(slope) == want
        value, pullback = gradus.vjp(f, p)
        assert value.item() == 5 * b**3 and numbers(pullback(2.0)[0])["b"] == 30 * b**2
        if how == "by values":
            continue
        along = {"b": 2.0, "a": np.array([1.0, 0.0])}  # the order of keys is no matter
        assert gradus.jvp(f, p, along)[1].item() == 2 * b**3 + 30 * b**2
        assert numbers(gradus.hvp(f, p, along)) == {
            "a": [2 * b**3 + 12 * b**2, 24 * b**2],
            "b": 6 * b**2 + 60 * b,
        }
        assert numbers(gradus.laplacian(f, p)) == {"a": 4 * b**3, "b": 30 * b}
        assert numbers(gradus.jacobian(f, p)) == want
        h = numbers(gradus.hessian(f, p))
        assert h["b"] == {"a": [6 * b**2, 12 * b**2], "b": 30 * b} and h["a"]["b"] == [6 * b**2, 12 * b**2]


def test_floats_stand_in_any_tree():
    assert numbers(grad(lambda p: p[0] * p[1])([2.0, 5.0])) == [5.0, 2.0]
    assert numbers(grad(lambda p: p.a * p.b)(Pair(2.0, 5.0))) == Pair(5.0, 2.0)
    assert numbers(grad(lambda p: p[0]["x"][0] * 3.0)(({"x": (2.0,)}, None))) == ({"x": (3.0,)}, None)
    assert numbers(grad(lambda p, q: p[0] * q, argnums=(0, -1))((2.0,), 5.0)) == ((5.0,), 2.0)
    x = np.array(2.0)
    inner = lambda x: grad(lambda p: x * p[0] * p[1])([3.0, 5.0])[0]  # noqa: E731
    assert inner(x).item() == 10 and grad(inner)(x).item() == 5
    assert gradus.function(inner)(x).item() == 10 and gradus.function(grad(inner))(x).item() == 5
    leaf = gradus.tensor(2.0, requires_grad=True)
    found = grad(lambda p: p["a"] * p["b"])({"a": leaf, "b": 5.0})
    assert numbers(found) == {"a": 5.0, "b": 2.0}
    assert gradus.gradients(found["b"], leaf)[0].item() == 1


def test_a_float_in_a_tree_is_an_input_of_what_is_compiled():
    recorded = []

    @gradus.function
    def f(p, scale, b):
        recorded.append(1)
        return p["a"] * p["b"] * b * scale

    by_tree, by_last = grad(f), grad(f, argnums=-1)
    for g in (
        lambda b: by_tree({"a": 2.0, "b": b}, 3.0, 1.0)["a"],
        lambda b: by_last({"a": 0.5, "b": 2.0}, 3.0, b) * b,
        lambda b: gradus.jacobian(f, {"a": 2.0, "b": b}, 3.0, 1.0)["a"],
    ):
        recorded.clear()
        assert [g(b).item() for b in (1.0, 2.0, 3.0)] == [3, 6, 9] and len(recorded) == 1


def test_jvp_and_hvp_take_a_float():
    for f in (lambda x: x**3, gradus.function(lambda x: x**3)):
        for x in (3.0, np.float64(3.0), np.array(3.0)):
            value, slope = gradus.jvp(f, x, 2.0)
            assert (value.item(), slope.item()) == (27, 54)
            assert gradus.hvp(f, x, 2.0).item() == 36
            assert gradus.hvp(f, (x,), (2.0,))[0].item() == 36
    inner = lambda x: gradus.jvp(lambda q: x * q * q, 3.0, 2.0)[1]  # noqa: E731
    assert gradus.function(inner)(np.array(5.0)).item() == 60 and grad(inner)(5.0).item() == 12
    assert numbers(gradus.hvp(lambda p: p["q"] ** 3, {"q": 3.0}, {"q": 2.0})) == {"q": 36}


def test_what_has_no_derivative_is_an_error():
    """And not its own gradient."""
    x, at = np.array(2.0), "by which there is no derivative"
    by = {
        "the int 7": (7, r"argument 0 is the int 7, {at}; pass the float 7.0, or"),
        "a bool": (True, r"argument 0 is the bool True, {at}; pass the float 1.0, or"),
        "an int in a tree": ({"a": x, "n": {"k": (3,)}}, r"'n.k.0' of argument 0 is the int 3, {at}; pass"),
        "a string": ({"a": x, "n": "tanh"}, r"'n' of argument 0 is a str, {at}; l"),
        "an object": (Body(), r"argument 0 is a Body, {at}; l"),
        "a function": ([x, np.tanh], r"'1' of argument 0 is a ufunc, {at}; l"),
    }
    f = lambda p: ops.sin(x) * 1.0  # noqa: E731
    for given, message in by.values():
        for name, call in {
            "grad": lambda p: grad(f)(p),
            "grad ": lambda p: gradus.value_and_grad(f)(p),
            "grad  ": lambda p: grad(gradus.function(f))(p),
            "jacobian": lambda p: gradus.jacobian(f, p),
            "hessian": lambda p: gradus.hessian(f, p),
            "laplacian": lambda p: gradus.laplacian(f, p),
            "vjp": lambda p: gradus.vjp(f, p),
            "jvp": lambda p: gradus.jvp(f, (p,), (p,)),
            "hvp": lambda p: gradus.hvp(f, (p,), (p,)),
        }.items():
            where = "let the function" if name in ("vjp", "jvp", "hvp") else "leave it to an argument"
            for run in (call, lambda p: gradus.function(lambda x: call(p))(x)):  # noqa: B023
                with pytest.raises(gradus.Error, match=f"^{name.strip()}: " + message.format(at=at)) as e:
                    run(given)
                assert where in str(e.value)
    with pytest.raises(gradus.Error, match="argument 1 is the int 3"):
        grad(lambda x, n: x * n, argnums=(0, 1))(2.0, 3)
    assert grad(lambda x, n: x * n)(2.0, 3).item() == 3
    with pytest.raises(gradus.Error, match="only floating tensors can"):
        grad(lambda x: x * x)(np.int64(7))
    assert grad(lambda p: ops.sin(x))(None) is None and grad(lambda p: ops.sin(x))({}) == {}
    assert gradus.function(lambda x: (grad(lambda p: x * 1.0)({}), x)[1])(x).item() == 2


def test_results_that_are_no_tensors():
    x = np.ones(2)
    f = lambda x: {"x": x * 2.0, "c": 3.0, "n": 4, "s": "name", "none": None}  # noqa: E731
    want = {"x": [[2, 0], [0, 2]], "c": [0, 0], "n": [0, 0], "s": None, "none": None}
    leaf = gradus.tensor(x, requires_grad=True)
    value = {"x": [2, 2], "c": 3, "n": 4, "s": "name", "none": None}
    for run in (lambda g: g(x), lambda g: g(leaf), lambda g: gradus.function(g)(x)):
        assert numbers(run(lambda x: gradus.jacobian(f, x))) == want
        y, dy = run(lambda x: gradus.jvp(f, x, x))
        assert numbers(y) == value
        assert numbers(dy) == {"x": [2, 2], "c": 0, "n": None, "s": None, "none": None}
    y, pullback = gradus.vjp(f, x)
    assert y["c"] == 3.0 and y["s"] == "name"
    assert pullback({**y, "x": x})[0].tolist() == [2, 2]


def test_cotangents_have_the_structure_of_the_result():
    x = np.array([1.0, 2.0])
    f = lambda x: {"square": x * x, "sum": x.sum(), "n": ops.argmax(x)}  # noqa: E731
    _, pullback = gradus.vjp(f, x)
    for ct in (
        {"sum": 3.0, "n": None, "square": x},
        {"square": x, "sum": np.array(3.0), "n": 0},
        {"square": gradus.tensor(x), "sum": 3, "n": np.array(0)},
    ):
        assert pullback(ct)[0].tolist() == [5, 11]
    assert pullback({"square": x, "sum": None, "n": None})[0].tolist() == [2, 8]
    for ct in (x, {"square": x, "n": None}, [x, 1.0, None], {"square": [x], "sum": 1.0, "n": 0}):
        with pytest.raises(gradus.Error, match="result is .*cotangent"):
            pullback(ct)
    assert gradus.vjp(lambda x: x.sum(), x.astype("f4"))[1](1)[0].tolist() == [1, 1]


def test_tangents_have_the_structure_of_the_arguments():
    x, n = np.array([1.0, 2.0]), np.array([0, 1])
    f = lambda p: (p["x"] * p["n"] * p["x"]).sum()  # noqa: E731
    leaf = gradus.tensor(x, requires_grad=True)
    for run in (
        lambda t: gradus.jvp(f, {"x": x, "n": n}, {"n": t, "x": x})[1],
        lambda t: gradus.jvp(gradus.function(f), {"x": x, "n": n}, {"n": t, "x": x})[1],
        lambda t: gradus.jvp(f, {"x": leaf, "n": n}, {"n": t, "x": x})[1],
        lambda t: gradus.function(lambda x: gradus.jvp(f, {"x": x, "n": n}, {"n": t, "x": x})[1])(x),
    ):
        for t in (None, np.zeros_like(n), 0):
            assert run(t).detach().item() == 8
        for t in (np.zeros(2), 0.0, "none"):
            with pytest.raises(gradus.Error, match="argument 0.n is i64.2., and its tangent .*it has no derivative"):
                run(t)
    found = gradus.hvp(f, {"x": x, "n": n}, {"x": x, "n": None})
    assert found["x"].tolist() == [0, 4] and found["n"] is None
    for p, t, message in (
        (3.0, 1, r"argument 0 is f64\[\], and its tangent the int 1; they must have one type"),
        (3.0, None, r"argument 0 is f64\[\], and its tangent None; they"),
        (x, x.astype("f4"), r"argument 0 is f64\[2\], and its tangent f32\[2\]; they"),
        (x, x[:1], r"argument 0 is f64\[2\], and its tangent f64\[1\]; they"),
        ({"a": x}, {"b": x}, r"argument 0 is a dict with keys \['a'\], and its tangent a dict"),
        ((x, [x]), (x, [x, x]), "argument 1 is a list of 1, and its tangent a list of 2"),
        ((x, None), (x, x), r"argument 1 is None, and its tangent f64\[2\]"),
        ((x, x), (x,), "2 arguments and 1 tangents"),
    ):
        for call in (gradus.jvp, gradus.hvp):
            for g in (lambda *a: (ops.sin(x) * 1.0).sum(), gradus.function(lambda *a: (ops.sin(x) * 1.0).sum())):
                with pytest.raises(gradus.Error, match=message):
                    call(g, p, t)
    shift = lambda x, by=np.ones(2): (x * x * by).sum()  # noqa: E731
    assert gradus.jvp(shift, x, x)[1].item() == 10 and gradus.hvp(shift, x, x).tolist() == [2, 4]


def test_argnums_are_any_integers():
    f = lambda a, b: a * b**2  # noqa: E731
    for n, slope, curve in ((1, 12.0, 4.0), (-1, 12.0, 4.0), (np.int64(1), 12.0, 4.0), (-2, 9.0, 0.0)):
        assert grad(f, argnums=n)(2.0, 3.0).item() == slope
        assert gradus.value_and_grad(f, argnums=n)(2.0, 3.0)[1].item() == slope
        assert gradus.jacobian(f, 2.0, 3.0, argnums=n).item() == slope
        assert gradus.hessian(f, 2.0, 3.0, argnums=n).item() == curve
        assert gradus.laplacian(f, 2.0, 3.0, argnums=n).item() == curve
        assert numbers(grad(f, argnums=(n,))(2.0, 3.0)) == (slope,)
        assert numbers(gradus.jacobian(f, 2.0, 3.0, argnums=[n])) == (slope,)
        on_leaf = gradus.jacobian(f, gradus.tensor(2.0, requires_grad=True), 3.0, argnums=n)
        assert on_leaf.detach().item() == slope
    points = np.array([1.0, 2.0])
    assert gradus.jacobian(f, 2.0, points, argnums=-1, mapped=np.int64(-1)).tolist() == [4, 8]
    assert numbers(grad(f, argnums=np.array([1, 0]))(2.0, 3.0)) == (12.0, 9.0)
    for n in (2, -3):
        for call in (lambda: grad(f, argnums=n)(2.0, 3.0), lambda: gradus.jacobian(f, 2.0, 3.0, argnums=n)):
            with pytest.raises(gradus.Error, match=f"by argument {n}: the call has 2"):
                call()
    for n in ("b", 1.0, None, (0, "b")):
        with pytest.raises(gradus.Error, match="argnums are numbers of arguments, not"):
            grad(f, argnums=n)
        with pytest.raises(gradus.Error, match="argnums are numbers of arguments, not"):
            gradus.hessian(f, 2.0, 3.0, argnums=n)
    for n in ((1, 1), (1, -1)):
        with pytest.raises(gradus.Error, match="argument 1: it is named twice"):
            grad(f, argnums=n)(2.0, 3.0)
        with pytest.raises(gradus.Error, match="argument 1: it is named twice"):
            gradus.jacobian(f, 2.0, 3.0, argnums=n)


def test_numbers_from_the_end_count_arguments_of_the_call():
    def f(x, y=3.0):
        return x * x * y * y

    for _ in range(2):
        assert float(gradus.grad(f, argnums=-1)(2.0)) == 36.0
        assert float(gradus.grad(f, argnums=-1)(2.0, y=3.0)) == 36.0
        assert float(gradus.grad(f, argnums=-1)(2.0, 3.0)) == 24.0
        value, slope = gradus.value_and_grad(lambda x, m=None: x * x, argnums=-1)(2.0)
        assert (float(value), float(slope)) == (4.0, 4.0)


def test_an_integer_too_large_for_a_float_is_an_error():
    with pytest.raises(gradus.Error, match="argument 0 is the int 1000"):
        gradus.grad(lambda a: a)(10**400)
