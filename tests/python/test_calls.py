"""How gradus.function finds the program of a call: by what it is called with, whatever way it is said."""

import dataclasses
import gc
import threading
import weakref
from collections import namedtuple

import numpy as np
import pytest

import gradus
from gradus import ops

Pair = namedtuple("Pair", "a b")


@dataclasses.dataclass(frozen=True)
class Fixed:
    value: object
    note: object = dataclasses.field(default=None, compare=False)


def counted(f, **options):
    """The function as a program, and the list that each recording is noted in."""
    calls = []

    def noted(*args, **kwargs):
        calls.append(1)
        return f(*args, **kwargs)

    noted.__signature__ = __import__("inspect").signature(f)
    return gradus.function(**options)(noted), calls


def test_one_recording_for_all_ways_to_say_the_same(rng):
    def f(x, w=np.full(3, 2.0), *rest, scale=1, **more):
        return x * w * scale + sum(rest) - more.get("z", 0.0)

    g, calls = counted(f)
    x, w, z = (rng.normal(size=3) for _ in range(3))
    for _ in range(2):
        np.testing.assert_array_equal(g(x).numpy(), x * 2.0)
        np.testing.assert_array_equal(g(x=x).numpy(), x * 2.0)
        np.testing.assert_array_equal(g(x, scale=1).numpy(), x * 2.0)
    assert len(calls) == 1
    for _ in range(2):
        np.testing.assert_array_equal(g(w=w, x=x).numpy(), x * w)
        np.testing.assert_array_equal(g(x, w).numpy(), x * w)
        np.testing.assert_array_equal(g(x, w=w).numpy(), x * w)
    assert len(calls) == 1  # the default is an array of the same shape
    for _ in range(2):
        np.testing.assert_array_equal(g(x, w, z).numpy(), x * w + z)
        np.testing.assert_array_equal(g(x, w, z=z).numpy(), x * w - z)
        np.testing.assert_array_equal(g(z=z, w=w, x=x).numpy(), x * w - z)
    assert len(calls) == 3


@pytest.mark.parametrize(
    "values",
    [
        (1, 1.0, True),
        (0.5, 0.25, -0.5),
        ("a", "b", None),
        ((1, 2), [1, 2], (1, (2,))),
        ({"a": 1}, {"b": 1}, {"a": 2}),
        (2**70, 2**71, -(2**70)),
        (Pair(1, 2), (1, 2), Pair(2, 1)),
        (gradus.f32, gradus.f64, gradus.i64),
        (0.0, -0.0),
        (complex(0.0, 0.0), complex(-0.0, 0.0), complex(0.0, -0.0)),
        ((0.0,), (-0.0,)),
        ({1: 0}, {1.0: 0}, {True: 0}),
        (Fixed(0.0), Fixed(-0.0), Fixed(Fixed(1)), Fixed(Fixed(1.0))),
    ],
)
def test_other_values_are_other_programs(values):
    seen = []

    @gradus.function
    def f(x, value):
        seen.append(value)
        return x + 1.0

    for _ in range(3):
        for v in values:
            f(np.ones(2), v)
    assert seen == list(values) and [type(v) for v in seen] == [type(v) for v in values]


def test_the_sign_of_a_zero_counts_and_a_nan_is_recorded_once(tmp_path):
    g, calls = counted(lambda x, c: 1.0 / (x * c))
    for _ in range(2):
        assert g(np.array(1.0), 0.0).item() == np.inf and g(np.array(1.0), -0.0).item() == -np.inf
    assert len(calls) == 2
    for text in ("nan", "nan", "-nan"):
        for nan in (float(text), [float(text)][0], complex(0.0, float(text)).imag):
            assert np.isnan(g(np.array(1.0), nan).item())
    assert len(calls) == 3
    gradus.save_function(g, tmp_path / "g", np.array(1.0), -0.0)
    loaded = gradus.load_function(tmp_path / "g")
    assert loaded(np.array(1.0), -0.0).item() == -np.inf
    with pytest.raises(gradus.Error, match="was saved for"):
        loaded(np.array(1.0), 0.0)


def test_shapes_dtypes_and_layouts(rng):
    g, calls = counted(lambda x: x * 2)
    a = rng.normal(size=(4, 6))
    for _ in range(2):
        for x in (a, a.T.copy().T, a[::2, ::3], a.astype(">f8"), a[:, ::-1]):
            np.testing.assert_array_equal(g(x).numpy(), np.asarray(x, "f8") * 2)
        assert g(a.astype("f4")).dtype == gradus.f32
        assert g(np.float64(3.0)).item() == 6.0
    assert len(calls) == 4  # [4, 6], [2, 2], f32, 0-d


