"""Losses, norms and matrices of torch.export's programs against PyTorch."""

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
F = torch.nn.functional

import gradus
from torch_operators import check, draw, ints

f64, f32, i64, i32 = torch.float64, torch.float32, torch.int64, torch.int32


REDUCED = ["none", "mean", "sum"]
LOSSES = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth_l1": lambda x, y, **r: F.smooth_l1_loss(x, y, beta=0.7, **r),
    "smooth_l1.0": lambda x, y, **r: F.smooth_l1_loss(x, y, beta=0.0, **r),
    "huber": lambda x, y, **r: F.huber_loss(x, y, delta=0.7, **r),
    "kl_div": lambda x, y, **r: F.kl_div(x, y.abs(), **r),
    "kl_div.log": lambda x, y, **r: F.kl_div(x, y, log_target=True, **r),
    "bce": lambda x, y, **r: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), **r),
    "bce.weight": lambda x, y, **r: F.binary_cross_entropy(
        x.sigmoid(), y.sigmoid(), y.abs().detach(), **r
    ),
    "bce_logits": lambda x, y, **r: F.binary_cross_entropy_with_logits(x, y.sigmoid(), **r),
    "bce_logits.weight": lambda x, y, **r: F.binary_cross_entropy_with_logits(
        x, y.sigmoid(), y.abs().detach(), pos_weight=y[0].abs().detach() + 0.5, **r
    ),
    "soft_margin": lambda x, y, **r: F.soft_margin_loss(x, y.sign().detach(), **r),
    "ranking": lambda x, y, **r: F.margin_ranking_loss(x, y, y.sign(), margin=0.3, **r),
    "hinge": lambda x, y, **r: F.hinge_embedding_loss(x, y.sign(), margin=0.8, **r),
    "poisson": lambda x, y, **r: F.poisson_nll_loss(x, y.abs() * 3, full=True, **r),
    "poisson.log": lambda x, y, **r: F.poisson_nll_loss(x.abs(), y.abs(), log_input=False, **r),
    "triplet": lambda x, y, **r: F.triplet_margin_loss(x, y, x * y, margin=0.5, **r),
    "triplet.swap": lambda x, y, **r: F.triplet_margin_loss(x, y, x * y, p=3, swap=True, **r),
    "cosine_embedding": lambda x, y, **r: F.cosine_embedding_loss(
        x, y, torch.tensor([1, -1, -1]), margin=0.1, **r
    ),
    "multilabel_soft_margin": lambda x, y, **r: F.multilabel_soft_margin_loss(
        x, (y > 0).double(), **r
    ),
}


@pytest.mark.parametrize("reduction", REDUCED)
@pytest.mark.parametrize("name", LOSSES)
def test_loss(name, reduction):
    f = lambda x, y: LOSSES[name](x, y, reduction=reduction)
    check(f, draw((3, 4)), draw((3, 4), seed=1))


@pytest.mark.parametrize("reduction", REDUCED)
def test_loss_of_classes(reduction):
    r = {"reduction": reduction}
    w = draw((4,), 0.5, 2, seed=5)
    target = torch.tensor([3, 0, 1])
    check(lambda x, t: F.nll_loss(x.log_softmax(1), t, **r), draw((3, 4)), target)
    check(
        lambda x, t, w: F.nll_loss(x, t, w.detach(), ignore_index=0, **r), draw((3, 4)), target, w
    )
    check(lambda x, t: F.cross_entropy(x, t, **r), draw((3, 4)), target)
    check(
        lambda x, t, w: F.cross_entropy(x, t, w.detach(), label_smoothing=0.2, ignore_index=1, **r),
        draw((3, 4)),
        target,
        w,
    )
    places = ints((2, 2, 3), 0, 4)
    check(
        lambda x, t: (F.cross_entropy(x, t, **r), F.nll_loss(x, t, **r)), draw((2, 4, 2, 3)), places
    )
    check(
        lambda x, t: F.cross_entropy(x, t.softmax(1), **r), draw((2, 4, 3)), draw((2, 4, 3), seed=1)
    )
    check(
        lambda x, t: F.cross_entropy(x, t.softmax(1), label_smoothing=0.1, **r),
        draw((3, 4)),
        draw((3, 4), seed=1),
    )
    check(lambda x: F.cross_entropy(x, torch.tensor(2), **r), draw((4,)))


@pytest.mark.parametrize("reduction", REDUCED)
def test_margins_of_classes(reduction):
    r = {"reduction": reduction}
    target = torch.tensor([3, 0, 1])
    f = lambda x, t, w: (
        F.multi_margin_loss(x, t, **r),
        F.multi_margin_loss(x, t, p=2, margin=0.7, weight=w.detach(), **r),
    )
    check(f, draw((3, 4)), target, draw((4,), 0.5, 2), order=1)
    several = torch.tensor([[1, 0, -1, 2], [3, -1, 0, 1], [-1, 0, 1, 2]])
    check(lambda x, t: F.multilabel_margin_loss(x, t, **r), draw((3, 4)), several, order=1)
    if reduction != "none":
        check(lambda x, t: F.multilabel_margin_loss(x, t, **r), draw((4,)), several[0], order=1)


