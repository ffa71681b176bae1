"""Products, attention and recurrent layers of torch.export's programs against PyTorch."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
F = torch.nn.functional

import gradus
from torch_operators import Function, check, draw, exported, ints

f64, f32, i64 = torch.float64, torch.float32, torch.int64

# Of a [2, 3, 4] and b [2, 4, 5].
PRODUCTS = {
    "mm": lambda a, b: (a[0].mm(b[0]), a[0] @ b[0], torch.ops.aten.mm(a[0], b[1])),
    "bmm": lambda a, b: a.bmm(b),
    "matmul": lambda a, b: (a @ b, a @ b[0], a[0] @ b, a[0, 0] @ b, a @ b[0, :, 0]),
    "matmul_dot": lambda a, b: (a[0, 0] @ b[0, :, 0], torch.linalg.matmul(a, b)),
    "matmul_batches": lambda a, b: a[:, None] @ b,
    "mv": lambda a, b: a[0].mv(b[0, :, 0]),
    "dot": lambda a, b: (a[0, 0].dot(b[0, :, 0]), a[0, 0].vdot(b[0, :, 0])),
    "addmm": lambda a, b: (
        torch.addmm(b[0, 0], a[0], b[0]),
        torch.addmm(b[0, :3], a[0], b[0], beta=0.5, alpha=-2),
        torch.addmm(b[0, :3], a[0], b[0], beta=0),
    ),
    "addmv": lambda a, b: (
        torch.addmv(a[0, :, 0], a[0], b[0, :, 0], beta=2, alpha=0.5),
        torch.addmv(a[0, 0, 0], a[0], b[0, :, 0]),
    ),
    "baddbmm": lambda a, b: (
        torch.baddbmm(b[:, :1], a, b, beta=0.5, alpha=3),
        torch.addbmm(b[0, :3], a, b, beta=2),
    ),
    "addr": lambda a, b: (
        torch.addr(b[0, :3], a[0, :, 0], b[0, 0], beta=2, alpha=3),
        torch.outer(a[0, 0], b[0, 0]),
        torch.ger(a[0, 0], b[0, 0]),
    ),
    "linear": lambda a, b: (
        F.linear(a, b[0].t()),
        F.linear(a, b[0].t(), b[0, 0]),
        F.linear(a, b[0, :, 0]),
        F.linear(a[0, 0], b[0].t(), b[0, 0]),
    ),
    "einsum": lambda a, b: (
        torch.einsum("bij,bjk->bik", a, b),
        torch.einsum("bij,cjk", a, b),
        torch.einsum("...ij->...ji", a),
        torch.einsum("b i j, b j k -> ", a, b),
        torch.einsum("ii->i", a[0, :, :3]),
        torch.einsum("ij,jk,kl->il", a[0], b[0], b[1].t()),
    ),
    "tensordot": lambda a, b: (
        torch.tensordot(a, b, ([2], [1])),
        torch.tensordot(a, b, ([0, 2], [0, 1])),
        torch.tensordot(a[0], b[0], 0),
        torch.tensordot(a, b, ([-1], [-2])),
    ),
    "inner": lambda a, b: (torch.inner(a, b.mT), torch.inner(a[0, 0, 0], b)),
    "vecdot": lambda a, b: (
        torch.linalg.vecdot(a, a.sin()),
        torch.linalg.vecdot(a, a[0, :1].cos(), dim=1),
    ),
    "cross": lambda a, b: (
        torch.linalg.cross(a, a.sin(), dim=1),
        torch.cross(a.mT, a.mT.sin(), dim=-1),
        torch.linalg.cross(a.mT, a[:1, :, :1].mT),
    ),
    "kron": lambda a, b: (torch.kron(a[0], b[0]), torch.kron(a[0, 0], b)),
    "trace": lambda a, b: (a[0].trace(), b[0, :, :4].trace()),
    "bilinear": lambda a, b: (
        F.bilinear(a, a[..., :2], b[:, :, :2]),
        F.bilinear(a, a[..., :2], b[:, :, :2], b[0, 0, :2]),
    ),
    "chain": lambda a, b: (
        torch.chain_matmul(a[0], b[0], b[1].t()),
        torch.linalg.multi_dot([a[0, 0], b[0], b[1].t()]),
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [f64, f32], ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_product(name, dtype):
    def results(a, b):
        r = PRODUCTS[name](a, b)
        return [v.sin() for v in ((r,) if isinstance(r, torch.Tensor) else r)]

    check(results, draw((2, 3, 4), dtype=dtype), draw((2, 4, 5), dtype=dtype, seed=1))


def test_integers():
    check(
        lambda a, b: (a @ b, a.mm(b), torch.einsum("ij,jk->ik", a, b), a.trace()),
        ints((3, 4)),
        ints((4, 3), seed=1),
        order=0,
    )


def test_nothing_to_add():
    check(lambda a, b: a @ b, draw((2, 0)), draw((0, 3)), order=1)


def test_named_sizes():
    n = torch.export.Dim("n", min=2, max=50)
    check(
        lambda a, w: (F.linear(a, w), a @ w.t(), torch.einsum("ij,ik->jk", a, a), a.t() @ a),
        draw((5, 3)),
        draw((4, 3)),
        dynamic_shapes=(({0: n}, None),),
    )


# Attention, of q, k, v [2, 4, T, 3] and a mask [T, S].
def attention(q, k, v, **options):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, **options)


ATTENTIONS = {
    "plain": lambda q, k, v, m: attention(q, k, v),
    "scale": lambda q, k, v, m: attention(q, k, v, scale=0.3),
    "causal": lambda q, k, v, m: attention(q, k, v, is_causal=True),
    "added": lambda q, k, v, m: attention(q, k, v, attn_mask=m),
    "chosen": lambda q, k, v, m: attention(q, k, v, attn_mask=m > 0),
    "batch_of_masks": lambda q, k, v, m: attention(
        q, k, v, attn_mask=(m * q[:, :1, :, :1].detach()) > 0
    ),
    "row_without_keys": lambda q, k, v, m: attention(
        q, k, v, attn_mask=(m > 0) & (torch.arange(5) != 2)[:, None]
    ),
    "row_of_infinities": lambda q, k, v, m: attention(
        q, k, v, attn_mask=m.masked_fill((torch.arange(5) == 2)[:, None], -torch.inf)
    ),
    "matrices": lambda q, k, v, m: attention(q[0, 0], k[0, 0], v[0, 0]),
    "grouped": lambda q, k, v, m: attention(q, k[:, :2], v[:, :2], enable_gqa=True),
}


@pytest.mark.parametrize("dtype", [f64, f32], ids=str)
@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention(name, dtype):
    q = draw((2, 4, 5, 3), dtype=dtype)
    k, v = (draw((2, 4, 6, 3), dtype=dtype, seed=s) for s in (1, 2))
    check(ATTENTIONS[name], q, k, v, draw((5, 6), dtype=dtype, seed=3))


def test_attention_of_named_sizes():
    t = torch.export.Dim("t", min=2, max=50)
    q, k, v = (draw((2, 4, 6, 3), seed=s) for s in range(3))
    check(
        lambda q, k, v: attention(q, k, v, is_causal=True),
        q,
        k,
        v,
        dynamic_shapes=(({2: t}, {2: t}, {2: t}),),
    )


def test_attention_refuses_dropout():
    with pytest.raises(gradus.Error, match="dropout_p is 0.5"):
        exported(
            Function(lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)),
            (draw((1, 2, 3, 4)),),
        )


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.attention = torch.nn.MultiheadAttention(6, 2, batch_first=True, dtype=f64)

    def forward(self, x):
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return self.attention(x, x, x)


def test_multi_head_attention():
    check(Encoder(), draw((2, 4, 6)))


class Recurrent(torch.nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        torch.manual_seed(2)
        self.layers = kind(3, 4, dtype=f64, **options)

    def forward(self, x):
        y, state = self.layers(x)
        return (y, *(state if isinstance(state, tuple) else (state,)))


OPTIONS = [
    {},
    {"num_layers": 2, "bidirectional": True},
    {"batch_first": True, "bias": False},
    {"bidirectional": True, "batch_first": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "_".join(o) or "plain")
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent(kind, options):
    check(Recurrent(kind, **options).eval(), draw((5, 2, 3)))


def test_recurrent_variants():
    check(Recurrent(torch.nn.RNN, nonlinearity="relu"), draw((5, 2, 3)))
    check(Recurrent(torch.nn.LSTM, proj_size=2, num_layers=2), draw((5, 2, 3)))
    check(Recurrent(torch.nn.LSTM, dropout=0.5, num_layers=2).eval(), draw((5, 2, 3)))
    check(Recurrent(torch.nn.GRU), draw((5, 3)))


def test_recurrent_of_named_batch():
    n = torch.export.Dim("n", min=2, max=50)
    check(Recurrent(torch.nn.LSTM), draw((5, 4, 3)), dynamic_shapes=({1: n},))


def test_recurrent_refusals():
    with pytest.raises(gradus.Error, match="dropout"):
        exported(Recurrent(torch.nn.LSTM, dropout=0.5, num_layers=2).train(), (draw((5, 2, 3)),))


class Cells(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.lstm = torch.nn.LSTMCell(3, 4, dtype=f64)
        self.gru = torch.nn.GRUCell(3, 4, bias=False, dtype=f64)
        self.rnn = torch.nn.RNNCell(3, 4, dtype=f64)
        self.relu = torch.nn.RNNCell(3, 4, nonlinearity="relu", dtype=f64)

    def forward(self, x):
        h, c = self.lstm(x)
        return h, c, self.gru(x, h), self.rnn(x, c), self.relu(x, h)


def test_cells():
    check(Cells(), draw((2, 3)))
