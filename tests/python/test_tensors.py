"""Tensors, NumPy and DLPack: memory is shared where it can be, and kept as long as it is seen."""

import ctypes
import gc
import weakref

import numpy as np
import pytest

import gradus
from gradus import ops


def address(array):
    return array.__array_interface__["data"][0]


DTYPES = [
    "float64",
    "float32",
    "float16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint64",
    "uint32",
    "uint16",
    "uint8",
    "bool",
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3, 4), (3, 0)])
def test_numpy_shares_memory_both_ways(dtype, shape):
    a = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2, dtype)
    t = gradus.from_numpy(a)
    assert t.shape == shape and t.ndim == len(shape) and t.size == a.size
    b = t.numpy()
    assert b.dtype == a.dtype and b.shape == shape and np.array_equal(a, b)
    if a.size:
        assert address(a) == address(b)
        assert not b.flags.writeable  # values of programs are not changed behind their back


def test_strided_views_are_not_copied():
    a = np.arange(24.0).reshape(4, 6)
    for view in (a.T, a[::2, 1::2], a[:, :1], np.broadcast_to(a[0], (3, 6))):
        b = gradus.from_numpy(view).numpy()
        assert address(b) == address(view) and b.strides == view.strides
        assert np.array_equal(view, b)


def test_readonly_arrays_are_taken_and_stay_so():
    a = np.arange(3.0)
    a.flags.writeable = False
    b = gradus.from_numpy(a).numpy()
    assert address(a) == address(b)
    with pytest.raises(ValueError):
        b.flags.writeable = True


def test_the_array_lives_as_long_as_the_tensor():
    class Owner(np.ndarray):
        pass

    a = np.arange(1000.0).view(Owner)
    alive = weakref.ref(a)
    t = gradus.from_numpy(a)
    view = t[10:20].numpy()
    del a, t
    gc.collect()
    assert alive() is not None and view[0] == 10
    del view
    gc.collect()
    assert alive() is None


def test_the_tensor_lives_as_long_as_the_array():
    t = gradus.tensor([1.0, 2.0, 3.0])
    alive = weakref.ref(t)
    a = t.numpy()
    memory = (ctypes.c_double * 3).from_address(address(a))
    del t
    gc.collect()
    assert list(memory) == [1, 2, 3] and list(a) == [1, 2, 3]
    del a
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0)[::-1],
        np.arange(6.0).astype(">f8"),
        np.frombuffer(b"x" * 65, "u1")[1:65].view("f8"),
        np.zeros(3, [("a", "u1"), ("x", "<f4")])["x"],
    ],
)
def test_what_cannot_be_shared_is_refused_or_copied(array):
    with pytest.raises(gradus.Error):
        gradus.from_numpy(array)
    assert np.array_equal(gradus.as_tensor(array).numpy(), array)  # where a value is enough
    assert np.array_equal(ops.add(array, 0).numpy(), array)


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "U3", "O"])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises((gradus.Error, ValueError, BufferError)) as e:
        gradus.from_numpy(np.zeros(2, dtype))
    if isinstance(e.value, gradus.Error):
        assert "astype" in str(e.value)


def test_tensor_copies():
    a = np.arange(3.0)
    t = gradus.tensor(a)
    a[0] = 7
    assert t.tolist() == [0, 1, 2]
    assert gradus.tensor([[1, 2], [3, 4]]).dtype == gradus.i64
    assert gradus.tensor([1, 2], dtype="f32").numpy().dtype == np.float32
    assert gradus.tensor([1, 2], dtype=np.float16).dtype == gradus.f16
    assert gradus.tensor(2.5).item() == 2.5 and float(gradus.tensor(2.5)) == 2.5
    assert gradus.zeros((2, 3), "f32").shape == (2, 3) and gradus.ones(2).tolist() == [1, 1]


