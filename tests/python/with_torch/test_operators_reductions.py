"""Reductions and sorting of torch.export's programs against PyTorch."""

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
F = torch.nn.functional

import gradus
from torch_operators import Function, Ours, check, draw, exported, ints

f64, f32, i64, i32 = torch.float64, torch.float32, torch.int64, torch.int32


REDUCTIONS = {
    "sum": lambda x: (x.sum(), x.sum(0), x.sum((0, 2), True), x.sum([]), x.sum(1, dtype=f32)),
    "mean": lambda x: (x.mean(), x.mean(-1), x.mean((0, 1), True), x.mean(dtype=f32)),
    "prod": lambda x: (x.prod(), x.prod(1), x.prod(0, True)),
    "var": lambda x: (
        x.var(),
        x.var(0),
        x.var((1, 2), False, True),
        x.var(1, correction=2),
        torch.var_mean(x, 1)[1],
    ),
    "std": lambda x: (
        x.std(),
        x.std(0),
        x.std((1, 2), False, True),
        *torch.std_mean(x, 0),
        *torch.var_mean(x, 2, correction=0),
    ),
    "amax": lambda x: (
        x.amax(),
        x.amax(0),
        x.amax((0, 2), True),
        x.amin(),
        x.amin(1),
        *torch.aminmax(x),
        *torch.aminmax(x, dim=1, keepdim=True),
    ),
    "max": lambda x: (x.max(), *x.max(1), *x.max(0, True), x.min(), *x.min(-1), *x.min(0, True)),
    "argmax": lambda x: (
        x.argmax(),
        x.argmax(1),
        x.argmax(0, True),
        x.argmin(),
        x.argmin(-1),
        x * 2,
    ),
    "norm": lambda x: (
        x.norm(),
        torch.norm(x, 3, 1),
        torch.norm(x, 1, (0, 1), True),
        torch.norm(x, math.inf, 0),
        torch.norm(x, p="fro"),
    ),
    "vector_norm": lambda x: [
        torch.linalg.vector_norm(x, p, 1, True) for p in (1, 2, 2.5, 3, math.inf, -math.inf, -1)
    ],
    "linalg_norm": lambda x: (
        torch.linalg.norm(x),
        torch.linalg.norm(x, dim=1),
        torch.linalg.norm(x, 3, 2),
        torch.linalg.norm(x[0], 1),
        torch.linalg.norm(x[0], "fro"),
        torch.linalg.norm(x[0], -math.inf),
    ),
    "matrix_norm": lambda x: (
        torch.linalg.matrix_norm(x),
        torch.linalg.matrix_norm(x, 1),
        torch.linalg.matrix_norm(x, math.inf, (0, 2), True),
        torch.linalg.matrix_norm(x, -1, (2, 0)),
    ),
    "logsumexp": lambda x: (
        x.logsumexp(1),
        x.logsumexp((0, 2), True),
        torch.special.logsumexp(x, 0),
    ),
    "cumsum": lambda x: (x.cumsum(0), x.cumsum(-1), x.cumsum(1, dtype=f32)),
    "cumprod": lambda x: (x.cumprod(0), x.cumprod(-1)),
    "logcumsumexp": lambda x: (x.logcumsumexp(0), x.logcumsumexp(-1)),
    "cummax": lambda x: (*x.cummax(0), *x.cummin(-1)),
    "median": lambda x: (x.median(), *x.median(1), *x.median(0, True)),
    "count_nonzero": lambda x: (
        torch.count_nonzero(x),
        torch.count_nonzero(x, 1),
        torch.count_nonzero(x, (0, 2)),
        x + 1,
    ),
    "any": lambda x: (
        (x > 0).any(),
        (x > 0).any(1),
        (x > 1).any((0, 2), True),
        (x > 0).any(dim=()),
        (x > 0).all(dim=(), keepdim=True),
        x.all(),
        (x > 0).all(0, True),
        (x > 0).all((0, 1)),
        x * 1,
    ),
    "dist": lambda x: (
        torch.dist(x, x * x),
        torch.dist(x, x[0], 1),
        torch.dist(x, x[:1], math.inf),
    ),
    "nansum": lambda x: (torch.nansum(x.log()), x.log().nansum(1), x.log().nanmean(1)),
    "sort": lambda x: (
        *x.sort(),
        *x.sort(0, True),
        *torch.sort(x, stable=True, dim=1),
        x.argsort(1),
        torch.msort(x),
    ),
    "topk": lambda x: (*x.topk(2), *x.topk(2, 1, False), *x.topk(1, 0)),
    "kthvalue": lambda x: (*x.kthvalue(2), *x.kthvalue(1, 0, True)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("shape", [(2, 3, 4), (4, 3, 2)])
def test_reduction(name, shape):
    f = lambda x: tuple(REDUCTIONS[name](x))
    narrows = name in {"sum", "mean", "cumsum"}
    check(f, draw(shape), tolerance=1e-5 if narrows else None)
    if name not in {"norm", "linalg_norm", "matrix_norm", "vector_norm"}:
        check(f, draw(shape, dtype=f32, seed=3), order=1)


@pytest.mark.parametrize(
    "name",
    [
        "sum",
        "prod",
        "amax",
        "max",
        "argmax",
        "cumsum",
        "cumprod",
        "cummax",
        "median",
        "count_nonzero",
        "any",
        "sort",
        "topk",
        "kthvalue",
    ],
)
def test_reduction_of_integers(name):
    x = torch.tensor([[[3, 1, 7, 9], [2, 8, 5, 0]], [[-4, 6, 11, 13], [-1, 4, 10, 12]]])
    check(lambda x: tuple(REDUCTIONS[name](x)), x, order=0)


@pytest.mark.parametrize("dtype", [f64, f32], ids=str)
def test_variance_with_any_correction(dtype):
    f = lambda x: (
        x.var(1, correction=1.5).sin(),
        x.std(0, correction=0.25, keepdim=True).sin(),
        *torch.var_mean(x, (0, 2), correction=2.5),
        x.var(correction=-0.5),
    )
    check(f, draw((3, 4, 2), dtype=dtype))
    check(lambda x: (x.var(0, correction=1.5), x.std(correction=0.5)), draw((5, 3)), dynamic=True)
    check(lambda x: x[:, :1].var(1, correction=1.5), draw((3, 4)), order=0)
    # Where the deviation is 0, its derivative is.
    check(lambda x: (x * 0 + 1).std(0, correction=0.5), draw((3, 4)), order=1)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int64, torch.bool])
