"""Numbers that a model computes from sizes, and writes where no derivative passes: results, written
buffers and derivatives are eager PyTorch's."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import gradus
import gradus.torch
from torch.export import Dim
from torch_operators import Function, draw, exported

NUMBERS = {
    "power": lambda x: x * x.shape[0] ** -0.5,
    "inverse": lambda x: x * (1 / x.shape[0]),
    "linear": lambda x: x * (x.shape[0] * 0.5 + 1),
    "negative": lambda x: x - -(x.shape[0] / 3 - 2.5),
    "full": lambda x: x * torch.full((x.shape[0], 1), 1 / x.shape[0], dtype=x.dtype),
    "new_full": lambda x: x.sum() * x.new_full((2, x.shape[0]), x.shape[0] * 2.0),
    "in_no_grad": lambda x: x * without_grad(lambda: x.new_ones(3) * x.shape[0] ** 0.5).sum(),
    "within_and_after": lambda x: x * without_grad(lambda: x.sum() * (x.shape[0] * 1.5))
    + x * (x.shape[0] * 2.5),
}


def without_grad(function):
    with torch.no_grad():
        return function()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_sizes(name, dtype):
    function = NUMBERS[name]
    program = exported(Function(function), [draw([6, 4], dtype=dtype)],
                       dynamic_shapes=(({0: Dim.AUTO},),))  # fmt: skip
    for n in (6, 9):
        x = draw([n, 4], dtype=dtype, seed=n).requires_grad_()
        y = function(x)
        (slope,) = torch.autograd.grad(y.sum(), x)
        state = gradus.State(program.differentiate(1).compile())
        (result,) = state.run(x.detach().numpy())
        (found,) = state.run(torch.ones_like(y).numpy())
        assert np.asarray(result).dtype == y.detach().numpy().dtype
        tolerance = 1e-5 if dtype == torch.float32 else 1e-12
        np.testing.assert_allclose(result, y.detach().numpy(), tolerance, tolerance)
        np.testing.assert_allclose(found, slope.numpy(), tolerance, tolerance)


def test_sizes_that_are_rounded():
    def function(x):
        return torch.nn.functional.interpolate(x, scale_factor=1.5)

    program = exported(Function(function), [draw([1, 2, 6])], dynamic_shapes=(({2: Dim.AUTO},),))
    for n in (5, 6, 9):
        x = draw([1, 2, n])
        result = gradus.State(program.compile()).run(x.numpy())[0]
        np.testing.assert_allclose(result, function(x).numpy())


def test_integers_among_the_inputs():
    def program(function):
        args = [draw([3]), 5]
        return exported(Function(function), args, dynamic_shapes=(({}, Dim.DYNAMIC),))

    x = draw([3]).numpy()
    product = program(lambda x, n: x * n + n)
    for n in (5, 3):
        result = gradus.State(product.compile()).run(x, np.int64(n))[0]
        np.testing.assert_allclose(result, x * n + n)
    with pytest.raises(gradus.Error, match="an integer with a range, which would not be checked"):
        program(lambda x, n: x * n if n > 3 else -x)
    with pytest.raises(gradus.Error, match="s[0-9]+"):
        program(lambda x, n: x.sum() * torch.ones(n, dtype=x.dtype))


class Weighted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(draw([3]))

    def forward(self, x):
        with torch.no_grad():
            norm = self.w.norm().clamp_min_(1e-3)
            waves = x.sin()
            waves += 1
        return x * self.w * waves / norm


class Counted(torch.nn.Module):
    """Buffers, which no_grad writes."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(draw([3]))
        self.register_buffer("mean", draw([3], seed=1))
        self.register_buffer("out", draw([3], seed=2))

    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x, alpha=0.1)
            torch.mul(self.mean, self.w, out=self.out)
        return (x - self.mean) * self.w + self.out


def linear():
    return torch.nn.Linear(3, 2).double()


WRITERS = {
    "made_there": Weighted,
    "buffers": Counted,
    "spectral_norm": lambda: torch.nn.utils.parametrizations.spectral_norm(linear()),
    "spectral_norm_hooks": lambda: torch.nn.utils.spectral_norm(linear()),
}


@pytest.mark.parametrize("name", WRITERS)
def test_writes_without_derivatives(name):
    torch.manual_seed(0)
    x = draw([3]) if name in ("made_there", "buffers") else draw([5, 3])
    report = gradus.torch.verify(WRITERS[name]().train(), (x.requires_grad_(),), order=2)
    assert report, report


def test_a_write_that_loses_derivatives_is_refused():
    class Writes(torch.nn.Module):
        def forward(self, x):
            y = x * 2
            with torch.no_grad():
                y += 1
            return y

    with pytest.raises(gradus.Error, match="it writes without derivatives"):
        exported(Writes(), [draw([3])])