def test_bfloat16():
    t = gradus.tensor([1.0, 2.5]).to("bf16")
    assert t.dtype == gradus.bf16
    with pytest.raises(gradus.Error, match="cast the tensor to f32"):
        np.asarray(t)
    assert t.to("f32").tolist() == [1, 2.5]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack_with_numpy(dtype):
    if dtype == "bool" and np.lib.NumpyVersion(np.__version__) < "1.25.0":
        pytest.skip("this NumPy knows no bools in DLPack")
    t = gradus.from_numpy(np.array([[1, 0], [1, 1], [0, 1]], dtype))
    a = np.from_dlpack(t.T)
    assert np.array_equal(a, t.numpy().T) and address(a) == address(t.numpy())
    assert not a.flags.writeable
    b = np.array([0, 1, 1], dtype)
    u = gradus.from_dlpack(b)
    assert address(u.numpy()) == address(b)
    assert t.__dlpack_device__() == (1, 0)


def test_dlpack_capsules():
    t = gradus.tensor([1.0, 2.0])
    for version in (None, (1, 0)):
        capsule = t.__dlpack__(max_version=version)
        assert gradus.from_dlpack(capsule).tolist() == [1, 2]
        with pytest.raises(gradus.Error, match="taken already"):
            gradus.from_dlpack(capsule)
        t.__dlpack__(max_version=version)  # one that nobody takes
    alive = weakref.ref(t)
    u = gradus.from_dlpack(t)
    del t, capsule
    gc.collect()
    assert alive() is None and u.tolist() == [1, 2]


def test_dlpack_requests():
    t = gradus.tensor([1.0, 2.0])
    assert t.device == "cpu" and t.to_device("cpu").tolist() == [1, 2]
    shared = gradus.from_dlpack(t.__dlpack__(stream=None, dl_device=(1, 0), copy=False))
    assert address(shared.numpy()) == address(t.numpy())
    copied = gradus.from_dlpack(t.__dlpack__(copy=True))
    assert address(copied.numpy()) != address(t.numpy()) and copied.tolist() == [1, 2]
    with pytest.raises(gradus.Error, match="takes no stream"):
        t.__dlpack__(stream=1)
    with pytest.raises(BufferError, match="handed out there"):
        t.__dlpack__(dl_device=(2, 0))


class OnDevice:
    """A producer whose memory is on a device that nobody uses: it is not asked for it."""

    def __init__(self, device):
        self.device, self.asked = device, False

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **_):
        self.asked = True


def test_dlpack_of_devices_that_nobody_uses():
    for kind in (2, 13):  # of the device itself, and managed
        producer = OnDevice((kind, 7))
        with pytest.raises(gradus.Error, match=r"cuda:7.*use_device"):
            gradus.from_dlpack(producer)
        assert not producer.asked


def test_devices_by_name():
    for name in ("cuda", "cuda:", "cuda:x", "cuda:70000", "tpu:0", ""):
        with pytest.raises(gradus.Error, match="is no device"):
            gradus.tensor(1.0).to_device(name)
    with pytest.raises(gradus.Error):
        gradus.use_device("cpu")
    with pytest.raises(gradus.Error, match="cuda:9"):
        gradus.tensor(1.0).to_device("cuda:9")
    with pytest.raises(gradus.ResourceError, match="cuda:999 cannot be used"):
        gradus.use_device("cuda:999")


def test_operators_follow_numpy(rng):
    a, b = rng.normal(size=(3, 4)), rng.normal(size=4)
    x = gradus.from_numpy(a)
    for got, want in [
        (x + b, a + b),
        (b - x, b - a),
        (2 * x, 2 * a),
        (x / 3, a / 3),
        (1 / x, 1 / a),
        (x**2, a**2),
        (2.0**x, 2.0**a),
        (-x, -a),
        (abs(x), abs(a)),
        (x @ b, a @ b),
        (x // 0.5, a // 0.5),
        (x % 0.5, a % 0.5),
        (x < 0, a < 0),
        (x == x, a == a),
        (x.T, a.T),
        (x.sum(dim=0), a.sum(0)),
        (x.mean(), a.mean()),
        (x.reshape(2, 6), a.reshape(2, 6)),
        (x.reshape((-1, 2)), a.reshape(-1, 2)),
        (ops.cat([x, x], dim=1), np.concatenate([a, a], 1)),
        (ops.where(x > 0, x, 0.0), np.where(a > 0, a, 0)),
        (ops.linear(x, a, None), a @ a.T),
        (np.sin(x), np.sin(a)),
    ]:
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-14)
    values, places = ops.sort(x, dim=1)
    np.testing.assert_array_equal(values, np.sort(a, 1))
    np.testing.assert_array_equal(places, np.argsort(a, 1))