def test_running_extrema_of_the_least_integer(dtype):
    least = 0 if dtype in (torch.uint8, torch.bool) else torch.iinfo(dtype).min
    x = torch.tensor([3, least, 2, 100, least]).to(dtype)
    check(lambda x: (*x.cummin(0), *x.cummax(0)), x, order=0)


def test_reduction_of_truths():
    x = ints((3, 4), 0, 2).bool()
    check(
        lambda x: (
            x.sum(),
            x.sum(1),
            x.any(),
            x.all(0),
            x.prod(),
            x.cumsum(0),
            x.any(1, True),
            x.float().mean(),
            torch.mean(x, dtype=f32),
        ),
        x,
        order=0,
    )
    check(
        lambda x: (x.any(), x.all(), x.any(0)), torch.tensor([0, 3, 0], dtype=torch.uint8), order=0
    )
    check(lambda x: (x.any(), x.all()), torch.tensor([0.0, math.nan]), order=0)


def test_reduction_of_no_dimensions():
    f = lambda x: (
        x.sum(),
        x.sum(0),
        x.mean(0),
        x.amax(0),
        *x.max(0),
        x.argmax(),
        x.argmax(0),
        x.cumsum(0),
        *x.cummax(0),
        x.prod(0),
        x.norm(),
        x.logsumexp(0),
        *x.sort(),
        *x.topk(1),
        x.median(),
        *x.median(0),
        x.softmax(0),
        x.log_softmax(0),
        x.std(correction=0),
        x.max(),
    )
    check(f, torch.tensor(0.7, dtype=f64))


def test_ties():
    x = torch.tensor([[1.0, 1.0, 0.0], [2.0, 2.0, 2.0]], dtype=f64)
    check(
        lambda x: (
            x.amax(1),
            x.max(),
            *x.max(1),
            x.min(),
            x.median(),
            *x.median(1),
            *x.sort(stable=True),
            torch.linalg.vector_norm(x, math.inf, 1),
            x.aminmax().max,
        ),
        x,
    )


def test_zeros():
    x = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 2.0]], dtype=f64)
    check(
        lambda x: (
            torch.linalg.vector_norm(x, dim=1),
            x.norm(3, 1),
            x.norm(1, 1),
            x.prod(1),
            x.cumprod(1),
            (x - x).std(),
            F.normalize(x, dim=1),
        ),
        x,
        order=1,
    )


def test_searching():
    edges = torch.tensor([0.0, 1.0, 2.0, 2.0, 3.0], dtype=f64)
    f = lambda e, x: (
        torch.bucketize(x, e),
        torch.bucketize(x, e, right=True),
        torch.searchsorted(e, x),
        torch.searchsorted(e, x, side="right", out_int32=True),
        torch.bucketize(1.0, e),
    )
    check(f, edges, torch.tensor([[-1.0, 0.0, 2.0], [2.5, 3.0, 9.0]], dtype=f64), order=0)
    rows = torch.stack([edges, edges + 0.5])
    check(lambda e, x: torch.searchsorted(e, x), rows, draw((2, 3), 0, 3), order=0)
    check(lambda e, x: torch.bucketize(x.sin(), e) * x, edges, draw((2, 3)))


