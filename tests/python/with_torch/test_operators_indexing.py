"""Reads and writes at indices of torch.export's programs against PyTorch."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
F = torch.nn.functional

import gradus
from torch_operators import Function, check, draw, exported, ints

f64, f32, i64, i32 = torch.float64, torch.float32, torch.int64, torch.int32

# Of x [4, 3, 5] and indices i [6] that are from -2 to 2.
READS = {
    "first": lambda x, i: x[i],
    "second": lambda x, i: x[:, i],
    "last": lambda x, i: x[..., i],
    "pair": lambda x, i: x[i, i],
    "apart": lambda x, i: x[i, :, i],
    "broadcast": lambda x, i: x[i[:, None], :, i[:3]],
    "matrix": lambda x, i: x[:, i.reshape(2, 3)],
    "with_number": lambda x, i: x[1, i],
    "with_slice": lambda x, i: x[1:, i, ::2],
    "with_none": lambda x, i: x[i, None],
    "unsafe": lambda x, i: torch.ops.aten._unsafe_index(x, [None, i]),
    "index_select": lambda x, i: (x.index_select(1, i.abs()), x[0, 0].index_select(0, i.abs())),
    "index_select_number": lambda x, i: x[0, 0, 0].index_select(0, i[:1] * 0),
    "gather": lambda x, i: (
        x.gather(1, i.abs().reshape(1, 2, 3)),
        x.gather(-1, i.abs().reshape(3, 2, 1)),
        x[0, 0, 0].gather(0, i[0] * 0),
        x.gather(0, i[:0]),
    ),
    "take": lambda x, i: (x.take(i), x.take(i.reshape(2, 3) * 7)),
    "take_along_dim": lambda x, i: (
        torch.take_along_dim(x, i.abs()[:4].reshape(4, 1, 1), 1),
        torch.take_along_dim(x, i.abs()),
        torch.take_along_dim(x, i[:4].reshape(4, 1, 1), 1),
        torch.take_along_dim(x[:1], i.abs().reshape(6, 1, 1)[:4], 2),
    ),
    "int32": lambda x, i: x[i.to(i32)],
    "embedding": lambda x, i: (
        F.embedding(i.abs().reshape(2, 3), x[:, 0]),
        F.embedding(i.abs(), x[0], padding_idx=1),
        F.embedding(i.abs(), x[0], padding_idx=-1),
    ),
}


@pytest.mark.parametrize("dtype", [f64, f32], ids=str)
@pytest.mark.parametrize("name", READS)
def test_read(name, dtype):
    def read(x, i):
        results = READS[name](x, i)
        return [r.sin() for r in ((results,) if isinstance(results, torch.Tensor) else results)]

    check(read, draw((4, 3, 5), dtype=dtype), ints((6,), -2, 3))


# Writes to y [4, 3, 5]; what comes from x [4, 3, 5].
WRITES = {
    "first": lambda y, x, i: y.__setitem__(i[:4], x),
    "one_row": lambda y, x, i: y.__setitem__(i, x[0]),
    "number": lambda y, x, i: y.__setitem__((slice(None), i), 2.5),
    "add": lambda y, x, i: y.index_put_((i[:4],), x, accumulate=True),
    "add_pair": lambda y, x, i: y.index_put_((i[:3], i[3:]), x[0], accumulate=True),
    "apart": lambda y, x, i: y.__setitem__((i[:3], slice(None), i[3:]), x[0].mT[:3, :3]),
    "index_put": lambda y, x, i: y.copy_(torch.index_put(y, (i[:4],), x * 2)),
    "index_add": lambda y, x, i: y.index_add_(1, i.abs()[:3], x, alpha=2.5),
    "index_copy": lambda y, x, i: y.index_copy_(0, i.abs()[:2] * 0 + ordered(i)[:2], x[:2]),
    "index_fill": lambda y, x, i: y.index_fill_(1, i, 1.5),
    "index_fill_tensor": lambda y, x, i: y.index_fill_(2, i.abs(), x[0, 0, 0]),
    "scatter": lambda y, x, i: y.scatter_(0, ordered(i)[:4].reshape(4, 1, 1).expand(4, 3, 5), x),
    "scatter_number": lambda y, x, i: y.scatter_(1, i.abs().reshape(2, 3, 1), 2.5),
    "scatter_add": lambda y, x, i: y.scatter_add_(1, i.abs().reshape(2, 3, 1), x[:2, :, :1]),
    "put": lambda y, x, i: y.put_(i, x[0, :2, :3], accumulate=True),
    "masked_scatter": lambda y, x, i: y.masked_scatter_(x > 0, x * 3),
    "masked_scatter_row": lambda y, x, i: y.masked_scatter_(x[0] > 0, x * 3),
    "mask_number": lambda y, x, i: y.__setitem__(y > 0, 2.5),
    "mask_tensor": lambda y, x, i: y.__setitem__(y > 0, x[0, 0, 0]),
    "mask_rows": lambda y, x, i: y.__setitem__(x[:, 0, 0] > 0, x[0]),
    "mask_columns": lambda y, x, i: y.__setitem__((slice(None), x[0, :, 0] > 0), x[:, :1]),
    "mask_add": lambda y, x, i: y.index_put_((y > 0,), x[0, 0, 0], accumulate=True),
    "mask_of_reads": lambda y, x, i: y.__setitem__(x > 0, x[x > 0]),
}


def ordered(i):
    return i * 0 + torch.tensor([2, 0, 3, 1, 4, 5])


@pytest.mark.parametrize("name", WRITES)
def test_write(name):
    def write(x, i):
        y = x.flip(0) * 2
        view = y[1]
        WRITES[name](y, x, i)
        return y.sin(), view * 2

    check(write, draw((4, 3, 5)), ints((6,), -2, 3))


def test_scatter_of_a_number_that_is_added():
    check(
        lambda x, i: x.scatter(1, i, 2.5, reduce="add"), draw((3, 4)), ints((3, 6), 0, 4), order=0
    )


REDUCTIONS = ["sum", "prod", "mean", "amax", "amin"]


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_scatter_reduce(reduce, include_self):
    check(
        lambda x, s, i: x.scatter_reduce(1, i, s, reduce, include_self=include_self),
        draw((3, 4)),
        draw((3, 6)),
        ints((3, 6), 0, 4),
        order=2 if reduce in ("sum", "mean") else 1,
    )


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
def test_index_reduce(reduce, include_self):
    index = torch.tensor([1, 0, 1, 3])

    def f(x, s):
        return (
            x.index_reduce(0, index, s, reduce, include_self=include_self).sin(),
            x.index_reduce(-1, index[:2], s[..., :2], reduce, include_self=include_self).sin(),
            x[:, 0, 0].index_reduce(0, index, s[:, 0, 0], reduce, include_self=include_self).sin(),
        )

    x, s = draw((4, 3, 5), 0.5, 2), draw((4, 3, 5), 0.5, 2, seed=1)
    check(f, x, s)
    s[2] = s[0]  # ties
    if include_self:  # else PyTorch counts x where it equals the result, too
        s[0] = s[2] = x[1]
    check(f, x, s, order=1)
    check(f, x.float(), s.float(), order=1)


def test_index_reduce_of_named_sizes():
    f = lambda x, s, i: x.index_reduce(1, i, s, "amax").sin()
    index = torch.tensor([1, 0, 1, 3])
    check(f, draw((3, 5)), draw((3, 4), seed=1), index, dynamic=True)


def test_nonzero_without_dimensions():
    f = lambda x: (torch.nonzero(x), torch.nonzero(x - 1), torch.argwhere(x))
    check(f, torch.tensor(1.0, dtype=f64), order=0)


def test_nonzero_of_a_size():
    f = lambda x: (
        torch.nonzero_static(x > 0, size=4),
        torch.nonzero_static(x > 0, size=40, fill_value=7),
        torch.nonzero_static(x[0, 0], size=2),
        torch.nonzero_static(x[0, 0, 0], size=2),
        torch.nonzero_static(x[:0], size=3),
        torch.nonzero_static(x > 9, size=0),
        x[torch.nonzero_static(x[:, 0, 0] > -9, size=3)[:, 0]] * 2,
    )
    check(f, draw((3, 4, 2)))
    check(lambda x: torch.nonzero_static(x > 0, size=4), draw((5, 3)), order=0, dynamic=True)


MASKED = {
    "first": lambda x: x[x[:, 0, 0] > 0],
    "all": lambda x: x[x > 0],
    "middle": lambda x: x[:, x[0, :, 0] > 0],
    "lead": lambda x: x[x[..., 0] > 0],
    "with_index": lambda x: x[x[:, 0, 0] > 0, :, torch.tensor([1])],
    "masked_select": lambda x: x.masked_select(x > 0),
    "masked_select_row": lambda x: x.masked_select(x[0] > 0),
    "nonzero": lambda x: x[x[:, 0, 0].gt(0).nonzero().squeeze(1)],
    "nonzero_numpy": lambda x: x[x[:, :, 0].gt(0).nonzero(as_tuple=True)],
    "where": lambda x: x[torch.where(x[:, :, 0] > 0)],
    "argwhere": lambda x: x[torch.argwhere(x[:, 0, 0] > 0)[:, 0]],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MASKED)
def test_data_count(name):
    check(lambda x: MASKED[name](x).sin(), draw((4, 3, 5)))


def test_named_sizes():
    n, e = torch.export.Dim("n", min=2, max=50), torch.export.Dim("e", min=2, max=100)

    def messages(x, i, j):
        zeros = x.new_zeros(x.shape)
        sums = zeros.index_add(0, i, x[j] * x.index_select(0, i))
        y = zeros.scatter_add_(0, j[:, None].expand(-1, 3), x[i].sin())
        return sums, y, x[i, j % 3]

    check(
        messages,
        draw((5, 3)),
        ints((8,), 0, 5),
        ints((8,), 0, 5, seed=1),
        dynamic_shapes=(({0: n}, {0: e}, {0: e}),),
    )


class Bag(torch.nn.Module):
    def __init__(self, mode, padding_idx=None, include_last_offset=False):
        super().__init__()
        torch.manual_seed(0)
        self.bag = torch.nn.EmbeddingBag(
            7,
            4,
            mode=mode,
            padding_idx=padding_idx,
            include_last_offset=include_last_offset,
            dtype=f64,
        )

    def forward(self, i, offsets=None):
        return self.bag(i, offsets).sin()


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag(mode):
    check(Bag(mode), ints((3, 4), 0, 7), order=1)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_embedding_bag_of_offsets(mode):
    check(Bag(mode), ints((6,), 0, 7), torch.tensor([0, 2, 2, 5]), order=1)
    check(Bag(mode, 2), ints((6,), 0, 4), torch.tensor([0, 2, 2, 5]), order=1)
    check(Bag(mode, None, True), ints((6,), 0, 7), torch.tensor([0, 2, 6]), order=1)


def test_embedding_bag_with_weights():
    check(
        lambda i, w, p: F.embedding_bag(i, w, mode="sum", per_sample_weights=p),
        ints((3, 2), 0, 5),
        draw((5, 4)),
        draw((3, 2)),
        order=1,
    )


def test_refuses_gradients_by_frequency():
    with pytest.raises(gradus.Error, match="scale_grad_by_freq"):
        exported(
            Function(lambda i, w: F.embedding(i, w, scale_grad_by_freq=True)),
            (ints((3,), 0, 5), draw((5, 4))),
        )


def test_an_item_may_be_an_index():
    def f(x, i):
        k = i.item()
        torch._check(k >= 0)
        torch._check(k < 4)
        y = x * 2
        y[:, 1] = x[k][:3].sum()
        z = y.clone()
        z[k] = 7.0
        return x[k], x.select(0, k) ** 2, y, z

    check(f, draw((4, 3)), torch.tensor(2))