def test_results_in_trees(rng):
    x = rng.normal(size=3)

    @gradus.function
    def f(x):
        return {"p": Pair(x * 2, [x, None]), "n": 3, 5: (x + 1,)}

    for _ in range(3):
        y = f(x)
        assert list(y) == ["p", "n", 5] and y["n"] == 3 and isinstance(y["p"], Pair)
        assert y["p"].b[1] is None and type(y[5]) is tuple and type(y["p"].b) is list
        np.testing.assert_array_equal(y["p"].a.numpy(), x * 2)
        np.testing.assert_array_equal(y["p"].b[0].numpy(), x)


def test_what_requires_gradients_is_another_program(rng):
    g, calls = counted(lambda x, w: (x * w).sum())
    x, w = (gradus.tensor(rng.normal(size=3)) for _ in range(2))
    X, W = (gradus.tensor(t, requires_grad=True) for t in (x, w))
    for _ in range(2):
        assert not g(x, w).requires_grad
        assert gradus.gradients(g(X, w), X)[0].tolist() == w.tolist()
        assert gradus.gradients(g(x, w=W), W)[0].tolist() == x.tolist()
        assert gradus.gradients(g(w=W, x=X), [X, W])[1].tolist() == x.tolist()
        with gradus.no_grad():
            assert not g(X, W).requires_grad
    assert len(calls) == 1


def test_faults_are_the_same_at_every_call():
    @gradus.function
    def f(x, y):
        return x @ y

    f(np.ones((2, 2)), np.ones((2, 2)))
    for _ in range(2):
        with pytest.raises(gradus.Error, match="matmul"):
            f(np.ones((2, 2)), np.ones((3, 2)))
        with pytest.raises(TypeError, match="missing"):
            f(np.ones((2, 2)))
        with pytest.raises(TypeError, match="unexpected"):
            f(np.ones((2, 2)), np.ones(2), z=3)
        with pytest.raises(gradus.Error, match="complex|format"):
            f(np.ones((2, 2)), np.ones((2, 2), complex))
    deep = []
    for _ in range(2000):
        deep = [deep]
    with pytest.raises((gradus.Error, RecursionError)):
        f(np.ones(2), deep)


def test_a_context_of_its_own_has_programs_of_its_own():
    g, calls = counted(lambda x: x + 1.0)
    for _ in range(2):
        assert g(np.ones(2)).tolist() == [2, 2]
        with gradus.Context(workers=1):
            assert g(np.ones(2)).tolist() == [2, 2]
    assert len(calls) == 1


def test_methods_do_not_keep_their_objects_for_ever():
    def scope():
        class Model:
            @gradus.function
            def run(self, x):
                return x * 2

        model = Model()
        assert model.run(np.ones(2)).tolist() == [2, 2]
        return weakref.ref(model)

    model = scope()
    gc.collect()
    assert model() is None


def test_threads_call_one_function(rng):
    g, _ = counted(lambda x, n: x * n)
    faults = []

    def work(seed):
        mine = np.random.default_rng(seed)
        for _ in range(200):
            x, n = mine.normal(size=int(mine.integers(1, 4))), int(mine.integers(1, 4))
            if not np.array_equal(g(x, n).numpy(), x * n):
                faults.append((x, n))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults


def test_it_is_called_within_itself(rng):
    """A recording calls the function that is being recorded, with other arguments."""

    @gradus.function
    def power(x, n):
        return x if n == 1 else power(x, n - 1) * x

    x = rng.normal(size=2)
    for _ in range(2):
        np.testing.assert_allclose(power(x, 3).numpy(), x**3)
        np.testing.assert_allclose(power(x, 2).numpy(), x**2)


def test_what_looks_like_an_array_is_one():
    class Wrapped:
        def __init__(self, a):
            self.__array_interface__ = a.__array_interface__
            self.__dlpack__, self.__dlpack_device__ = a.__dlpack__, a.__dlpack_device__

    g, calls = counted(lambda x: x * 2)
    for n in (1.0, 2.0):
        assert g(Wrapped(np.full(2, n))).tolist() == [2 * n, 2 * n]
    assert len(calls) == 1


def test_fields_that_are_left_out_of_a_hash_may_have_none():
    @dataclasses.dataclass(frozen=True)
    class Table:
        n: int
        rows: object = dataclasses.field(hash=False)

    g, calls = counted(lambda x, t: x * t.rows["scale"] * t.n)
    for scale in (2.0, 3.0):
        for _ in range(2):
            assert float(g(np.array(1.5), Table(2, {"scale": scale, "more": [1]}))) == 3.0 * scale
