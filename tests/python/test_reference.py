"""Values and derivatives against PyTorch and JAX, where they are installed."""

import numpy as np
import pytest

import gradus
from gradus import ops


def mlp(lib, x, w1, b1, w2):
    """Two layers, a softmax and a penalty, by any of the libraries' functions."""
    h = lib["tanh"](x @ w1 + b1)
    p = lib["softmax"](h @ w2)
    return (p * p).sum() + 0.1 * (lib["sin"](h) * h).sum()


OURS = {"tanh": ops.tanh, "sin": ops.sin, "softmax": lambda x: ops.softmax(x, dim=1)}


def arguments(rng, shape):
    n, k, m, c = shape
    return [
        rng.normal(size=s) for s in [(n, k), (k, m), (m,), (m, c)]
    ]


SHAPES = [(3, 4, 5, 2), (1, 2, 1, 3), (6, 1, 3, 4)]


def ours(values, along):
    """The value, the gradients, and the Hessian along a direction, each way that we have."""
    f = gradus.function(lambda *v: mlp(OURS, *v), order=2)
    X = [gradus.tensor(v, requires_grad=True) for v in values]
    y = f(*X)
    g = gradus.gradients(y, X, create_graph=True)
    inner = sum(((a * b).sum() for a, b in zip(g, along)), start=gradus.tensor(0.0))
    h = gradus.gradients(inner, X)
    eager = mlp(OURS, *X)
    again = gradus.gradients(eager, X)
    forward = gradus.hvp(f, tuple(values), tuple(along))
    for a, b in zip(g, again):
        np.testing.assert_allclose(a.detach().numpy(), b.numpy(), rtol=1e-12, atol=1e-14)
    for a, b in zip(h, forward):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-12)
    return y.detach().item(), [a.detach().numpy() for a in g], [a.numpy() for a in h]


def compare(got, want):
    np.testing.assert_allclose(got[0], want[0], rtol=1e-12)
    for order in (1, 2):
        for a, b in zip(got[order], want[order]):
            np.testing.assert_allclose(a, np.asarray(b), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_torch(shape, rng):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    values, along = arguments(rng, shape), arguments(rng, shape)
    theirs = {"tanh": torch.tanh, "sin": torch.sin, "softmax": lambda x: torch.softmax(x, 1)}
    X = [torch.tensor(v, requires_grad=True) for v in values]
    y = mlp(theirs, *X)
    g = torch.autograd.grad(y, X, create_graph=True)
    inner = sum((a * torch.tensor(b)).sum() for a, b in zip(g, along))
    h = torch.autograd.grad(inner, X)
    compare(ours(values, along), (y.item(), [a.detach() for a in g], h))


@pytest.mark.parametrize("shape", SHAPES)
def test_jax(shape, rng):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy
    values, along = arguments(rng, shape), arguments(rng, shape)
    theirs = {"tanh": jnp.tanh, "sin": jnp.sin, "softmax": lambda x: jax.nn.softmax(x, 1)}

    def f(v):
        return mlp(theirs, *v)

    y, g = jax.value_and_grad(f)(values)
    _, h = jax.jvp(jax.grad(f), (values,), (along,))
    compare(ours(values, along), (y.item(), g, h))


def test_torch_memory_is_shared(rng):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a = torch.arange(6, dtype=torch.float64).reshape(2, 3)
    t = gradus.from_dlpack(a.T)
    assert t.shape == (3, 2) and t.numpy().__array_interface__["data"][0] == a.data_ptr()
    np.testing.assert_array_equal(t.numpy(), a.T.numpy())
    back = torch.from_dlpack(t)
    assert back.data_ptr() == a.data_ptr() and torch.equal(back, a.T)
    half = torch.tensor([1.0, 2.5], dtype=torch.bfloat16)
    assert gradus.from_dlpack(half).dtype == gradus.bf16
    state = gradus.State(
        gradus.parse("graph g { stage 0 (%x: f64[N, M]) { %y = exp(%x) return %y } }").compile()
    )
    np.testing.assert_allclose(state.run(a)[0].numpy(), np.exp(a.numpy()), rtol=1e-15)


def test_jax_memory_is_shared(rng):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    jax.config.update("jax_enable_x64", True)
    a = jax.numpy.arange(6.0)
    t = gradus.from_dlpack(a)
    assert t.numpy().__array_interface__["data"][0] == a.unsafe_buffer_pointer()
    np.testing.assert_array_equal(jax.dlpack.from_dlpack(gradus.tensor([1.0, 2.0])), [1, 2])


def test_python_op_of_torch(rng, fresh):
    """A PyTorch function with its own backward, as an instruction."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    def forward(ctx, x):
        ctx.save(x)
        return torch.from_dlpack(x.detach()).sin().detach()

    op = gradus.python_op(fresh(), forward, lambda ctx, dy: dy * ops.cos(ctx.saved[0]))
    assert gradus.gradcheck(gradus.trace(lambda x: op(x) * x, rng.normal(size=3)), 2)
