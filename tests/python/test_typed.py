"""Python as it is typed: attributes by place, NumPy's names, iteration."""

import os
import subprocess
import sys

import numpy as np
import pytest

import gradus
from gradus import ops


def test_dtypes_by_name():
    for given, want in (("f64", "f64"), (np.float64, "f64"), (float, "f64"), ("float16", "f16"), ("bool", "bool"),
                        (gradus.i32, "i32"), (np.dtype("u1"), "u8")):  # fmt: skip
        assert ops.eye(2, dtype=given).dtype == gradus.zeros([1], dtype=want).dtype
        assert ops.cast(np.ones(2), given).dtype == gradus.zeros([1], dtype=want).dtype
    assert "f64" in str(gradus.trace(lambda x: x + ops.eye(2, dtype="f64"), np.ones([2, 2])))
    with pytest.raises(gradus.Error, match="'f63' is no dtype"):
        ops.eye(2, dtype="f63")


def test_attributes_by_place(rng):
    a, b = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3, 4))
    x, y = gradus.tensor(a), gradus.tensor(b)
    same = np.testing.assert_allclose
    same(x.sum(0).numpy(), a.sum(0))
    same(x.sum(0, True).numpy(), a.sum(0, keepdims=True))
    same(x.sum((0, 2)).numpy(), a.sum((0, 2)))
    same(x.mean([1], True).numpy(), a.mean(1, keepdims=True))
    e = np.exp(a - a.max(-1, keepdims=True))
    same(ops.softmax(x, -1).numpy(), e / e.sum(-1, keepdims=True))
    same(x.softmax(-1).numpy(), ops.softmax(x, dim=-1).numpy())
    same(x.transpose(0, 1).numpy(), a.swapaxes(0, 1))
    same(x.permute(2, 0, 1).numpy(), a.transpose(2, 0, 1))
    same(x.permute((2, 0, 1)).numpy(), a.transpose(2, 0, 1))
    same(x.clamp(-0.5, 0.5).numpy(), a.clip(-0.5, 0.5))
    same(x.unsqueeze(1).squeeze(1).numpy(), a)
    same(x[:1].expand(2, 3, 4).numpy(), np.broadcast_to(a[:1], a.shape))
    same(x.flatten(1).numpy(), a.reshape(2, 12))
    same(ops.cat([x, y], 1).numpy(), np.concatenate([a, b], 1))
    same(ops.cat((x, y), dim=2).numpy(), np.concatenate([a, b], 2))
    same(ops.stack([x, y], -1).numpy(), np.stack([a, b], -1))
    same(ops.cat(x, y, dim=0).numpy(), np.concatenate([a, b], 0))
    same(ops.cumsum(x, 1).numpy(), a.cumsum(1))
    values, _ = ops.topk(x, 2, -1)
    same(values.numpy(), -np.sort(-a, -1)[..., :2])
    m, n = a[0], b[0].T
    for given in (("ij,jk->ik", m, n), ("ij,jk->ik", [m, n])):
        same(ops.einsum(*given).numpy(), m @ n)
    same(ops.einsum(m, n, equation="ij,jk->ik").numpy(), m @ n)
    same(x.astype("f4").numpy(), a.astype("f4"))
    assert x.astype(np.int32).dtype == gradus.i32 and x.astype(gradus.f16).dtype == gradus.f16


def test_numpys_names(rng):
    a = rng.normal(size=(2, 3))
    x = gradus.tensor(a)
    np.testing.assert_allclose(x.sum(axis=0, keepdims=True).numpy(), a.sum(axis=0, keepdims=True))
    np.testing.assert_allclose(x.permute(axes=(1, 0)).numpy(), a.T)
    np.testing.assert_allclose(ops.softmax(x, axis=1).numpy(), ops.softmax(x, 1).numpy())
    np.testing.assert_allclose(ops.cat([x, x], axis=1).numpy(), np.concatenate([a, a], 1))
    np.testing.assert_allclose(ops.amax(x, axis=-1).numpy(), a.max(-1))
    for wrong in (lambda: x.sum(dim=0, axis=1), lambda: ops.tanh(x, axis=0)):
        with pytest.raises((gradus.Error, TypeError), match="axis"):
            wrong()


def test_too_many_or_twice(rng):
    x = gradus.tensor(rng.normal(size=(2, 3)))
    with pytest.raises(TypeError, match="two values for 'dim'"):
        x.sum(0, dim=1)
    with pytest.raises(TypeError, match=r"sum\(x; dim"):
        x.sum(0, True, 3)
    with pytest.raises(TypeError, match="tanh"):
        ops.tanh(x, 1.0)


def test_the_order_is_the_signatures():
    """By place means what the signature says, for every operator."""
    for op in gradus._gradus.operators():
        if op["structural"]:
            continue
        names = [a[0] for a in op["attributes"]]
        assert op["signature"].endswith(")" + op["signature"].rpartition(")")[2])
        shown = op["signature"].partition(";")[2].rpartition(")")[0]
        places = [shown.find(f" {n}") for n in names]
        assert places == sorted(places) and -1 not in places, op["signature"]


def test_within_a_recording(rng):
    a = rng.normal(size=(2, 3))
    f = gradus.function(lambda x: [ops.einsum("ij,kj->ik", x, x).sum(0), *x])
    got = f(a)
    np.testing.assert_allclose(got[0].numpy(), (a @ a.T).sum(0))
    np.testing.assert_array_equal(got[2].numpy(), a[1])
    assert len(got) == 3


def test_iteration_ends(rng):
    a = rng.normal(size=(3, 2))
    x = gradus.tensor(a, requires_grad=True)
    assert [r.detach().tolist() for r in x] == a.tolist()
    first, *rest = x
    assert len(rest) == 2 and len(list(zip(x, range(9)))) == 3
    (d,) = gradus.gradients(sum(r[0] for r in x), x)
    assert d.tolist() == [[1, 0]] * 3
    assert list(gradus.tensor(np.ones((0, 2)))) == []
    with pytest.raises(TypeError, match="0-d"):
        list(gradus.tensor(1.0))


def test_an_order_too_low_names_the_order():
    f = gradus.function(lambda x: (x**4).sum(), order=2)
    x = gradus.tensor(np.ones(2), requires_grad=True)
    (d,) = gradus.gradients(f(x), x, create_graph=True)
    (d2,) = gradus.gradients(d.sum(), x, create_graph=True)
    with pytest.raises(gradus.Error, match="'_lambda_' was compiled for 2 derivatives; .*order=3"):
        gradus.gradients(d2.sum(), x)
    none = gradus.function(lambda x: x.sum(), order=0)
    with pytest.raises(gradus.Error, match="order=1"):
        gradus.gradients(none(x), x)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity")
def test_workers_are_no_more_than_the_process_may_use(run_script):
    cores = sorted(os.sched_getaffinity(0))
    text = "import os; os.sched_setaffinity(0, {}); import gradus; print(gradus.Context().workers)"
    for n in {1, len(cores)}:
        assert run_script(text.format(set(cores[:n]))).strip() == str(n)
    assert run_script("import gradus; print(gradus.Context(workers=3).workers)").strip() == "3"
