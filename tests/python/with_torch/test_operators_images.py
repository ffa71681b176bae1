"""Convolutions, pools and images of other sizes of torch.export's programs against PyTorch."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
F = torch.nn.functional

import gradus
from torch_operators import Function, check, draw, exported

f64, f32 = torch.float64, torch.float32


def tuple_of(results):
    return (results,) if isinstance(results, torch.Tensor) else results


# Of an image x [2, 4, 6, 5], a kernel w [6, 2, 3, 2] and a bias b [6].
CONVOLUTIONS = {
    "conv2d": lambda x, w, b: (
        F.conv2d(x[:, :2], w),
        F.conv2d(x, w, b, stride=2, padding=(1, 2), dilation=(1, 2), groups=2),
        F.conv2d(x[0], w, b, groups=2),
    ),
    "same": lambda x, w, b: (
        F.conv2d(x, w, b, padding="same", groups=2),
        F.conv2d(x, w, padding="same", dilation=(2, 3), groups=2),
        F.conv2d(x, w, padding="valid", groups=2),
    ),
    "conv1d": lambda x, w, b: (
        F.conv1d(x[..., 0], w[..., 0], b, stride=2, padding=1, groups=2),
        F.conv1d(x[..., 0], w[:, :, :2, 0], padding="same", groups=2),
    ),
    "conv3d": lambda x, w, b: F.conv3d(
        x[:, :, None].expand(2, 4, 3, 6, 5), w[:, :, None].repeat(1, 1, 2, 1, 1), b, groups=2
    ),
    "transposed": lambda x, w, b: (
        F.conv_transpose2d(x, w[:4]),
        F.conv_transpose2d(x, w[:4], b[:4], 2, (1, 0), (1, 1), 2, (1, 2)),
        F.conv_transpose2d(x[0], w[:4]),
    ),
    "transposed_1d": lambda x, w, b: F.conv_transpose1d(x[..., 0], w[:4, ..., 0], b[:2], 3, 1, 1),
    "transposed_3d": lambda x, w, b: F.conv_transpose3d(
        x[:, :, None], w[:4, :, None].repeat(1, 1, 2, 1, 1), b[:2], 2
    ),
    "convolution": lambda x, w, b: (
        torch.ops.aten.convolution(x, w, b, [1, 1], [1, 1], [1, 1], False, [0, 0], 2),
        torch.ops.aten.convolution(x, w[:4], None, [2, 2], [1, 1], [1, 1], True, [1, 1], 1),
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [f64, f32], ids=str)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name, dtype):
    check(
        lambda x, w, b: [r.sin() for r in tuple_of(CONVOLUTIONS[name](x, w, b))],
        draw((2, 4, 6, 5), dtype=dtype),
        draw((6, 2, 3, 2), dtype=dtype, seed=1),
        draw((6,), dtype=dtype, seed=2),
    )


# Of an image [2, 3, 6, 7].
IMAGES = {
    "max_pool2d": lambda x: (
        F.max_pool2d(x, 2),
        F.max_pool2d(x, (3, 2), (2, 1), (1, 1), (1, 2), ceil_mode=True),
        F.max_pool2d(x[0], 3),
    ),
    "max_pool_indices": lambda x: (
        *F.max_pool2d(x, 2, return_indices=True),
        *F.max_pool1d(x[..., 0], 3, 2, return_indices=True),
    ),
    "max_pool1d": lambda x: (F.max_pool1d(x[..., 0], 2), F.max_pool1d(x[0, :, 0], 3, 2, 1)),
    "max_pool3d": lambda x: F.max_pool3d(x[:, None], (2, 3, 2), padding=(1, 1, 0)),
    "avg_pool2d": lambda x: (
        F.avg_pool2d(x, 2),
        F.avg_pool2d(x, (3, 2), (2, 1), (1, 1), ceil_mode=True),
        F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        F.avg_pool2d(x, 3, 2, 1, divisor_override=5),
        F.avg_pool2d(x, 4, 3, 1, ceil_mode=True, divisor_override=2),
        F.avg_pool2d(x[0], 2),
    ),
    "avg_pool1d": lambda x: F.avg_pool1d(x[..., 0], 3, 2, 1),
    "avg_pool3d": lambda x: F.avg_pool3d(x[:, None], 2),
    "adaptive_avg": lambda x: (
        F.adaptive_avg_pool2d(x, 1),
        F.adaptive_avg_pool2d(x, (4, 3)),
        F.adaptive_avg_pool2d(x, (None, 2)),
        F.adaptive_avg_pool2d(x[0], (2, 7)),
        F.adaptive_avg_pool1d(x[..., 0], 4),
        F.adaptive_avg_pool3d(x[:, None], (2, 4, 3)),
    ),
    "adaptive_max": lambda x: (
        F.adaptive_max_pool2d(x, (4, 3)),
        F.adaptive_max_pool1d(x[..., 0], 4),
        F.adaptive_max_pool3d(x[:, None], (2, 4, 3)),
        *F.adaptive_max_pool2d(x, (3, 7), return_indices=True),
    ),
    "lp_pool": lambda x: F.lp_pool2d(x.abs() + 1, 2, 2),
    "unfold": lambda x: (F.unfold(x, (2, 3)), F.unfold(x, 2, 2, 1, 2), F.unfold(x[0], 2)),
    "fold": lambda x: (
        F.fold(x.reshape(2, 18, 7)[:, :, :6], (4, 4), (3, 2)),
        F.fold(x.reshape(2, 18, 7)[0, :, :6], (3, 5), (3, 2), padding=1, stride=2),
    ),
    "nearest": lambda x: (
        F.interpolate(x, scale_factor=2),
        F.interpolate(x, (4, 11)),
        F.interpolate(x, scale_factor=(0.7, 2.3)),
        F.interpolate(x[..., 0], 11),
        F.interpolate(x[:, None], (4, 7, 5)),
        F.interpolate(x, (4, 11), mode="nearest-exact"),
        F.interpolate(x[..., 0], 13, mode="nearest-exact"),
        # Sizes that stay: some modes go by the scale.
        F.interpolate(x[..., 0], scale_factor=1.1, mode="nearest-exact"),
        F.interpolate(x, scale_factor=(1.1, 2.0), mode="nearest-exact"),
        F.interpolate(x, scale_factor=(1.1, 2.0)),
    ),
    "linear": lambda x: (
        F.interpolate(x, scale_factor=2, mode="bilinear"),
        F.interpolate(x, (4, 11), mode="bilinear"),
        F.interpolate(x, (4, 11), mode="bilinear", align_corners=True),
        F.interpolate(x, (1, 1), mode="bilinear", align_corners=True),
        F.interpolate(x, scale_factor=(0.7, 2.3), mode="bilinear"),
        F.interpolate(
            x, scale_factor=(0.7, 2.3), mode="bilinear", recompute_scale_factor=True
        ),
        F.interpolate(x[..., 0], 11, mode="linear"),
        F.interpolate(x, scale_factor=(1.1, 2.0), mode="bilinear"),
        F.interpolate(x[:, None], (4, 7, 5), mode="trilinear"),
    ),
    "cubic": lambda x: (
        F.interpolate(x, (4, 11), mode="bicubic"),
        F.interpolate(x, (9, 5), mode="bicubic", align_corners=True),
        F.interpolate(x, scale_factor=1.5, mode="bicubic"),
        F.interpolate(x, scale_factor=(1.1, 2.0), mode="bicubic"),
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [f64, f32], ids=str)
@pytest.mark.parametrize("name", IMAGES)
def test_image(name, dtype):
    def results(x):
        return [r.sin() if r.is_floating_point() else r for r in tuple_of(IMAGES[name](x))]

    check(results, draw((2, 3, 6, 7), dtype=dtype))


def test_scales_that_keep_the_sizes():
    # The backward pass of PyTorch copies: it is not that of its forward pass.
    check(
        lambda x: (
            F.interpolate(x, scale_factor=1.1, mode="bicubic"),
            F.interpolate(x[..., 0], scale_factor=1.1),
            F.interpolate(x[:, None], scale_factor=1.1),
            F.interpolate(x, scale_factor=1.1),
            F.interpolate(x[:, :, :5, :5], scale_factor=2.1),
            F.interpolate(x, scale_factor=1.1, mode="bilinear", antialias=True),
            F.interpolate(x, scale_factor=(1.1, 0.5), mode="bicubic", antialias=True),
            F.interpolate(x, scale_factor=(0.5, 1.1), mode="bicubic", antialias=True),
        ),
        draw((2, 3, 6, 7)),
        order=0,
    )


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(mode, padding, align_corners):
    def sampled(x, grid):
        return F.grid_sample(
            x, grid, mode=mode, padding_mode=padding, align_corners=align_corners
        )

    # Eager PyTorch has no second derivative of it.
    check(sampled, draw((2, 3, 4, 5)), draw((2, 6, 7, 2), -1.4, 1.4, seed=1), order=1)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_grid_sample_of_volumes(mode, padding, align_corners):
    def sampled(x, grid):
        return F.grid_sample(
            x, grid, mode=mode, padding_mode=padding, align_corners=align_corners
        )

    x, grid = draw((2, 2, 3, 4, 5)), draw((2, 2, 3, 2, 3), -1.4, 1.4, seed=1)
    check(sampled, x, grid, order=1)
    check(sampled, x.float(), grid.float(), order=1)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("dtype", [f64, f32], ids=str)
def test_affine_grid(dtype, align_corners):
    planes, volumes = draw((2, 2, 3), dtype=dtype), draw((2, 3, 4), dtype=dtype, seed=1)
    f = lambda p, v: (
        F.affine_grid(p, (2, 3, 4, 5), align_corners=align_corners).sin(),
        F.affine_grid(p, (2, 1, 1, 3), align_corners=align_corners).sin(),
        F.affine_grid(v, (2, 3, 2, 4, 3), align_corners=align_corners).sin(),
        F.affine_grid(v, (2, 3, 2, 1, 1), align_corners=align_corners).sin(),
    )
    check(f, planes, volumes)


def test_affine_grid_of_named_sizes():
    # PyTorch makes constants of the sizes of the images.
    named = torch.export.Dim.DYNAMIC
    check(
        lambda p, x: F.grid_sample(x, F.affine_grid(p, x.shape, align_corners=False)),
        draw((2, 2, 3)),
        draw((2, 3, 4, 5), seed=1),
        order=1,
        dynamic_shapes=(({0: named}, {0: named}),),
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("dtype", [f64, f32], ids=str)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialias(mode, dtype, align_corners):
    def f(x):
        to = lambda **o: F.interpolate(
            x, mode=mode, antialias=True, align_corners=align_corners, **o
        ).sin()
        return (
            to(size=(3, 3)),
            to(size=(2, 11)),
            to(size=(1, 7)),
            to(size=(6, 7)),
            to(scale_factor=(0.4, 1.7)),
            to(scale_factor=0.3),
            to(scale_factor=0.3, recompute_scale_factor=True),
        )

    check(f, draw((2, 3, 6, 7), dtype=dtype))


def test_antialias_of_named_sizes():
    n, h = torch.export.Dim("n", min=2, max=50), torch.export.Dim("h", min=2, max=50)
    f = lambda x, **o: F.interpolate(x, mode="bilinear", antialias=True, **o).sin()
    named = (({0: n, 2: 2 * h},),)
    check(lambda x: f(x, scale_factor=0.5), draw((2, 3, 8, 7)), dynamic_shapes=named)
    check(lambda x: f(x, size=(3, 4)), draw((2, 3, 8, 7)), dynamic_shapes=(({0: n},),))
    with pytest.raises(gradus.Error, match="has to have a known size"):
        exported(
            Function(lambda x: f(x, size=(3, 4))), (draw((2, 3, 8, 7)),), dynamic_shapes=named
        )


def test_max_unpool():
    def f(x):
        pooled = [
            F.max_pool2d(x, 2, return_indices=True),
            F.max_pool2d(x[0, ..., :6], (3, 2), return_indices=True),
            F.max_pool1d(x[..., 0], 3, return_indices=True),
            F.max_pool3d(x[:, None, ..., :6], (1, 2, 3), return_indices=True),
        ]
        return (
            F.max_unpool2d(*pooled[0], 2, output_size=(6, 7)).sin(),
            F.max_unpool2d(*pooled[1], (3, 2)).sin(),
            F.max_unpool1d(*pooled[2], 3).sin(),
            F.max_unpool3d(*pooled[3], (1, 2, 3)).sin(),
        )

    check(f, draw((2, 3, 6, 7)))
    check(f, draw((2, 3, 6, 7), dtype=f32))


def test_named_sizes():
    n, h = torch.export.Dim("n", min=2, max=50), torch.export.Dim("h", min=2, max=50)

    def network(x, w):
        y = F.conv2d(x, w, padding=1)
        z = F.max_pool2d(y, 2)
        return (
            F.interpolate(z, scale_factor=2),
            F.interpolate(z, scale_factor=2, mode="bilinear"),
            F.adaptive_avg_pool2d(y, 1),
            F.avg_pool2d(y, 2),
            F.conv_transpose2d(z, w[:3, :2], stride=2),
        )

    check(
        network,
        draw((2, 2, 8, 6)),
        draw((3, 2, 3, 3), seed=1),
        dynamic_shapes=(({0: n, 2: 2 * h}, None),),
    )