A, B = np.array([5, -7, 0, 12, -1]), np.array([2, 3, -1, 4, 70])
OPERATORS = {
    "&": lambda x, y: x & y,
    "|": lambda x, y: x | y,
    "^": lambda x, y: x ^ y,
    "<<": lambda x, y: x << y,
    ">>": lambda x, y: x >> y,
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "divmod": lambda x, y: divmod(x, y),
}


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, np.bool_, np.float64, np.float32])
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_integers_and_bools_follow_numpy(name, kind):
    f = OPERATORS[name]
    bits, shifts = name in "&|^", name in "<<>>"
    a, b = A.astype(kind), (abs(B) if shifts else B).astype(kind)
    number = {"b": True, "f": 1.5}.get(a.dtype.kind, 3)

    def recorded(x, y):
        return f(x, y)

    for x, y in [(a, b), (a, number), (number, b), (a[:, None], b), (a[3], b), (a[0], b[3])]:
        given = [v if v is number else gradus.from_numpy(np.array(v)) for v in (x, y)]
        ways = [f, gradus.function(recorded)]
        if isinstance(given[0], gradus.Tensor):
            ways.append(lambda s, t: f(s, t if t is number else np.asarray(y)))  # noqa: B023
        if a.dtype.kind == "f" and (bits or shifts):
            for way in ways:
                with pytest.raises(gradus.Error, match="must be an integer"):
                    way(*given)
            continue
        if kind is np.bool_ and not bits:
            continue  # NumPy makes them i8
        want = f(x, y)
        for way in ways:
            got = way(*given)
            for g, w in zip(got if name == "divmod" else [got], want if name == "divmod" else [want]):
                assert isinstance(g, gradus.Tensor)
                np.testing.assert_array_equal(g.numpy(), w)
                assert g.numpy().dtype == w.dtype


def test_unary_operators_of_integers_and_bools_follow_numpy():
    for a in (A, A.astype(np.uint8), A > 0, A[0]):
        x = gradus.from_numpy(np.array(a))
        for way in (lambda x: ~x, gradus.function(lambda x: ~x)):
            np.testing.assert_array_equal(way(x).numpy(), ~a)
            assert way(x).numpy().dtype == a.dtype
    for way in (lambda x: +x, gradus.function(lambda x: +x), gradus.vmap(lambda x: +x)):
        np.testing.assert_array_equal(way(gradus.tensor(A)).numpy(), A)
    assert gradus.grad(lambda x: +x * 3.0)(2.0).item() == 3.0
    for f in (lambda x: ~x, gradus.function(lambda x: ~x)):
        with pytest.raises(gradus.Error, match="must have an integer dtype or bool"):
            f(gradus.tensor([1.0]))
    for f in OPERATORS.values():
        for a, b in [(gradus.tensor(A), "text"), (None, gradus.tensor(A)), (gradus.tensor(A), object())]:
            with pytest.raises(TypeError):
                f(a, b)
    for f in (lambda x: -x, lambda x: +x):
        with pytest.raises(gradus.Error, match="bool"):
            f(gradus.tensor([True]))


INDICES = [
    [],
    ([], slice(1, 2)),
    (slice(None), []),
    ([[]],),
    ([], [1]),
    0,
    -1,
    (1, 2),
    slice(1, 3),
    (slice(None), slice(0, 4, 2)),
    (..., 1),
    (1, ...),
    None,
    (None, 1, slice(None), None),
    ([0, 2, 1],),
    ([0, 2], [1, 3]),
    (slice(None), [1, 1, 0]),
    np.array([True, False, True]),
    (np.int64(1), np.array([0, 3])),
    (),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indexing_follows_numpy(index):
    a = np.arange(24.0).reshape(3, 4, 2)
    np.testing.assert_array_equal(gradus.from_numpy(a)[index].numpy(), a[index])


def test_indexing_is_differentiable():
    x = gradus.tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    (x[1] * x[:, 1][0] + x[0, [0, 0, 2]]).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [[2, 12, 1], [1, 1, 1]])


