"""Functions in files: recorded here, called in a process that has none of their code."""

import json

import numpy as np
import pytest

import gradus
from gradus import ops

CALL = """
import sys
import numpy as np
import gradus

assert "train" not in sys.modules
f = gradus.load_function({path!r})
p = {{"w": np.array([[0.1, -0.7], [1.3, 0.2]]), "b": [np.array([0.5, -0.25])]}}
x = gradus.tensor(np.array([0.3, 0.9]), requires_grad=True)
for _ in range(2):
    y = f(p, x)
    assert type(y) is dict and y["n"] == 2 and y["y"][1] is None
    (d,) = gradus.gradients(y["s"], x, create_graph=True)
    (d2,) = gradus.gradients(d.sum(), x)
    print(y["y"][0].detach().tolist(), d.detach().tolist(), d2.tolist())
    f(x=x, p=p, scale=1.1)
"""

P = {"w": np.array([[0.1, -0.7], [1.3, 0.2]]), "b": [np.array([0.5, -0.25])]}


def make(rng):
    c = rng.normal(size=2)

    @gradus.function(order=2)
    def train(p, x, *, scale=1.1):
        y = ops.tanh(p["w"] @ x + p["b"][0]) * scale * c
        return {"y": (y, None), "s": (y * y).sum(), "n": 2}

    return train


def test_it_gives_the_same_bits_elsewhere(rng, tmp_path, run_script):
    f, path = make(rng), str(tmp_path / "train.json")
    gradus.save_function(f, path, P, np.zeros(2))
    x = gradus.tensor(np.array([0.3, 0.9]), requires_grad=True)
    y = f(P, x)
    (d,) = gradus.gradients(y["s"], x, create_graph=True)
    (d2,) = gradus.gradients(d.sum(), x)
    want = f"{y['y'][0].detach().tolist()} {d.detach().tolist()} {d2.tolist()}"
    assert run_script(CALL.format(path=path)).splitlines() == [want] * 2


def test_other_arguments_are_refused(rng, tmp_path):
    path = tmp_path / "train.json"
    gradus.save_function(make(rng), path, P, np.zeros(2))
    f = gradus.load_function(path)
    f(P, np.zeros(2))
    for call in (
        lambda: f(P, np.zeros(3)),
        lambda: f(P, np.zeros(2, "f4")),
        lambda: f(P, np.zeros(2), scale=2.0),
        lambda: f({"w": P["w"]}, np.zeros(2)),
    ):
        with pytest.raises(gradus.Error, match="was saved for"):
            call()
        with pytest.raises(gradus.Error, match="was saved for"):
            gradus.function(call)()


def looped(rng):
    @gradus.function(order=3)
    def looped(x, n):
        return {"s": gradus.fori_loop(0, n, lambda i, c: ops.sin(c) + c * i * 0.1, x).sum()}

    return looped, (np.array([0.3, 0.9]), 5)


def masked(rng):
    @gradus.function(order=3)
    def masked(x, mask=True, *rest, k=2.0, **named):
        bits = (x > 0) & mask
        return {"s": (ops.where(bits, x**3, k) + sum(rest)).sum() * named["c"], "bits": bits}

    return masked, (np.array([0.3, -0.9]), False, np.ones(2))


@pytest.mark.parametrize("what", [lambda rng: (make(rng), (np.array([0.3, 0.9]),)), looped, masked])
def test_it_is_a_part_of_recordings(rng, tmp_path, what):
    f, (x, *rest) = what(rng)
    named = {"c": np.array(1.5)} if f.__name__ == "masked" else {}

    def of(f):
        if f.__name__ == "train":
            return lambda x: f(P, x)["s"]
        return lambda x: f(x, *rest, **named)["s"]

    gradus.save_function(f, tmp_path / "f", *((P,) if f.__name__ == "train" else ()), x, *rest, **named)
    mine, theirs = of(gradus.load_function(tmp_path / "f")), of(f)
    u, xs = rng.normal(size=2), rng.normal(size=(3, 2))
    for way in (
        lambda f: gradus.function(f)(x),
        lambda f: gradus.grad(gradus.function(f))(x),
        lambda f: gradus.grad(f)(x),
        lambda f: gradus.jvp(f, x, u)[1],
        lambda f: gradus.hvp(f, x, u),
        lambda f: gradus.jacobian(f, x),
        lambda f: gradus.hessian(f, x),
        lambda f: gradus.laplacian(f, x),
        lambda f: gradus.hessian(f, xs, mapped=0),
        lambda f: gradus.vmap(f)(xs),
        lambda f: gradus.vmap(gradus.grad(f))(xs),
        lambda f: gradus.scan(lambda c, x: (c + f(x), None), 0.0, xs)[0],
        lambda f: gradus.function(lambda xs: gradus.map(f, xs))(xs),
    ):
        np.testing.assert_allclose(way(mine).numpy(), way(theirs).numpy(), rtol=1e-13)


def test_derivatives_of_it_are_compiled_once(rng, tmp_path):
    f, (x, n) = looped(rng)
    by_default = gradus.function(lambda x, k=1.0, *, by=1.0: f(x, n)["s"] * k * by)
    gradus.save_function(by_default, tmp_path / "f", x)
    loaded = gradus.load_function(tmp_path / "f")
    g = gradus.grad(loaded)
    for _ in range(2):
        np.testing.assert_allclose(g(x).numpy(), gradus.grad(lambda x: f(x, n)["s"])(x).numpy())
        gradus.hessian(loaded, x)
    assert g._known == 1 and loaded._gradus_kept["hessian", (0,), False, ()]._known == 1


def test_what_cannot_be_saved_or_read(rng, tmp_path):
    path = tmp_path / "f.json"
    with pytest.raises(gradus.Error, match="cannot be saved"):
        gradus.save_function(gradus.function(lambda x, d: x), path, np.zeros(2), gradus.f32)
    with pytest.raises(gradus.Error, match="defaults"):
        gradus.save_function(gradus.function(lambda x, w=np.ones(2): x * w), path, np.zeros(2))
    with pytest.raises(gradus.Error, match="gradus.function"):
        gradus.save_function(lambda x: x, path, np.zeros(2))
    assert not path.exists()
    for text in ("", "{}", "[1]", '{"gradus": "program"}'):
        path.write_text(text)
        with pytest.raises(gradus.Error, match="no saved function"):
            gradus.load_function(path)
    f, args = masked(rng)
    gradus.save_function(f, path, *args, c=np.ones(()))
    text, content = path.read_text(), json.loads(path.read_text())
    broken = [text.replace("where(", "wher("), text.replace('"dict"', '"dic"'), text.replace('"i": 0', '"i": 99')]
    for key in content.keys() - {"gradus", "fast_functions"}:
        broken.append(json.dumps({k: v for k, v in content.items() if k != key}))
        for value in (None, [], {}, "text", 7, [7], {"t": "list"}, {"t": "float", "v": "x"}, [["x", 99]]):
            if value == content[key] or (key, value) in [("name", "text"), ("order", 7)]:
                continue
            broken.append(json.dumps({**content, key: value}))
    for case in broken:
        path.write_text(case)
        with pytest.raises(gradus.Error) as e:
            gradus.load_function(path)
        assert str(path) in str(e.value), case
    path.write_text('{"gradus": "function", "version": 99}')
    with pytest.raises(gradus.Error, match="newer release"):
        gradus.load_function(path)
