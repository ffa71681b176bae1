"""Type hints and docstrings."""

import inspect
import pathlib
import subprocess
import sys

import pytest

import gradus


def test_every_operator_has_a_stub():
    stub = (pathlib.Path(gradus.__file__).parent / "ops.pyi").read_text()
    for name in gradus.ops.__all__:
        assert f"def {name}(" in stub, name


def test_everything_public_has_a_docstring():
    for name in gradus.__all__:
        thing = getattr(gradus, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert thing.__doc__, name
    for name in gradus.ops.__all__:
        assert getattr(gradus.ops, name).__doc__
    assert str(inspect.signature(gradus.ops.softmax)) == "(x, *, dim)"
    assert "1e-05" in str(inspect.signature(gradus.ops.layer_norm))


def test_the_package_is_typed():
    folder = pathlib.Path(gradus.__file__).parent
    assert (folder / "py.typed").exists() and (folder / "ops.pyi").exists()
    stub = (folder / "_gradus.pyi").read_text()
    for name in ("class Tensor", "class Program", "class State", "class View", "def __add__"):
        assert name in stub


GOOD = """
import numpy as np
import gradus
from gradus import ops

program: gradus.Program = gradus.parse("").differentiate(2, wrt=["x"])
state = gradus.State(program.compile(), fusion="off")
results: gradus.Results = state.run(np.ones(3), None, w=1.0, timeout=2)
x: gradus.Tensor = gradus.tensor([1.0], dtype="f32", requires_grad=True)
y: gradus.Tensor = ops.softmax(x * 2 + np.ones(3), dim=-1).sum()
values: tuple[gradus.Tensor, gradus.Tensor] = ops.sort(x)
a: np.ndarray = x.numpy()
shape: tuple[int, ...] = x.shape

@gradus.function(order=2)
def f(x: gradus.Tensor) -> gradus.Tensor:
    return ops.tanh(x)

z: gradus.Tensor = f(x)
code = program.compile(memory_budget=10, sizes={"N": 3}, dump=lambda name, p: print(name, p.name))
with gradus.Context(workers=2, kernels=gradus.KernelOptions(whole_stages="off")) as context:
    held: int = gradus.State(code, context=context).prepare({"N": 3})[0].held
state.run(1.0, into=[np.zeros(3), None], cancel=gradus.CancelToken(), observer=context)
state.run(1.0, into={"y": np.zeros(3)})
view: gradus.View = program.view(sizes={"N": 3}, written=True)
drawing: str = view.svg
"""
BAD = {
    "gradus.parse(3)": "arg-type",
    "gradus.ops.softmax(gradus.ones(2))": "call-arg",
    "gradus.ops.sofmax(gradus.ones(2), dim=0)": "attr-defined",
    "gradus.ones(2).shape = (1,)": "misc",
    "x: int = gradus.ones(2).sum()": "assignment",
}


def test_types_hold(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")

    def check(text):
        file = tmp_path / "user.py"
        file.write_text(text)
        shown = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", file],
            capture_output=True, text=True, cwd=pathlib.Path(gradus.__file__).parents[1],
            env={"PATH": "", "MYPYPATH": str(pathlib.Path(gradus.__file__).parents[1])},
        ).stdout
        return "".join(line for line in shown.splitlines(True) if "user.py:" in line)

    assert check(GOOD) == ""
    for line, kind in BAD.items():
        assert f"[{kind}]" in check(f"import gradus\n{line}\n"), line
