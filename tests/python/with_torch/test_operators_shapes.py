"""Tensors put together, and new ones, of torch.export's programs against PyTorch."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
F = torch.nn.functional

import gradus
from torch_operators import Function, check, default_dtype, draw, exported, ints

f64, f32, i64, i32, i8 = torch.float64, torch.float32, torch.int64, torch.int32, torch.int8

# Of [4, 3, 5].
PUT_TOGETHER = {
    "cat": lambda x: (torch.cat([x, x[:, :1]], 1), torch.cat((x, x.float()), -1)),
    "cat_empty": lambda x: torch.cat([torch.zeros(0), x, torch.zeros(0)], 2),
    "concat": lambda x: (torch.concat([x, x]), torch.concatenate([x[:1], x], 0)),
    "stack": lambda x: (torch.stack([x, x * 2]), torch.stack([x[0], x[1]], -1)),
    "hstack": lambda x: (torch.hstack([x, x]), torch.hstack([x[0, 0], x[1, 1, :2]])),
    "hstack_numbers": lambda x: torch.hstack([x[0, 0, 0], x[1, 1, 2]]),
    "vstack": lambda x: (torch.vstack([x[0, 0], x[1]]), torch.row_stack([x, x])),
    "dstack": lambda x: (torch.dstack([x[0], x[1]]), torch.dstack([x[0, 0], x[1, 1]])),
    "column_stack": lambda x: torch.column_stack([x[0, :, 0], x[1], x[2, :, 1:2]]),
    "block_diag": lambda x: torch.block_diag(x[0], x[1, 0], x[0, 0, 0], x[1, :, :2]),
    "meshgrid": lambda x: torch.meshgrid(x[0, 0], x[:, 0, 0], indexing="ij"),
    "meshgrid_xy": lambda x: torch.meshgrid(x[0, 0], x[:, 0, 0], x[0, :, 1], indexing="xy"),
    "cartesian_prod": lambda x: (
        torch.cartesian_prod(x[0, 0], x[:, 0, 0], x[0, :, 1]),
        torch.cartesian_prod(x[0, 0]) * 1,
    ),
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x[:1, :, :1], x[0, 0], x),
    "broadcast_to": lambda x: x[:, :1].broadcast_to((2, 4, 3, 5)),
    "atleast": lambda x: torch.atleast_3d(x[0], x[0, 0], x[0, 0, 0]),
    "repeat": lambda x: (x.repeat(2, 1, 3), x.repeat(2, 1, 1, 2)),
    "repeat_none": lambda x: x.repeat(1, 0, 2),
    "tile": lambda x: (x.tile(2, 3), x.tile(2, 1, 1, 2)),
    "repeat_interleave": lambda x: (
        x.repeat_interleave(2, 1),
        x.repeat_interleave(3),
        x.repeat_interleave(torch.tensor([2, 0, 1]), dim=1, output_size=3),
        x.repeat_interleave(torch.tensor([2, 0, 1, 3]), dim=0, output_size=6),
        x[0, 0].repeat_interleave(torch.tensor([2, 0, 1, 1, 0]), output_size=4),
    ),
    "flip": lambda x: (x.flip(0), x.flip(1, -1), x.flip(()), x.fliplr(), x.flipud()),
    "rot90": lambda x: [torch.rot90(x, k, (0, 2)) for k in range(-1, 4)] + [torch.rot90(x)],
    "roll": lambda x: (x.roll(2), x.roll(-1, 1), x.roll((1, 7), (0, 2)), x.roll((1, 1), (2, 2))),
    "pad": lambda x: (
        F.pad(x, (1, 2)),
        F.pad(x, (0, 1, -1, 2), value=3.5),
        F.pad(x, (1, 2), "reflect"),
        F.pad(x, (2, 1), "replicate"),
        F.pad(x, (3, 1), "circular"),
    ),
    "pad_images": lambda x: (
        F.pad(x[None], (1, 2, 2, 1), "reflect"),
        F.pad(x[None], (1, 2, 4, 0), "replicate"),
        F.pad(x[None], (0, 2, 1, 1), "circular"),
        F.pad(x[None, None], (1, 1, 0, 2, 1, 3), "reflect"),
        F.pad(x[None, None], (1, 1, 0, 2, 1, 3), "replicate"),
    ),
    "clone": lambda x: (x.clone(), x[1].clone()),
    "sum_to_size": lambda x: (x.sum_to_size(3, 1), x.sum_to_size(5), x.sum_to_size(4, 3, 5)),
    "diff": lambda x: (
        x.diff(),
        x.diff(2, 1),
        x.diff(dim=0, prepend=x[:1], append=x[:2]),
        x.diff(9),
        x[0, 0].diff(0),
    ),
    "tril": lambda x: (x.tril(), x.triu(), x.tril(-1), x.triu(2), x.tril(9), x.triu(-9)),
    "diag": lambda x: (
        x[0, 0].diag(1),
        x[0].diag(),
        x[0].diag(-1),
        torch.diag_embed(x, 1, 0, -1),
        torch.diag_embed(x, -2),
        torch.diagflat(x, 1),
    ),
    "pixel_shuffle": lambda x: (
        F.pixel_shuffle(x.reshape(1, 4, 3, 5), 2),
        F.pixel_unshuffle(x.reshape(3, 1, 2, 10), 2),
    ),
    "channel_shuffle": lambda x: F.channel_shuffle(x[None], 2),
    "scatters": lambda x: (
        torch.select_scatter(x, x[:, 0], 1, -1),
        torch.slice_scatter(x, x[:2], 0, 1, 3),
        torch.slice_scatter(x, x[..., :2] * 2, 2, 0, 4, 2),
        torch.diagonal_scatter(x, x[:, :, :2].mT[:, 0, :] * 2, 0, 1, 2),
    ),
}


@pytest.mark.parametrize("name", PUT_TOGETHER)
def test_put_together(name):
    results = lambda x: [r.sin() for r in as_tuple(PUT_TOGETHER[name](x))]
    check(results, draw((4, 3, 5)))


def test_combinations():
    f = lambda x: (
        torch.combinations(x).sin(),
        torch.combinations(x, 1),
        torch.combinations(x, 3).sin(),
        torch.combinations(x, 5).sin(),
        torch.combinations(x, 3, with_replacement=True).sin(),
        torch.combinations(x[:1], 2, with_replacement=True).sin(),
        torch.combinations(x[:2], 3),
        torch.combinations(x[:0], 2, with_replacement=True),
    )
    check(f, draw((5,)))


def test_repeats_that_are_constant():
    # The archive has a name for the sum of the repeats.
    f = lambda x: (
        x.repeat_interleave(torch.tensor([2, 0, 1]), dim=1).sin(),
        x[:, 0, 0].repeat_interleave(torch.tensor([0, 0, 3, 1])).sin(),
        torch.repeat_interleave(torch.tensor([0, 2, 1])) * 2,
    )
    check(f, draw((4, 3, 5)))


# Eager PyTorch's gradient differs from finite differences.
def test_as_strided_scatter():
    check(
        lambda x: torch.as_strided_scatter(x, x[0, :2] * 2, (2, 5), (7, 1), 3),
        draw((4, 3, 5)),
        order=0,
    )


def as_tuple(results):
    return (results,) if isinstance(results, torch.Tensor) else results


@pytest.mark.parametrize(
    "name",
    ["cat", "stack", "repeat", "tile", "flip", "roll", "pad", "diff", "tril", "hstack", "clone"],
)
def test_named_sizes(name):
    n = torch.export.Dim("n", min=4, max=50)
    check(
        lambda x: [r.sin() for r in as_tuple(PUT_TOGETHER[name](x))],
        draw((6, 3, 5)),
        dynamic_shapes=(({0: n},),),
    )


def test_of_integers_and_bools():
    check(
        lambda x, b: (
            torch.cat([x, x.to(i8)]),
            torch.cat([x, b]),
            torch.stack([b, b], 1),
            x.diff(),
            b.diff(),
            x.tril(),
            F.pad(x, (1, 1), value=7),
            b.roll(1),
            x.repeat_interleave(2),
            torch.block_diag(x, x),
        ),
        ints((3, 4)),
        draw((3, 4)) > 0,
        order=0,
    )


def test_no_dimensions():
    check(
        lambda x: (
            torch.stack([x, x]),
            x.repeat(3),
            x.tile(2, 2),
            x.flip(()),
            x.repeat_interleave(3),
            *torch.atleast_2d(x, x),
            x.clone(),
            x.roll(1),
        ),
        draw(()),
    )


def test_creation():
    def make(x):
        return (
            torch.zeros(2, 3, dtype=f64) + x[0, 0],
            torch.zeros_like(x),
            x.new_zeros(2, dtype=i32),
            torch.ones((), dtype=i64),
            torch.ones_like(x, dtype=torch.bool),
            x.new_ones(1, 2),
            torch.full((2, 2), 3),
            torch.full((2,), 1.5, dtype=i64),
            torch.full((3,), True),
            torch.full_like(x, -2.5),
            x.new_full((2,), 7, dtype=f32),
            torch.full((2,), float("inf")),
            torch.arange(5),
            torch.arange(2, 11, 3, dtype=f32),
            torch.arange(5, -1, -2),
            torch.arange(0, 1, 0.3),
            torch.arange(1.5, 4),
            torch.arange(3, 3),
            torch.linspace(-1, 2, 7),
            torch.linspace(3, 1, 1),
            torch.logspace(0, 2, 5, base=2.0),
            torch.eye(3),
            torch.eye(2, 4, dtype=i32),
            torch.tril_indices(3, 4, 1),
            torch.triu_indices(3, 4, -1, dtype=i32),
            torch.scalar_tensor(2.5, dtype=f64),
            torch.tensor([1.0, 2.0], dtype=f64) * x[0, 0],
            torch.tensor(3),
            F.one_hot(torch.tensor([0, 2, 1]), 4),
            x * 2,
        )

    check(make, draw((2, 3)))
    with default_dtype(f64):
        check(make, draw((2, 3)))


def test_spaces_between_tensors():
    f = lambda a, b: (
        *(torch.linspace(a, b, n, dtype=f64) * b for n in (0, 1, 2, 7)),
        torch.linspace(a, 2.5, 6, dtype=f64),
        torch.logspace(a, b, 5, dtype=f64) * a,
        torch.logspace(a, 2, 5, base=2.0, dtype=f64),
    )
    check(f, draw(()), draw((), seed=1))
    f = lambda b: (torch.linspace(1, b, 6) * b, torch.logspace(0, b, 4))
    check(f, draw((), dtype=f32))


def test_creation_of_named_sizes():
    n = torch.export.Dim("n", min=2, max=50)

    def make(x):
        k = x.shape[0]
        return (
            torch.zeros(k, 2) + x[:, :1],
            torch.arange(k) * x[:, 0],
            torch.arange(1, 2 * k + 1, 2, dtype=f64) + x[:, 0],
            torch.arange(k, 0, -1) * 2,
            torch.full((2,), k),
            torch.eye(k, dtype=f64) * x[:, :1],
            x.new_ones(k, k) * x[:, :1],
            x / k,
        )

    check(make, draw((5, 3)), dynamic_shapes=(({0: n},),))


def test_written_after_it_is_made():
    def write(x):
        y = torch.empty(3, 4, dtype=f64)
        y.copy_(x)
        z = torch.empty_like(x)
        z[:] = y * x
        w = x.new_empty((2, 4))
        w.fill_(2.5)
        w[1] = x[0]
        v = torch.ones_like(x)
        v.zero_()
        v[0] += x[1]
        u = torch.zeros(4, dtype=f64)
        u.fill_(x[0, 0])
        t = x.clone()
        t.copy_(x[0])
        t.tril_()
        return y, z, w, v, u, t

    check(write, draw((3, 4)))


@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.rand(3) + x,
        lambda x: torch.randn_like(x) + x,
        lambda x: torch.randint(0, 5, (3,)) + x,
        lambda x: torch.randperm(3) + x,
        lambda x: torch.bernoulli(x.sigmoid()) + x,
        lambda x: (x * 1).normal_(),
    ],
)
def test_refuses_random_numbers(make):
    with pytest.raises(gradus.Error, match="random numbers are not supported"):
        exported(Function(make), (draw((3,)),))
