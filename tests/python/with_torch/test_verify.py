"""gradus.torch.verify and energy_forces. SPEC T7"""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from models import close

import gradus
import gradus.torch


def test_verify(model, x):
    report = gradus.torch.verify(model, (x,), order=3)
    assert report and report.passed
    assert {r.order for r in report.rows} == {0, 1, 2, 3}
    assert "agrees" in str(report) and "d/d first.weight" in str(report)


def test_verify_tells_what_is_off(model, x, monkeypatch):
    f = gradus.torch.Function(model)
    f(x)
    f.function = lambda x: model(x) * 1.001
    f.function.__self__ = model
    report = gradus.torch.verify(f, (x,))
    assert not report and "DIFFERS" in str(report)


class Pairs(torch.nn.Module):
    """An energy of distances in a cell, and a charge beside it."""

    def __init__(self):
        super().__init__()
        self.width = torch.nn.Parameter(torch.tensor(0.7, dtype=torch.float64))

    def forward(self, pos, cell):
        d = pos.unsqueeze(0) - pos.unsqueeze(1) + cell[0]
        return torch.exp(-(d**2).sum(-1) * self.width).sum(1), pos.sum()


@pytest.mark.parametrize("virial", [False, True])
def test_energy_forces(virial):
    torch.manual_seed(3)
    model = Pairs()
    pos = torch.randn(5, 3, dtype=torch.float64)
    cell = torch.eye(3, dtype=torch.float64) + 0.1
    v = torch.randn(5, 3, dtype=torch.float64)
    f = gradus.torch.energy_forces(model, cell="cell" if virial else None)
    out = f(pos, cell, vector=v)

    strain = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    moved = pos.clone().requires_grad_()
    e = (strain + strain.T) / 2
    energy = model(moved + moved @ e, cell + cell @ e)
    total = energy[0].sum()
    forces, w = torch.autograd.grad(-total, (moved, strain), create_graph=True)
    (product,) = torch.autograd.grad(-forces, moved, v)
    assert close(out.energy, energy) and close(out.forces, forces) and close(out.product, product)
    assert close(out.virial, w) if virial else out.virial is None

    # Training through forces is one stage more.
    reference = torch.randn(5, 3, dtype=torch.float64)
    ours = torch.autograd.grad((f(pos, cell).forces - reference).square().sum(), model.width)
    total = model(moved, cell)[0].sum()
    (forces,) = torch.autograd.grad(-total, moved, create_graph=True)
    eager = torch.autograd.grad((forces - reference).square().sum(), model.width)
    assert close(ours, eager)


def test_energy_forces_names(model, x):
    with pytest.raises(gradus.Error, match="no tensor 'pos'.*x"):
        gradus.torch.energy_forces(model)(x)
