"""Views of torch.export's programs against PyTorch: what they show, and what is written through."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import gradus
from torch_operators import Function, check, draw, exported, ints

f64, f32 = torch.float64, torch.float32

# Each shows a part of a tensor [4, 3, 5], or all of it otherwise.
VIEWS = {
    "view": lambda x: x.view(6, 10),
    "view_rest": lambda x: x.view(2, -1, 5),
    "view_as": lambda x: x.view_as(torch.zeros(12, 5)),
    "reshape": lambda x: x.reshape(-1),
    "reshape_as": lambda x: x.reshape_as(torch.zeros(2, 30)),
    "flatten": lambda x: x.flatten(1),
    "flatten_front": lambda x: torch.flatten(x, 0, 1),
    "ravel": lambda x: x.ravel(),
    "unflatten": lambda x: x.unflatten(0, (2, 2)),
    "unflatten_rest": lambda x: x.unflatten(-1, (-1, 5)),
    "unsqueeze": lambda x: x.unsqueeze(-1),
    "unsqueeze_front": lambda x: x.unsqueeze(0),
    "squeeze": lambda x: x[:1].squeeze(),
    "squeeze_dim": lambda x: x[:, :1].squeeze(1),
    "squeeze_not": lambda x: x.squeeze(1),
    "squeeze_dims": lambda x: x[:1, :, :1].squeeze((0, 1, -1)),
    "transpose": lambda x: x.transpose(0, -1),
    "swapaxes": lambda x: x.swapaxes(1, 2),
    "swapdims": lambda x: x.swapdims(0, 1),
    "permute": lambda x: x.permute(2, 0, 1),
    "movedim": lambda x: x.movedim(0, 2),
    "movedims": lambda x: x.movedim((0, 1), (-1, 0)),
    "moveaxis": lambda x: x.moveaxis(-1, 0),
    "mT": lambda x: x.mT,
    "mH": lambda x: x.mH,
    "adjoint": lambda x: x.adjoint(),
    "t": lambda x: x[0].t(),
    "t_of_list": lambda x: x[0, 0].t(),
    "T": lambda x: x[1].T,
    "select": lambda x: x.select(1, -1),
    "item": lambda x: x[-2],
    "slice": lambda x: x[1:3],
    "slice_steps": lambda x: x[:, :, 1::2],
    "slice_far": lambda x: x[:, -2:100],
    "slice_none": lambda x: x[5:],
    "slice_back": lambda x: x[..., :-1],
    "narrow": lambda x: x.narrow(2, 1, 3),
    "narrow_back": lambda x: x.narrow(-1, -2, 2),
    "expand": lambda x: x[:, :1].expand(4, 1, 5),
    "expand_front": lambda x: x.expand(1, -1, -1, -1),
    "diagonal": lambda x: x.diagonal(),
    "diagonal_above": lambda x: x.diagonal(1, -1, 0),
    "diagonal_below": lambda x: x.diagonal(-2, 0, 2),
    "linalg_diagonal": lambda x: torch.linalg.diagonal(x, offset=1),
    "unfold": lambda x: x.unfold(2, 2, 2),
    "alias": lambda x: torch.ops.aten.alias(x),
    "contiguous": lambda x: x.contiguous(),
    "as_strided": lambda x: x.as_strided((3, 2), (2, 7), 4),
    "unbind": lambda x: x.unbind(1)[2],
    "split": lambda x: x.split(2, 2)[1],
    "split_last": lambda x: x.split(2, 2)[2],
    "split_sizes": lambda x: x.split([1, 0, 3])[2],
    "chunk": lambda x: x.chunk(3, -1)[1],
    "chunk_few": lambda x: x.chunk(3)[1],
    "tensor_split": lambda x: x.tensor_split(3, 2)[0],
    "tensor_split_at": lambda x: x.tensor_split((3, 1), 2)[2],
    "hsplit": lambda x: torch.hsplit(x, 3)[1],
    "vsplit": lambda x: torch.vsplit(x, (1, 2))[2],
    "dsplit": lambda x: torch.dsplit(x, 5)[4],
    "atleast": lambda x: torch.atleast_3d(x[0, 0])[0],
    "chain": lambda x: x.transpose(0, 1)[1:].unsqueeze(0).select(-1, 2),
}


@pytest.mark.parametrize("dtype", [f64, f32], ids=str)
@pytest.mark.parametrize("name", VIEWS)
def test_shows(name, dtype):
    check(lambda x: VIEWS[name](x).sin() + 1, draw((4, 3, 5), dtype=dtype))


# Eager PyTorch refuses derivatives of writes to one of several views.
SEVERAL = ("unbind", "split", "chunk", "tensor_split", "hsplit", "vsplit", "dsplit")


def order_of(name):
    return 0 if name.startswith(SEVERAL) else 2


@pytest.mark.parametrize("name", VIEWS)
def test_is_written_through(name):
    def write(x):
        y = x * 2
        before = y.sum()
        part = VIEWS[name](y)
        part.copy_((part * 3).cos())
        part.add_(1)
        return y, part, before

    check(write, draw((4, 3, 5)), order=order_of(name))


@pytest.mark.parametrize("name", VIEWS)
def test_sees_what_is_written_to_the_whole(name):
    def write(x):
        y = x * 2
        part = VIEWS[name](y)
        y[1:3, :, 1:4] = x[:2, :, :3].sin()
        return part * part

    check(write, draw((4, 3, 5)), order=order_of(name))


@pytest.mark.parametrize("name", VIEWS)
def test_batch_of_named_size(name):
    if name in ("view", "view_rest", "reshape_as", "view_as", "unflatten", "as_strided"):
        pytest.skip("its sizes are numbers")
    if "tensor_split" in name or name in ("vsplit", "chunk_few", "split_sizes", "expand"):
        pytest.skip("its sizes are numbers")
    try:
        check(
            lambda x: VIEWS[name](x).sin(),
            draw((4, 3, 5)),
            dynamic_shapes=(({0: torch.export.Dim("n", min=4, max=100)},),),
        )
    except torch._dynamo.exc.UserError:
        pytest.skip("torch.export decides the size")


IN_PLACE = {
    "squeeze": lambda y: y.unsqueeze_(1).squeeze_(1),
    "squeeze_dims": lambda y: y.unsqueeze_(0).unsqueeze_(0).squeeze_((0, 1)),
    "transpose": lambda y: y.transpose_(0, 2),
    "swapaxes": lambda y: y.swapaxes_(1, 2),
    "t": lambda y: y.transpose_(0, 1),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_lies_otherwise_in_its_memory(name):
    def write(x):
        y = x * 2
        first = y[1]
        IN_PLACE[name](y)
        y[1] *= 3
        return y, first

    check(write, draw((4, 3, 5)))


def test_detach():
    check(lambda x: x.detach() * x, draw((3, 4)))

    def shared(x):
        y = x * 2
        d = y.detach()
        y[0] = x[1]
        return d * x

    check(shared, draw((3, 4)))

    def in_place(x):
        y = (x * 2).detach_()
        return y * x

    check(in_place, draw((3, 4)))


def test_no_dimensions():
    check(
        lambda x: (
            x.view(1),
            x.reshape(1, 1),
            x.flatten(),
            x.unsqueeze(0),
            x.squeeze(),
            x.squeeze(0),
            x.permute(()),
            x.expand(2, 3),
            torch.atleast_1d(x),
            torch.atleast_2d(x),
            torch.atleast_3d(x),
            x.transpose(0, -1),
            x.movedim(0, 0),
        ),
        draw(()),
    )


def test_nothing_there():
    check(lambda x: (x.view(0, 6), x[:, 0], x[1:], x.t()), draw((0, 3)), order=1)


RESHAPES = {
    "reshape": lambda y: y.reshape(-1),
    "flatten": lambda y: y.flatten(0, 1),
    "split_dims": lambda y: y.reshape(*y.shape[:-1], 1, y.shape[-1]),
    "joined_dims": lambda y: y.reshape(y.shape[0], -1),
    "ravel": lambda y: y.ravel(),
    "contiguous": lambda y: y.contiguous(),
}
TURNS = {
    "as_it_is": lambda y: y,
    "last_first": lambda y: y.permute(2, 0, 1),
    "transposed": lambda y: y.mT,
}


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("name", RESHAPES)
def test_is_a_view_or_a_copy_as_it_lies_in_memory(name, turn):
    def write(x):
        y = x * 2
        part = RESHAPES[name](TURNS[turn](y))
        part.add_(1)
        y[0] = x[1]
        return y, part

    check(write, draw((4, 3, 5)))


def test_refuses_writes_through_a_detached_tensor():
    def write(x):
        y = x * 2
        y.detach().mul_(2)
        return y

    with pytest.raises(gradus.Error, match="expand, detach"):
        exported(Function(write), (draw((3, 4)),))


def test_views_of_integers_and_bools():
    check(
        lambda x, b: (x.view(3, 4).t(), x.diagonal(), b.unsqueeze(1).expand(4, 2, 3), b[1:]),
        ints((4, 3)),
        draw((4, 3)) > 0,
        order=0,
    )