def test_distances():
    x, y = draw((3, 4)), draw((3, 4), seed=1)
    check(
        lambda x, y: (
            F.cosine_similarity(x, y),
            F.cosine_similarity(x, y, -2),
            F.pairwise_distance(x, y),
            F.pairwise_distance(x, y, 3, keepdim=True),
            F.normalize(x),
        ),
        x,
        y,
    )


def test_all_distances():
    f = lambda a, b: (torch.cdist(a, b), torch.cdist(a, b[:1], 1.0), torch.cdist(a[0], b, 3.0))
    check(f, draw((2, 3, 4)), draw((2, 5, 4), seed=1), order=1)
    check(lambda a: torch.cdist(a, a), draw((3, 2)), order=1)


def test_huber_on_its_bound():
    check(
        lambda x: F.huber_loss(x, torch.zeros(5, dtype=f64), reduction="none"),
        torch.tensor([-1.0, 0.0, 1.0, 0.5, 2.0], dtype=f64),
    )
    check(
        lambda x: F.smooth_l1_loss(x, torch.zeros(5, dtype=f64), reduction="none"),
        torch.tensor([-1.0, 0.0, 1.0, 0.5, 2.0], dtype=f64),
    )


# Norms

nn = torch.nn
NORMS = {
    "layer_norm": (nn.LayerNorm(4), (3, 4)),
    "layer_norm.2": (nn.LayerNorm((3, 4)), (2, 3, 4)),
    "layer_norm.plain": (nn.LayerNorm(4, elementwise_affine=False), (3, 4)),
    "layer_norm.no_bias": (nn.LayerNorm(4, bias=False), (3, 4)),
    "rms_norm": (nn.RMSNorm(4), (3, 4)),
    "rms_norm.eps": (nn.RMSNorm((3, 4), eps=0.1), (2, 3, 4)),
    "group_norm": (nn.GroupNorm(2, 4), (3, 4, 5)),
    "group_norm.2": (nn.GroupNorm(4, 4, affine=False), (2, 4, 2, 3)),
    "instance_norm": (nn.InstanceNorm1d(3, affine=True), (2, 3, 5)),
    "instance_norm.running": (nn.InstanceNorm2d(3, track_running_stats=True), (2, 3, 4, 2)),
    "instance_norm.eval": (
        nn.InstanceNorm2d(3, affine=True, track_running_stats=True).eval(),
        (2, 3, 4, 2),
    ),
    "batch_norm": (nn.BatchNorm1d(4), (5, 4)),
    "batch_norm.3": (nn.BatchNorm1d(4, momentum=0.3), (5, 4, 2)),
    "batch_norm.2d": (nn.BatchNorm2d(3), (2, 3, 4, 2)),
    "batch_norm.eval": (nn.BatchNorm2d(3).eval(), (2, 3, 4, 2)),
    "batch_norm.plain": (nn.BatchNorm2d(3, affine=False, track_running_stats=False), (2, 3, 4, 2)),
    "local_response_norm": (nn.LocalResponseNorm(3), (2, 5, 4)),
    "weight_norm": (nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), (2, 4)),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("dtype", [f64, f32])
def test_norm(name, dtype):
    module, shape = NORMS[name]
    torch.manual_seed(5)
    for n, p in list(module.named_parameters()) + list(module.named_buffers()):
        if p.is_floating_point():
            p.data = torch.rand_like(p) + 0.5
    # PyTorch's second derivative of _weight_norm is not that of its first.
    second = dtype == f64 and name != "weight_norm"
    check(module.to(dtype), draw(shape, dtype=dtype), order=2 if second else 1)


def test_core_norms():
    aten = torch.ops.aten
    w, b = draw((4,), seed=1), draw((4,), seed=2)
    mean, var = draw((4,), seed=3), draw((4,), 0.5, 2, seed=4)
    check(lambda x, w, b: aten.native_layer_norm(x, [4], w, b, 1e-5), draw((3, 4)), w, b)
    check(lambda x, w, b: aten.native_group_norm(x, w, b, 2, 4, 3, 2, 1e-5), draw((2, 4, 3)), w, b)
    check(
        lambda x, w, b, m, v: aten._native_batch_norm_legit_no_training(
            x, w, b, m.detach(), v.detach(), 0.1, 1e-5
        )[0],
        draw((3, 4)),
        w,
        b,
        mean,
        var,
    )
    check(
        lambda x, w, b: aten._native_batch_norm_legit.no_stats(x, w, b, True, 0.1, 1e-5)[0],
        draw((3, 4)),
        w,
        b,
    )
    check(lambda x: torch.renorm(x, 2, 0, 1.0), draw((3, 4)))
    check(lambda v, g: torch._weight_norm(v, g, 1), draw((3, 4)), draw((1, 4), seed=1), order=1)


# Matrices


def positive(n, seed=0, dtype=f64):
    a = draw((2, n, n), dtype=dtype, seed=seed)
    return a @ a.mT + torch.eye(n, dtype=dtype)