def test_indexing_refuses():
    x = gradus.zeros((2, 3))
    for index in [(0, 0, 0), slice(None, None, -1), (..., ...), "x", 1.5, np.array([])]:
        with pytest.raises((gradus.Error, TypeError)):
            x[index]
    with pytest.raises(gradus.Error):
        x[5]


def test_backward_accumulates_and_modes():
    x = gradus.tensor([1.0, 2.0], requires_grad=True)
    assert x.is_leaf and x.grad is None and x.grad_fn is None
    y = (x * x).sum()
    assert y.grad_fn and not y.is_leaf
    y.backward(keep_graph=True)
    y.backward()
    np.testing.assert_array_equal(x.grad.numpy(), [4, 8])
    with pytest.raises(gradus.Error, match="keep_graph"):
        y.backward()
    with gradus.no_grad():
        assert not (x * x).requires_grad
        x.numpy()
    with pytest.raises(gradus.Error, match="detach"):
        x.numpy()
    with pytest.raises(gradus.Error, match="detach"):
        np.asarray(x)
    with pytest.raises(BufferError):
        memoryview(x)
    with pytest.raises(gradus.Error, match="detach"):
        np.from_dlpack(x)
    assert x.detach().tolist() == [1, 2]


def test_gradients_nest():
    x = gradus.tensor([0.3, -0.7], requires_grad=True)
    y = ops.sin(x).sum()
    (d1,) = gradus.gradients(y, x, create_graph=True)
    (d2,) = gradus.gradients(d1.sum(), x, create_graph=True)
    (d3,) = gradus.gradients(d2.sum(), x)
    a = x.detach().numpy()
    for got, want in [(d1, np.cos(a)), (d2, -np.sin(a)), (d3, -np.cos(a))]:
        np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-14)
    other = gradus.tensor([1.0], requires_grad=True)
    assert gradus.gradients(ops.sin(x).sum(), other) == [None]
    with pytest.raises(gradus.Error):
        gradus.gradients(ops.sin(x).sum(), other, allow_unused=False)


def test_faults_of_the_user():
    with pytest.raises(gradus.Error, match="did you mean"):
        gradus._gradus.apply("tanhh", [gradus.ones(2)], {})
    with pytest.raises(gradus.Error, match="no attribute 'dims'"):
        ops.sum(gradus.ones(2), dims=0)
    with pytest.raises(gradus.Error, match="must be a tensor or an array, not dict"):
        ops.exp({})
    with pytest.raises(gradus.Error, match="64 bits"):
        gradus.ones(2) + 2**70
    with pytest.raises(TypeError):
        gradus.ones(2) + "x"
    with pytest.raises(gradus.Error, match="one element"):
        gradus.ones(2).item()
    with pytest.raises(gradus.Error, match="no dtype"):
        gradus.ones(2).to("float80")


def test_hooks():
    x = gradus.tensor([1.0, 2.0], requires_grad=True)
    seen = []
    key = x.register_hook(lambda g: seen.append(g.tolist()))
    double = x.register_hook(lambda g: g * 2)
    (x * x).sum().backward()
    assert seen == [[2, 4]] and x.grad.tolist() == [4, 8]
    assert x.remove_hook(key) and x.remove_hook(double) and not x.remove_hook(key)
    y = x * 3

    def fails(g):
        raise LookupError("in a hook")

    y.register_hook(fails)
    with pytest.raises(LookupError, match="in a hook"):
        y.sum().backward()
    assert len(seen) == 1


def test_eager_calls_have_the_type_rules_of_programs():
    x = gradus.tensor(np.array([1, 2, 4], np.int32))
    with pytest.raises(gradus.Error, match="i32.*a mean takes a floating dtype"):
        ops.mean(x)
