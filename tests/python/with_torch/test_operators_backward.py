"""Gradients that ATen has as operators of their own, against PyTorch."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch_operators import check, draw, ints

aten = torch.ops.aten
ALL = [True, True, True]


class By(torch.nn.Module):
    """An operator at further arguments, which are no tensors that are differentiated."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *x):
        return self.function(*x)


@pytest.mark.parametrize("stride, padding, groups", [(1, 0, 1), (2, 1, 1), (1, 1, 2)])
def test_convolution(stride, padding, groups):
    x, w = draw((2, 4, 6, 5)), draw((6, 4 // groups, 3, 3), seed=1)
    y = torch.nn.functional.conv2d(x, w, None, stride, padding, 1, groups)
    module = By(
        lambda dy, x, w: aten.convolution_backward(
            dy, x, w, [6], [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups, ALL
        )
    )
    check(module, draw(y.shape, seed=2), x, w)


def test_a_convolution_without_its_input():
    module = By(
        lambda dy, x, w: aten.convolution_backward(
            dy, x, w, [3], [1], [0], [1], False, [0], 1, [False, True, True]
        )[1:]
    )
    check(module, draw((2, 3, 4)), draw((2, 2, 6), seed=1), draw((3, 2, 3), seed=2))


# Mean and deviation are operands: in a program they follow from x, here they are numbers.
@pytest.mark.parametrize("weights", [True, False])
def test_layer_norm(weights):
    def backward(dy, x, mean, rstd, w):
        w = w if weights else None
        mask = [True, weights, weights]
        found = aten.native_layer_norm_backward(dy, x, [4, 3], mean, rstd, w, w, mask)
        return [f for f, m in zip(found, mask) if m]

    x = draw((2, 5, 4, 3))
    rows = (2, 5, 1, 1)
    mean, rstd = draw(rows, seed=1), draw(rows, 0.5, 2, seed=2)
    check(By(backward), draw(x.shape, seed=3), x, mean, rstd, draw((4, 3), seed=4), order=0)


@pytest.mark.parametrize("weights", [True, False])
def test_group_norm(weights):
    def backward(dy, x, mean, rstd, w):
        w = w if weights else None
        mask = [True, weights, weights]
        found = aten.native_group_norm_backward(dy, x, mean, rstd, w, 2, 6, 20, 3, mask)
        return [f for f, m in zip(found, mask) if m]

    x = draw((2, 6, 4, 5))
    mean, rstd = draw((2, 3), seed=1), draw((2, 3), 0.5, 2, seed=2)
    check(By(backward), draw(x.shape, seed=3), x, mean, rstd, draw((6,), seed=4), order=0)


# The norm's own derivative, through what its program keeps. Of the next one PyTorch forgets that mean and deviation
# follow from x: its gradgradcheck fails.
def test_through_a_layer_norm():
    def both(dy, x, w, b):
        y, mean, rstd = aten.native_layer_norm(x, [3], w, b, 1e-5)
        return (y, *aten.native_layer_norm_backward(dy, x, [3], mean, rstd, w, b, ALL))

    check(By(both), draw((4, 3)), draw((4, 3), seed=1), draw((3,), seed=2), draw((3,), seed=3), order=1)


def test_windows():
    x = draw((2, 3, 6, 6))
    mean = By(
        lambda dy, x: aten.avg_pool2d_backward(dy, x, [3, 3], [2, 2], [1, 1], False, False, None)
    )
    check(mean, draw((2, 3, 3, 3), seed=1), x)
    greatest = By(
        lambda dy, x: aten.max_pool2d_with_indices_backward(
            dy, x, [2, 2], [2, 2], [0, 0], [1, 1], False,
            aten.max_pool2d_with_indices(x.detach(), [2, 2])[1],
        )
    )
    check(greatest, draw((2, 3, 3, 3), seed=1), x)
    adaptive = By(lambda dy, x: aten._adaptive_avg_pool2d_backward(dy, x))
    check(adaptive, draw((2, 3, 4, 2), seed=1), x)


def test_embedding():
    module = By(lambda dy, i: aten.embedding_dense_backward(dy, i, 7, 2, False))
    check(module, draw((3, 4, 5)), ints((3, 4), 0, 7))