MATRICES = {
    "inverse": lambda a: (torch.inverse(a), torch.linalg.inv(a), torch.linalg.inv_ex(a)[0]),
    "det": lambda a: (torch.det(a), torch.linalg.det(a), torch.logdet(a)),
    "slogdet": lambda a: (*torch.slogdet(a), torch.linalg.slogdet(a)[1]),
    "cholesky": lambda a: (torch.linalg.cholesky(a), torch.linalg.cholesky_ex(a)[0]),
    "cholesky.upper": lambda a: torch.linalg.cholesky(a, upper=True),
    "solve": lambda a: (
        torch.linalg.solve(a, a[0]),
        torch.linalg.solve(a, a[..., 0]),
        torch.linalg.solve(a, a + 1, left=False),
    ),
    "triangular": lambda a: (
        torch.linalg.solve_triangular(a, a + 1, upper=True),
        torch.linalg.solve_triangular(a.tril(), a[:, :1] + 1, upper=False, left=False),
        torch.linalg.solve_triangular(a[0], a, upper=False, unitriangular=True),
    ),
    "triangular_solve": lambda a: (
        torch.triangular_solve(a, a.tril(), upper=False)[0],
        torch.triangular_solve(a, a.triu(), transpose=True)[0],
    ),
    "cholesky_solve": lambda a: (
        torch.cholesky_solve(a[..., :1], a.tril()),
        torch.cholesky_solve(a, a.triu(), upper=True),
        torch.cholesky_inverse(a.tril()),
    ),
    "matrix_power": lambda a: (
        torch.linalg.matrix_power(a, 3),
        torch.linalg.matrix_power(a, -2),
        torch.matrix_power(a, 0) + a,
        torch.linalg.matrix_power(a, 1),
    ),
    "multi_dot": lambda a: (
        torch.linalg.multi_dot([a[0], a[1], a[0]]),
        torch.chain_matmul(a[0], a[1]),
        torch.linalg.multi_dot([a[0, 0], a[1], a[0, :, 0]]),
    ),
}


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("n", [1, 3])
def test_matrix(name, n):
    f = MATRICES[name]
    check(f, positive(n), tolerance=1e-7)


# By operators that a build may be without.
FACTORIZATIONS = {
    "svd": lambda a: (torch.linalg.svdvals(a), torch.linalg.svd(a)[1], torch.linalg.cond(a)),
    "eigh": lambda a: (torch.linalg.eigvalsh(a), *(v.abs() for v in torch.linalg.eigh(a))),
    "qr": lambda a: (torch.linalg.qr(a)[0].abs(), torch.linalg.qr(a)[1].abs()),
    "lu": lambda a: (*torch.linalg.lu(a)[1:], torch.linalg.lu_factor(a)[0]),
    "matrix_exp": lambda a: (torch.linalg.matrix_exp(a / 9), torch.matrix_exp(a / 8)),
    "pinv": lambda a: (torch.linalg.pinv(a), torch.pinverse(a)),
}


@pytest.mark.parametrize("name", FACTORIZATIONS)
def test_factorization(name):
    if not hasattr(gradus.ops, name):
        with pytest.raises(gradus.Error, match="there is no operator"):
            check(FACTORIZATIONS[name], positive(3), order=0)
        return
    check(FACTORIZATIONS[name], positive(3), order=1, tolerance=1e-7)


def test_pseudoinverse_of_a_triangle():
    f = lambda a: torch.linalg.pinv(a, hermitian=True)
    check(f, draw((2, 4, 4)), order=0)  # the other triangle is not read
    for other in (math.nan, math.inf, 1e20):
        check(lambda a: f(a + a.mT + torch.tensor([[0, other], [0, 0]])), draw((2, 2)), order=0)
    check(lambda a: f(a + a.mT), draw((4, 4)), tolerance=1e-7)


NAMED = {
    "losses": lambda x, y: (
        F.mse_loss(x, y),
        F.huber_loss(x, y),
        F.kl_div(x, y.abs()),
        F.l1_loss(x, y),
    ),
    "margins": lambda x, y: (F.triplet_margin_loss(x, y, x * y), F.cosine_similarity(x, y, 1)),
    "classes": lambda x, y: (F.cross_entropy(x, y.argmax(1)), F.nll_loss(x, y.argmax(1))),
    "several": lambda x, y: F.multi_margin_loss(x, y.detach().argmax(1)),
    "norms": lambda x, y: (
        F.layer_norm(x, (4,)),
        F.rms_norm(x, (4,)),
        F.batch_norm(y, None, None, training=True),
    ),
    "distances": lambda x, y: (F.pairwise_distance(x, y), torch.cdist(x, y + 1), F.normalize(x)),
    "pairs": lambda x, y: (torch.pdist(x), torch.pdist(y, 1.0)),
}


@pytest.mark.parametrize("name", NAMED)
def test_sizes_with_names(name):
    order = 1 if name in {"several", "distances"} else 2
    check(NAMED[name], draw((5, 4)), draw((5, 4), seed=1), order=order, dynamic=True)
