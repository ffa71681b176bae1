"""What PyTorch's own compiler refuses or gets wrong, as its users reported it, with the backend's
name changed: double backward through torch.compile, autograd.grad inside a compiled function, and
exports of functions that call it. SPEC T4, T5"""

import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from models import close

import gradus
import gradus.torch


@pytest.fixture(autouse=True)
def forget():
    torch._dynamo.reset()


def compiled(f, **options):
    return torch.compile(f, backend=gradus.torch.backend, **options)


def fifth_power(x):
    # Just to make sure there isn't a limit or something
    y = x * x * x * x * x * 1 * 1 * 1.0 * 1.0 * 1.0
    torch._dynamo.graph_break()
    (gx,) = torch.autograd.grad(y, x, create_graph=True)
    (ggx,) = torch.autograd.grad(gx, x)
    return gx, ggx


def test_bogus_second_order_gradients():
    x = torch.tensor(1.0, requires_grad=True)
    assert close(compiled(fifth_power)(x), fifth_power(x), 1e-6)


def test_differentiated_twice_from_outside():
    """The other case that the report's discussion names."""

    def f(x):
        return x * x * x * x * x

    tables = []
    for g in (compiled(f), f):
        x = torch.tensor(1.5, requires_grad=True)
        (gx,) = torch.autograd.grad(g(x), x, create_graph=True)
        tables.append([gx, *torch.autograd.grad(gx, x)])
    assert close(*tables, 1e-6)


def fourth_power(x):
    y = (x**4).sum()
    return torch.autograd.grad(y, x, create_graph=True)[0]


def test_second_order_after_a_gradient_inside():
    xe = torch.tensor([0.5, 1.5, 2.5, 3.5], requires_grad=True)
    he = torch.autograd.grad(fourth_power(xe).sum(), xe)[0]
    xc = torch.tensor([0.5, 1.5, 2.5, 3.5], requires_grad=True)
    gc = compiled(fourth_power)(xc)
    hc = torch.autograd.grad(gc.sum(), xc)[0]
    assert hc.tolist() == pytest.approx(he.tolist()) == [3.0, 27.0, 75.0, 147.0]


class Square(torch.nn.Module):
    def forward(self, given):
        return given * given


def test_backward_twice():
    model = compiled(Square())
    x = torch.randn(10, requires_grad=True)
    y = model(x)
    (dy,) = torch.autograd.grad(
        y, x, grad_outputs=torch.ones_like(y), create_graph=True, retain_graph=True
    )
    assert dy.requires_grad and dy.grad_fn is not None  # it was dropped silently
    (ddy,) = torch.autograd.grad(dy, x, grad_outputs=torch.ones_like(dy))
    assert close(ddy, torch.full((10,), 2.0), 1e-6)


def test_gradients_keep_their_graph():
    """Of a model's loss, with an update that is differentiated: MAML's inner step."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    model.double()
    x, y = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 1, dtype=torch.float64)
    parameters = list(model.parameters())
    tables = []
    for g in (compiled(model), model):
        loss = (g(x) - y).square().mean()
        slopes = torch.autograd.grad(loss, parameters, create_graph=True)
        assert all(s.requires_grad for s in slopes)
        penalty = sum(s.square().sum() for s in slopes) + loss
        tables.append([*slopes, *torch.autograd.grad(penalty, parameters, allow_unused=True)])
    assert close(*tables)


class Slopes(torch.nn.Module):
    """A function and its derivative."""

    def forward(self, x):
        value = x**3 - 2 * x**2 - 3
        (slope,) = torch.autograd.grad(value, x, grad_outputs=torch.ones_like(value))
        return value, slope


def test_a_module_with_a_gradient_inside():
    x = torch.randn(10, requires_grad=True)
    assert close(compiled(Slopes())(x), Slopes()(x), 1e-6)


INNER = {
    "square": lambda z: z.square().sum(),
    "sqrt": lambda z: z.square().sum().sqrt(),
    "rsqrt": lambda z: z.square().sum().rsqrt(),
    "exp": lambda z: z.square().sum().exp(),
    "norm": lambda z: torch.linalg.norm(z, dim=-1).sum(),
    "matmul": lambda z: (z @ z.mT).tanh().sum(),
}


class Forces(torch.nn.Module):
    """An energy's gradient, taken in `forward`: torch.export refuses it, or drops its graph."""

    def __init__(self, inner):
        super().__init__()
        torch.manual_seed(5)
        self.weight = torch.nn.Parameter(torch.randn(4, dtype=torch.float64) * 0.3)
        self.inner = inner

    def forward(self, x):
        energy = self.inner(x * self.weight)
        (slope,) = torch.autograd.grad(energy, x, create_graph=True)
        return energy, -slope


def trained_through_forces(f, module, x):
    energy, forces = f(x)
    loss = forces.square().sum() + energy
    return energy, forces, torch.autograd.grad(loss, module.weight)


@pytest.mark.parametrize("name", INNER)
def test_forces_inside(name):
    """Right through the backend, whether or not a graph of dynamo's has all of it."""
    module = Forces(INNER[name])
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    expected = trained_through_forces(module, module, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what cannot be imported runs eagerly
        assert close(trained_through_forces(compiled(module), module, x), expected)


@pytest.mark.parametrize("name", INNER)
def test_forces_inside_an_export(name):
    """gradus.torch.function exports it: right, or refused by name."""
    module = Forces(INNER[name])
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    expected = trained_through_forces(module, module, x)
    f = gradus.torch.function(module)
    try:
        found = trained_through_forces(f, module, x)
    except gradus.torch.NotExported as e:
        assert "torch.export refuses it" in str(e), e
        return
    assert close(found, expected)


@pytest.mark.parametrize("name", INNER)
def test_energy_forces_instead(name):
    """What is to be written in the place of that: the energy alone, and its forces from outside."""
    module = Forces(INNER[name])
    module.forward = lambda x: module.inner(x * module.weight)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    plain = Forces(INNER[name])
    expected = trained_through_forces(plain, plain, x)
    out = gradus.torch.energy_forces(module, positions="x")(x.detach())
    loss = out.forces.square().sum() + out.energy
    assert close([out.energy, out.forces], expected[:2])
    assert close(torch.autograd.grad(loss, module.weight), expected[2])
