"""Windows, and integrals and derivatives of samples, of torch.export's programs against PyTorch."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import gradus
from torch_operators import Function, check, draw, exported

f64, f32 = torch.float64, torch.float32

WINDOWS = {
    "hann": torch.hann_window,
    "hamming": torch.hamming_window,
    "blackman": torch.blackman_window,
    "bartlett": torch.bartlett_window,
    "kaiser": torch.kaiser_window,
}


@pytest.mark.parametrize("dtype", [f64, f32], ids=str)
@pytest.mark.parametrize("name", WINDOWS)
def test_window(name, dtype):
    def f(x):
        windows = [WINDOWS[name](n, dtype=dtype) for n in (0, 1, 2, 3, 8, 33)]
        windows += [WINDOWS[name](n, False, dtype=dtype) for n in (0, 1, 2, 3, 8, 33)]
        return [w * x for w in windows]

    check(f, draw((), dtype=dtype))


def test_parameters_of_windows():
    f = lambda x: (
        torch.hamming_window(9, True, 0.6, dtype=f64) * x,
        torch.hamming_window(9, False, 0.6, 0.3, dtype=f64) * x,
        *(torch.kaiser_window(9, False, beta, dtype=f64) * x for beta in (0.0, 0.5, -3.0, 80.0)),
        torch.kaiser_window(8, periodic=True, beta=5.0, dtype=f64) * x,
    )
    check(f, draw(()))


def test_refuses_a_window_without_values():
    with pytest.raises(gradus.Error, match="beta is 800; 700 is the greatest"):
        exported(Function(lambda x: torch.kaiser_window(9, True, 800.0) * x), (draw(()),))


# Of y [3, 5, 4].
INTEGRALS = {
    "unit": lambda y: (torch.trapezoid(y), torch.trapezoid(y, dim=0)),
    "step": lambda y: (torch.trapezoid(y, dx=0.3), torch.trapz(y, dx=2, dim=1)),
    "places": lambda y: (
        torch.trapezoid(y, y[0, 0].cumsum(0)),
        torch.trapezoid(y, y[0, :, 0].sin(), dim=1),
        torch.trapz(y, y[0].sin()),
        torch.trapezoid(y, y.cos(), dim=0),
        torch.trapezoid(y[0, 0], y[0, 0].exp()),
    ),
    "running": lambda y: (
        torch.cumulative_trapezoid(y),
        torch.cumulative_trapezoid(y, dx=0.3, dim=1),
        torch.cumulative_trapezoid(y, y[0, 0].cumsum(0)),
        torch.cumulative_trapezoid(y, y[0, :, 0].sin(), dim=1),
        torch.cumulative_trapezoid(y, y[0].sin()),
    ),
    "few": lambda y: (
        torch.trapezoid(y[:1], dim=0),
        torch.trapezoid(y[:0], dim=0),
        torch.cumulative_trapezoid(y[:1], dim=0),
        torch.trapezoid(y[:0], y[:0].sin(), dim=0),
    ),
}


@pytest.mark.parametrize("dtype", [f64, f32], ids=str)
@pytest.mark.parametrize("name", INTEGRALS)
def test_integral(name, dtype):
    check(lambda y: [r.sin() for r in INTEGRALS[name](y)], draw((3, 5, 4), dtype=dtype))


def test_integral_of_named_sizes():
    f = lambda y, x: (
        torch.trapezoid(y, dim=0).sin(),
        torch.cumulative_trapezoid(y, x, dim=0).sin(),
        torch.trapezoid(y).sin(),
    )
    check(f, draw((5, 4)), draw((5,), seed=1), dynamic=True)
    check(lambda y: torch.trapezoid(y), torch.arange(6).reshape(2, 3), order=0)


GRADIENTS = {
    "unit": lambda y: torch.gradient(y),
    "step": lambda y: torch.gradient(y, spacing=0.3, dim=(0, 1)),
    "steps": lambda y: torch.gradient(y, spacing=(0.3, 2.0), dim=(2, 0)),
    "places": lambda y: torch.gradient(
        y, spacing=(y[0, :, 0].exp().cumsum(0), y[:, 0, 0].exp().cumsum(0)), dim=(1, 0)
    ),
    "one": lambda y: torch.gradient(y, dim=-1),
}


@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient(name, edge_order, monkeypatch):
    plain = torch.gradient
    with monkeypatch.context() as m:
        m.setattr(torch, "gradient", lambda *a, **k: plain(*a, edge_order=edge_order, **k))
        check(lambda y: [r.sin() for r in GRADIENTS[name](y)], draw((3, 5, 4)))


def test_gradient_of_named_sizes():
    check(lambda y: [r.sin() for r in torch.gradient(y, spacing=0.5)], draw((5, 4)), dynamic=True)
    check(lambda y: torch.gradient(y)[0].sin(), draw((2,)))


def test_powers():
    x = torch.tensor([0.0, 1.0, -2.0, 0.5], dtype=f64)
    f = lambda x: (
        torch.linalg.vander(x).sin(),
        torch.linalg.vander(torch.stack([x, x + 1]), N=3).sin(),
        torch.linalg.vander(x[1], N=3).sin(),
    )
    check(f, x)
    # Eager PyTorch has no derivative of these.
    f = lambda x: (torch.vander(x), torch.vander(x, 3, True), torch.vander(x, 1))
    check(f, x, order=0)
    check(lambda x: torch.vander(x.float(), 4), torch.arange(3), order=0)
