"""Functions that take derivatives inside themselves, as nodes of their program. SPEC T4"""

import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from models import close

import gradus
import gradus.torch


def chain(results, x, order):
    """Results and derivatives of their squares, one from the other."""
    every = list(results)
    for _ in range(order):
        total = sum(r.square().sum() for r in every[-len(results) :])
        every += torch.autograd.grad(total, x, create_graph=True)
    return every


def forces(model):
    def of(pos):
        energy = model(pos).sum()
        (slope,) = torch.autograd.grad(energy, pos, create_graph=True)
        return energy, -slope

    return of


@pytest.mark.parametrize(
    "act", [torch.tanh, torch.sigmoid, torch.nn.functional.softplus, torch.nn.functional.gelu]
)
def test_forces_inside_have_derivatives_of_any_order(act):
    layer = torch.nn.Linear(3, 4).double()
    pos = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3).requires_grad_()
    eager = forces(lambda x: act(layer(x)))
    ours = gradus.torch.function(eager, order=3)
    for _ in range(2):
        assert close(chain(ours(pos), pos, 3), chain(eager(pos), pos, 3))


def test_a_module_that_calls_autograd_trains(x):
    class Forces(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, pos):
            return forces(lambda p: torch.tanh(self.layer(p)))(pos)

    module = Forces().double()
    at = torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(2, 3).requires_grad_()
    wanted = list(module.parameters())

    def gradients(call):
        energy, force = call(at)
        return torch.autograd.grad(energy + force.square().sum(), wanted)

    assert close(gradients(gradus.torch.function(module, order=1)), gradients(module))


def test_a_slope_without_a_graph_of_its_own_is_constant(x):
    def of(x):
        y = torch.sin(x).sum()
        (slope,) = torch.autograd.grad(y, x, retain_graph=True)
        return (slope * x).sum()

    ours = gradus.torch.function(of, order=1)
    for f in (ours, of):
        assert close(torch.autograd.grad(f(x), x), [torch.cos(x)])


