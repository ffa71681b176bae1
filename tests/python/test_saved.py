"""Functions in files: recorded here, called in a process that has none of their code."""

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
    with pytest.raises(gradus.Error, match="does not see into it"):
        gradus.trace(lambda x: f(P, x)["s"], np.zeros(2))


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
    path.write_text('{"gradus": "function", "version": 99}')
    with pytest.raises(gradus.Error, match="newer release"):
        gradus.load_function(path)