@pytest.mark.parametrize("dtype", [f64, f32], ids=str)
@pytest.mark.parametrize("right", [False, True])
def test_searching_with_nan(right, dtype):
    # Also in rows that NaN leaves in no order, where places follow from the steps of the search.
    nan, inf = math.nan, math.inf
    x = torch.tensor([-5.0, 0.0, 1.0, 1.5, 2.0, 9.0, nan, inf, -inf], dtype=dtype)
    f = lambda e, x: torch.searchsorted(e, x, right=right)
    rows = [[], [0.0], [nan], [0.0, 1.0, 2.0, 2.0, 3.0], [0.0, 1.0, nan, nan], [0.0, inf, nan]]
    rows += [[0.0, nan, 1.0, 2.0, nan, 3.0, nan], [nan, 1.0, 2.0, 3.0]]
    for row in rows:
        check(f, torch.tensor(row, dtype=dtype), x, order=0)
        several = torch.tensor([row, row[::-1]], dtype=dtype)
        check(f, several, torch.stack([x, x.flip(0)]), order=0)


def test_searching_in_any_order():
    f = lambda e, x: (
        torch.searchsorted(e, x, sorter=torch.argsort(e)),
        torch.searchsorted(e, x, sorter=torch.argsort(e), right=True),
    )
    check(f, draw((9,)), draw((2, 3), seed=1), order=0)
    check(f, draw((2, 3, 9)), draw((2, 3, 4), seed=1), order=0)


def test_searching_kinds_of_numbers():
    places = ints((5,), 0, 6).sort()[0]
    check(lambda e, x: torch.bucketize(x, e), places, draw((7,), 0, 6), order=0)
    check(lambda e, x: torch.bucketize(x, e), draw((6,), 0, 6).sort()[0], ints((7,)), order=0)
    check(lambda e: torch.searchsorted(e, 2.5, out_int32=True), places, order=0)
    check(lambda e, x: torch.searchsorted(e, x), draw((6,)).sort()[0], draw(()), order=0)
    check(lambda e, x: torch.searchsorted(e, x), draw((2, 6)).sort()[0], draw((2, 0)), order=0)


@pytest.mark.parametrize("elements", [0, 1, 2, 7, 64])
def test_searching_any_number_of_elements(elements):
    n, m = torch.export.Dim("n", min=0), torch.export.Dim("m", min=0)
    f = Function(lambda e, x: torch.searchsorted(e, x))
    program = exported(f, (draw((5,)), draw((3,))), dynamic_shapes=(({0: n}, {0: m}),))
    edges, x = draw((elements,)).sort()[0], draw((9,), seed=1)
    (name,) = [n for n, _ in program.results()]
    ours = Ours(program, (edges, x), 0)
    assert (ours.run(ours.inputs)[name] == torch.searchsorted(edges, x).numpy()).all()


def test_searching_takes_memory_of_its_operands():
    # All against all would take 90 GB.
    edges, x = draw((100_000,)).sort()[0], draw((100_000,), seed=1)
    check(lambda e, x: torch.searchsorted(e, x), edges, x, order=0)


def test_unique_follows_torch():
    def f(x):
        return (
            *torch.unique(x, return_inverse=True, return_counts=True),
            *torch.unique(x, dim=0, return_inverse=True, return_counts=True),
            *torch.unique(x, dim=1, return_counts=True),
            *torch.unique_consecutive(x, return_inverse=True, return_counts=True),
            *torch.unique_consecutive(x, dim=1, return_inverse=True),
            torch.unique(x),
        )

    check(f, ints((6, 3), 0, 2), order=0)
    check(f, ints((4, 2), 0, 3).double(), order=0)
    check(f, ints((7, 1), 0, 3), order=0)
    check(lambda x: torch.unique(x, return_counts=True), torch.zeros(2, dtype=f64), order=0)


NAMED = {
    "mean": lambda x: (x.mean(), x.mean(0), x.var(0), x.std(), x.sum((0, 1), True), x.logsumexp(0)),
    "max": lambda x: (
        x.max(),
        *x.max(0),
        x.amin(1),
        x.argmax(),
        x.median(),
        x.norm(),
        x.norm(3, 0),
    ),
    "sort": lambda x: (*x.sort(0), *x.topk(2, 0), *x.kthvalue(2, 0), x.cumsum(0), *x.cummax(0)),
    "any": lambda x: ((x > 0).any(), (x > 0).all(0), torch.count_nonzero(x, 0), x.prod(0), x * 2),
}


@pytest.mark.parametrize("name", NAMED)
def test_sizes_with_names(name):
    check(NAMED[name], draw((5, 3)), dynamic=True)