TRANSFORMS = {
    "grad": lambda f: torch.func.grad(f),
    "value": lambda f: torch.func.grad_and_value(f),
    "arguments": lambda f: torch.func.grad(lambda a, b: f(a * b), argnums=(0, 1)),
    "the last": lambda f: torch.func.grad(lambda a, b: f(a * b), argnums=-1),
    "aux": lambda f: torch.func.grad(lambda a: (f(a), a * 2), has_aux=True),
    "nested": lambda f: torch.func.grad(lambda a: torch.func.grad(f)(a).square().sum()),
    "vjp": lambda f: lambda a: torch.func.vjp(torch.sin, a)[1](a * a)[0],
    "a tree": lambda f: lambda a: torch.func.grad(lambda t: f(t["u"] * t["v"][0]))(
        {"u": a, "v": [a.cos()]}
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_inside(name, x):
    f = lambda a: (torch.exp(a) * torch.tanh(a)).sum()
    eager = TRANSFORMS[name](f)
    args = (x, (x * 0.5).detach()) if name in ("arguments", "the last") else (x,)
    ours = gradus.torch.function(eager, order=2)
    flat = lambda results: torch.utils._pytree.tree_leaves(results)
    assert close(chain(flat(ours(*args)), x, 2), chain(flat(eager(*args)), x, 2))


def test_what_nothing_depends_on_has_no_gradient(x):
    def of(x, allow):
        y = x * 2
        none, slope = torch.autograd.grad(
            torch.sin(x).sum(), [y, x], create_graph=True, allow_unused=allow
        )
        return slope if none is None else none

    assert close([gradus.torch.function(of)(x, True)], [torch.cos(x)])
    with pytest.raises(gradus.torch.NotExported, match="allow_unused=True"):
        gradus.torch.function(of)(x, False)


def test_torch_func_gives_zero_for_it(x):
    of = torch.func.grad(lambda a: torch.sin(a.detach()).sum())
    assert close([gradus.torch.function(of)(x)], [torch.zeros_like(x)])


def test_backward_inside_is_refused(x):
    def of(x):
        y = torch.sin(x).sum()
        y.backward()
        return y

    with pytest.raises(gradus.torch.NotExported, match=r"use torch\.autograd\.grad"):
        gradus.torch.function(of)(x)


OTHER_TRANSFORMS = {
    "torch.vmap": lambda a: torch.vmap(torch.sin)(a),
    "torch.func.jvp": lambda a: torch.func.jvp(torch.sin, (a,), (a,))[1],
    "torch.func.jacrev": lambda a: torch.func.jacrev(torch.sin)(a),
    "torch.func.jacfwd": lambda a: torch.func.jacfwd(torch.sin)(a),
    "torch.func.hessian": lambda a: torch.func.hessian(lambda a: a.sin().sum())(a),
    "torch.func.linearize": lambda a: torch.func.linearize(torch.sin, a)[0],
    "is_grads_batched": lambda a: torch.autograd.grad(
        a.sin(), a, torch.stack([a, a]), is_grads_batched=True
    )[0],
    "vectorize": lambda a: torch.autograd.functional.jacobian(torch.sin, a, vectorize=True),
    "forward_ad": lambda a: forward_mode(a),
}


def forward_mode(a):
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(a, a)
        return torch.autograd.forward_ad.unpack_dual(dual.sin()).tangent


@pytest.mark.parametrize("name", OTHER_TRANSFORMS)
def test_other_transforms_inside_are_refused(name, x):
    of = OTHER_TRANSFORMS[name]
    said = rf"test_derivatives\.py:\d+: .*: [^:]*{name}.* is not supported inside"
    for ours in (gradus.torch.function(of), torch.func.grad(lambda x: gradus.torch.function(of)(x).sum())):
        with pytest.raises(gradus.torch.NotExported, match=said) as e:
            ours(x)
        assert "functional.jacobian and hessian" in str(e.value)


def test_the_innermost_transform_is_named(x):
    of = gradus.torch.function(lambda a: torch.func.grad(lambda a: torch.vmap(torch.sin)(a).sum())(a))
    with pytest.raises(gradus.torch.NotExported, match=r"torch\.vmap is not supported"):
        of(x)
    of = gradus.torch.function(lambda a: torch.vmap(torch.sin)(a).sum())
    with pytest.raises(gradus.torch.NotExported, match=r"torch\.vmap is not supported"):
        torch.func.jacrev(of)(x.detach())


@pytest.mark.parametrize("name", ["torch.vmap", "torch.func.jvp", "torch.func.jacrev"])
def test_transforms_inside_torch_compile_are_refused(name, x):
    torch._dynamo.reset()
    options = {"order": 1, "strict": True}
    ours = torch.compile(OTHER_TRANSFORMS[name], backend=gradus.torch.backend, options=options)
    step = {"torch.func.jacrev": "grad or vjp"}.get(name, name.rpartition(".")[2])
    said = rf"test_derivatives\.py:\d+: .*torch\.func .*{step}.* is not supported inside torch\.compile"
    with pytest.raises(gradus.torch.NotExported, match=said):
        ours(x)


@pytest.mark.parametrize(
    "of",
    [
        lambda a: torch.autograd.functional.hessian(lambda a: a.sin().sum(), a, create_graph=True),
        lambda a: torch.autograd.functional.jacobian(torch.sin, a, create_graph=True),
        lambda a: torch.func.jacrev(torch.sin, chunk_size=1)(a),
    ],
)
def test_loops_over_derivatives_inside(of, x):
    x = x[:2].detach().requires_grad_()
    ours = gradus.torch.function(of, order=1)
    assert close(chain([ours(x)], x, 1), chain([of(x)], x, 1))


def test_other_threads_differentiate_meanwhile(x):
    """While one thread exports, autograd is itself in others."""
    started, done = threading.Event(), threading.Event()
    found = []

    def other():
        started.wait(60)
        for _ in range(20):
            y = torch.sin(x.detach().requires_grad_())
            found.append(torch.autograd.grad(y.sum(), y)[0])
        done.set()

    def of(x):
        started.set()
        assert done.wait(60)
        return torch.autograd.grad(torch.sin(x).sum(), x, create_graph=True)[0]

    thread = threading.Thread(target=other)
    thread.start()
    result = gradus.torch.function(of)(x)
    thread.join()
    assert close([result], [torch.cos(x)])
    assert len(found) == 20 and all(close([f], [torch.ones_like(f)]) for f in found)


def test_a_write_to_a_captured_tensor_is_refused(x):
    total, calls = torch.zeros_like(x), torch.zeros((), dtype=torch.float64)

    class Holder:
        module = torch.nn.BatchNorm1d(3).double()

    def adds(a):
        total.add_(a.detach())
        return (total * a).sum()

    def counts(a):
        calls.add_(1)
        return a * calls

    def normalises(a):
        return Holder.module(a)

    for of in (adds, counts, normalises):
        with pytest.raises(gradus.Error, match="register it as a"):
            gradus.torch.function(of, order=0)(x.detach())
