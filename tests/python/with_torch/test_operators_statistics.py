"""Quantiles, medians, modes and histograms of torch.export's programs against PyTorch."""

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import gradus
from torch_operators import Function, check, draw, exported, ints

f64, f32 = torch.float64, torch.float32
MODES = ["linear", "lower", "higher", "nearest", "midpoint"]


@pytest.mark.parametrize("dtype", [f64, f32], ids=str)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("quantile", [torch.quantile, torch.nanquantile])
def test_quantile(quantile, mode, dtype):
    def f(x, q):
        return (
            quantile(x, 0.3, interpolation=mode).sin(),
            quantile(x, 0.77, dim=1, interpolation=mode).sin(),
            quantile(x, 0.5, dim=0, keepdim=True, interpolation=mode).sin(),
            quantile(x, 1.0, dim=-1, interpolation=mode).sin(),
            quantile(x, q, dim=1, interpolation=mode).sin(),
            quantile(x, q, dim=1, keepdim=True, interpolation=mode).sin(),
            quantile(x, q, interpolation=mode).sin(),
            quantile(x, q[1], interpolation=mode).sin(),
            quantile(x[0, 0, 0], q, dim=0, interpolation=mode).sin(),
        )

    q = torch.tensor([0.0, 0.42, 1.0, 0.58], dtype=dtype)
    check(f, draw((3, 4, 5), dtype=dtype), q)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("quantile", [torch.quantile, torch.nanquantile])
def test_quantile_of_nan_and_ties(quantile, mode):
    nan, inf = math.nan, math.inf
    # Which of equal elements has the derivative is not fixed in PyTorch.
    x = [[1.0, nan, 0.5, 2.0], [nan] * 4, [1.0, 1.0, 1.0, 2.0], [inf, nan, 3.0, 1.0]]
    f = lambda x: (
        quantile(x, 0.5, dim=1, interpolation=mode),
        quantile(x, torch.tensor([0.1, 0.9], dtype=f64), dim=0, interpolation=mode),
    )
    check(f, torch.tensor(x, dtype=f64), order=0)
    rows = torch.tensor([[1.0, 0.1, nan, 2.0], [0.5, nan, 0.7, 3.0]], dtype=f64)
    check(lambda x: quantile(x, 0.4, dim=0, interpolation=mode).sin(), rows)
    check(lambda x: quantile(x[:, :2], 0.4, dim=1, interpolation=mode).sin(), rows)


@pytest.mark.parametrize("quantile", [torch.quantile, torch.nanquantile])
def test_quantile_of_named_sizes(quantile):
    f = lambda x: (quantile(x, 0.3, dim=0).sin(), quantile(x, 0.6, dim=1).sin(), quantile(x, 0.2))
    check(f, draw((5, 3)), dynamic=True)


@pytest.mark.parametrize("dtype", [f64, f32], ids=str)
def test_nanmedian(dtype):
    nan = math.nan

    def f(x):
        with_nan = torch.where(x > 0.8, nan, x)
        return (
            x.nanmedian().sin(),
            with_nan.nanmedian().sin(),
            with_nan.nanmedian(1)[0].sin(),
            *x.nanmedian(0, True),
            *x[0, 0].nanmedian(0),
        )

    check(f, draw((4, 5), dtype=dtype))
    rows = [[nan, nan, nan], [2.0, nan, 2.0], [nan, 1.0, nan], [3.0, 1.0, 2.0]]
    check(lambda x: (*x.nanmedian(1), x.nanmedian()), torch.tensor(rows, dtype=dtype), order=0)
    check(lambda x: x.nanmedian().sin(), torch.tensor([2.0, nan, 2.0, 1.0, 3.0], dtype=dtype))
    check(lambda x: x.nanmedian(1), ints((3, 4)), order=0)
    check(lambda x: (x.nanmedian(), x.nanmedian(0)[0]), draw((5, 3), dtype=dtype), dynamic=True)


@pytest.mark.parametrize("dtype", [f64, f32], ids=str)
def test_mode(dtype):
    x = ints((4, 9), 0, 3).to(dtype)
    f = lambda x: [
        r.sin() if r.is_floating_point() else r
        for r in (*x.mode(), *x.mode(0), *x.mode(1, True), *x[0, 0].mode(), *x[:, :1].mode())
    ]
    check(f, x)
    check(lambda x: (*x.mode(0), *x.mode(1)), ints((4, 9), 0, 3), order=0)
    check(lambda x: (*x.mode(0), *x.mode(1)), ints((4, 9), 0, 3), order=0, dynamic=True)


@pytest.mark.parametrize("dtype", [f64, f32], ids=str)
def test_histogram(dtype):
    x = torch.tensor([0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 2.0, -1.0, math.nan], dtype=dtype)
    edges = torch.tensor([0.0, 0.1, 0.6, 2.0], dtype=dtype)
    f = lambda x, edges, weight: (
        torch.histc(x, 4, 0, 1),
        torch.histc(x[:6], 5),
        torch.histc(x[:1].expand(3), 4),
        torch.histc(x[:0], 3),
        torch.histc(x, 3, 2, 2.5),
        *torch.histogram(x, 4, range=(0.0, 1.0)),
        *torch.histogram(x[:6], 5),
        *torch.histogram(x[:6], 4, range=(1.0, 1.0)),
        *torch.histogram(x[:0], 4),
        *torch.histogram(x[:2] * 0 + 3, 4),
        *torch.histogram(x, edges),
        *torch.histogram(x, edges, weight=weight, density=True),
        *torch.histogram(x.reshape(3, 3), 7, range=(-1.0, 3.0), weight=weight.reshape(3, 3)),
    )
    check(f, x, edges, draw((9,), 0, 2, dtype=dtype), order=0)
    # No derivative passes, as in PyTorch.
    check(lambda x: torch.histc(x, 4, 0, 1) * x[:4], draw((9,), dtype=dtype))


def test_histogram_of_named_sizes():
    check(lambda x: (torch.histc(x, 4, 0, 1), torch.histc(x, 4)), draw((9,)), order=0, dynamic=True)


def test_refuses_bins_that_data_decide():
    with pytest.raises(gradus.Error, match="depends on data; add to a tensor of a known size"):
        exported(Function(lambda x: torch.bincount(x, minlength=4)), (ints((5,), 0, 4),))
