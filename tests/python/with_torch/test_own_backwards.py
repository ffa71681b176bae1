"""Gradients that a function defines itself, which no exported program has. SPEC T4"""

import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from models import close

import gradus
import gradus.torch


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -g


class Square(torch.autograd.Function):
    """With the backward that its forward has."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 2 * g * ctx.saved_tensors[0]


bound = Reverse.apply


def reversed_product(x):
    return (Reverse.apply(x) * x).sum()


def bound_before(x):
    return bound(x).sin().sum()


def squares(x):
    return Square.apply(x).sum()


def in_a_branch(x):
    return torch.cond(x.sum() > 1e3, lambda x: x.sin(), lambda x: Reverse.apply(x).cos(), (x,)).sum()


def hooked(x):
    y = x * 1.0
    y.register_hook(lambda g: g * 2)
    return y.sum()


def hooked_argument(x):
    x.register_hook(lambda g: g * 2)
    return x.sin().sum()


def hooked_together(x):
    y = x * 1.0
    torch.autograd.graph.register_multi_grad_hook((y,), lambda g: None)
    return y.sum()


class Normalised(torch.nn.Module):
    def forward(self, x):
        return torch.nn.CrossMapLRN2d(2)(x.reshape(1, 2, 3, 2)).sum()


REFUSED = {
    "other backward": (reversed_product, "Function 'Reverse'"),
    "bound before": (bound_before, "Function 'Reverse'"),
    "same backward": (squares, "Function 'Square'"),
    "branch": (in_a_branch, "Reverse"),
    "torch's own": (Normalised(), r"torch\.nn\.modules\._functions\.CrossMapLRN2d"),
    "hook": (hooked, "register_hook"),
    "hook of an argument": (hooked_argument, "register_hook"),
    "hook of several": (hooked_together, "register_hook"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, x):
    f, said = REFUSED[name]
    with pytest.raises(gradus.torch.NotExported, match=said) as e:
        gradus.torch.function(f)(x)
    assert "torch.export drops" in str(e.value) and "test_own_backwards.py:" in str(e.value)


def graphs(f, **options):
    torch._dynamo.reset()
    return torch.compile(f, backend=gradus.torch.backend, options=options)


@pytest.mark.parametrize("name", ["other backward", "same backward", "branch", "hook"])
def test_compiled(name, x):
    f, _ = REFUSED[name]
    with pytest.raises(gradus.torch.NotExported, match=r"test_own_backwards\.py:\d+: .*drops") as e:
        graphs(f, strict=True)(x)
    assert "While executing" not in str(e.value)
    ours = graphs(f)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        slope = torch.autograd.grad(ours(x), x)
    assert close(slope, torch.autograd.grad(f(x), x))
    assert len([w for w in caught if "gradus runs a graph" in str(w.message)]) == 1


@pytest.mark.parametrize("full", [True, False])
def test_hooks_of_modules(model, x, full):
    layer = model.first
    handle = (layer.register_full_backward_hook if full else layer.register_backward_hook)(
        lambda module, given, slopes: None
    )
    with pytest.raises(gradus.torch.NotExported, match="module 'first' has a backward hook"):
        gradus.torch.function(model)(x)
    assert close([gradus.torch.function(model, order=0)(x.detach())], [model(x)])
    handle.remove()
    gradus.torch.function(model)(x)


def test_hooks_of_every_module(model, x):
    hook = torch.nn.modules.module.register_module_full_backward_hook
    handle = hook(lambda module, given, slopes: None)
    try:
        with pytest.raises(gradus.torch.NotExported, match="BackwardHookFunction"):
            gradus.torch.function(model)(x)
    finally:
        handle.remove()


@pytest.mark.parametrize("f", [reversed_product, hooked, in_a_branch])
def test_without_derivatives(f, x):
    for ours in (gradus.torch.function(f, order=0), graphs(f, order=0, strict=True)):
        assert close([ours(x.detach())], [f(x)])


@pytest.mark.parametrize("order", [0, 1])
def test_derivatives_inside(order, x):
    def slope(f):
        return lambda x: torch.autograd.grad(f(x), x)[0]

    for f in (reversed_product, hooked):
        with pytest.raises(gradus.torch.NotExported, match="drops"):
            gradus.torch.function(slope(f), order=order)(x)
        with pytest.raises(gradus.torch.NotExported, match="drops"):
            gradus.torch.function(torch.func.grad(f), order=order)(x)


def test_no_grad(x):
    def f(x):
        with torch.no_grad():
            kept = Reverse.apply(x)
        return (kept * x.sin()).sum()

    slopes = [torch.autograd.grad(f(x), x) for f in (gradus.torch.function(f), f)]
    assert close(*slopes)


def test_checkpoint(x):
    """Its backward is the derivative of what it calls."""

    def f(x):
        return torch.utils.checkpoint.checkpoint(lambda x: x.sin().exp(), x, use_reentrant=True).sum()

    (slope,) = torch.autograd.grad(gradus.torch.function(f)(x), x, create_graph=True)
    assert close([slope], [x.cos() * x.sin().exp()])
    wanted = (x.cos() ** 2 - x.sin()) * x.sin().exp()
    assert close(torch.autograd.grad(slope.sum(), x), [wanted])


def test_written_with_operators(x):
    for f, slope in (
        (lambda x: (2 * x.detach() - x).sum(), -torch.ones_like(x)),
        (lambda x: (x + (x.round() - x).detach()).sum(), torch.ones_like(x)),
    ):
        assert close(torch.autograd.grad(gradus.torch.function(f)(x), x), [slope])
