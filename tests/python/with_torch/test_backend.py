"""torch.compile(…, backend="gradus"). SPEC T5"""

import os
import pathlib
import subprocess
import sys
import tomllib
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from models import close

import gradus
import gradus.torch

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def forget():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def compiled(f, **options):
    return torch.compile(f, backend=gradus.torch.backend, options=options or None)


def test_double_backward(model, x):
    f = compiled(model)

    def run(g):
        energy = g(x)
        (slope,) = torch.autograd.grad(energy, x, create_graph=True)
        loss = (slope**2).sum() + energy
        return energy, slope, torch.autograd.grad(loss, [model.first.weight, x])

    for _ in range(2):
        assert close(run(f), run(model))


def test_sizes_with_names(model):
    f = compiled(model, order=1, strict=True)
    for n in (4, 5, 6, 7, 30):
        x = torch.randn(n, 3, dtype=torch.float64, requires_grad=True)
        assert close(torch.autograd.grad(f(x), x), torch.autograd.grad(model(x), x))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2


def test_results_that_are_sizes(x):
    def of(x):
        return x.sin(), x.shape[0] + 1

    f = torch.compile(of, backend=gradus.torch.backend, dynamic=True)
    for n in (4, 6):
        y = torch.randn(n, 3)
        assert close(f(y), of(y), 1e-6)


def of_normal(x):
    return torch.normal(x, 1.0).sum() + x.sum()


def test_what_cannot_be_imported_runs_eagerly(x):
    f = compiled(of_normal)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):
            torch.manual_seed(0)
            y = f(x)
            torch.manual_seed(0)
            assert close(y, of_normal(x))
    said = [str(w.message) for w in said if "gradus" in str(w.message)]
    assert len(said) == 1
    assert "normal" in said[0] and "test_backend.py" in said[0]


def test_strict(x):
    f = compiled(of_normal, strict=True)
    with pytest.raises(gradus.Unsupported, match="normal"):
        f(x)


def test_options(x):
    with pytest.raises(Exception, match="no option 'ordre'"):
        compiled(torch.sin, ordre=2)(x)
    f = compiled(lambda x: torch.sin(x).sum(), order=1)
    (slope,) = torch.autograd.grad(f(x), x, create_graph=True)
    with pytest.raises(gradus.Error, match="order=2"):
        slope.sum().backward()


def test_entry_point(tmp_path):
    """As an installed package says it: the name alone finds the backend."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        points = tomllib.load(file)["project"]["entry-points"]["torch_dynamo_backends"]
    info = tmp_path / "gradus-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gradus\nVersion: 0\n")
    lines = ["[torch_dynamo_backends]"] + [f"{n} = {to}" for n, to in points.items()]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    path = os.pathsep.join([str(tmp_path)] + [p for p in sys.path if p])
    code = (
        "import torch\n"
        "f = torch.compile(lambda x: torch.sin(x).sum(), backend='gradus', "
        "options={'order': 2, 'strict': True})\n"
        "x = torch.ones(3, requires_grad=True)\n"
        "(g,) = torch.autograd.grad(f(x), x, create_graph=True)\n"
        "(h,) = torch.autograd.grad(g.sum(), x)\n"
        "torch.testing.assert_close(h, -torch.sin(x))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": path})
