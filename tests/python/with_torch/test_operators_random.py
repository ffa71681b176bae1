"""Random numbers of torch.func._random, which follow from a key: torch's own numbers."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
random = pytest.importorskip("torch.func._random")

import gradus
from torch_operators import Function, check, draw, exported


def key(seed=42, block=0):
    return torch.tensor([seed, block], dtype=torch.uint64)


KEYS = [key(), key(-7 % 2**64, 3), key(2**63 + 5, 2**64 - 9)]


@pytest.mark.parametrize("k", KEYS)
def test_keys(k):
    check(
        lambda k: (random.split(k), random.split(k, 5), random.fold_in(k, 0), random.fold_in(k, -3)),
        k,
        order=0,
    )
    check(lambda k, n: random.fold_in(k, n), k, torch.tensor(6, dtype=torch.uint64), order=0)


@pytest.mark.parametrize("k", KEYS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_floats(k, dtype):
    def drawn(k, x):
        a, b = random.split(k)
        u = random.uniform(a, 3, 5, dtype=dtype), random.uniform(b, 7, low=-1.5, high=2.5, dtype=dtype)
        n = random.normal(a, 3, 5, dtype=dtype), random.normal(b, 1, mean=0.5, std=2.0, dtype=dtype)
        return *(y.float() if dtype.itemsize == 2 else y for y in u + n), x * u[0].sum()

    tolerance = {torch.float64: 1e-12, torch.float32: 1e-6}.get(dtype, 1e-2)
    check(drawn, k, draw((3,)), tolerance=tolerance)


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("k", KEYS)
@pytest.mark.parametrize("name", INTEGERS)
def test_integers(k, name):
    dtype = getattr(torch, name)
    bounds = [{"high": 100}, {"low": 3, "high": 11}, {"low": None}, {}]
    if name.startswith("i"):
        bounds += [{"low": -5, "high": 9}, {"low": None, "high": -100}]
    if name.endswith("32"):
        bounds = [b for b in bounds if b.get("high", 0) != -100]
    check(
        lambda k: tuple([random.randint(k, 7, dtype=dtype, **b) for b in bounds])
        + (random.bits(k, 2, 3, dtype=dtype),),
        k,
        order=0,
    )


def test_orders_and_choices():
    def shuffled(k, x):
        a, b = random.split(k)
        order = random.bits(a, 6, dtype=torch.int64).argsort()
        kept = random.uniform(b, 6, dtype=torch.float64) < 0.7
        return x[order], torch.where(kept, x / 0.7, 0.0)

    check(shuffled, key(), draw((6,)))


def test_a_batch_of_keys_is_refused():
    with pytest.raises(gradus.Error, match="a batch of keys"):
        exported(Function(lambda k: random.uniform(random.split(k, 3)[:, None], 3, 2)), (key(),))
