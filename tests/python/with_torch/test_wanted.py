"""A backward computes the gradients that are asked for, and no others, once it is known which those
are. SPEC T4"""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from models import close
from torch.utils.checkpoint import checkpoint

import gradus.torch
from gradus.torch import _staged


class Net(torch.nn.Module):
    """Energies with a few parameters, one of which is frozen."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 5)
        self.second = torch.nn.Linear(5, 2)
        self.second.bias.requires_grad_(False)

    def forward(self, x, y):
        h = torch.tanh(self.first(x) * y)
        return torch.sin(self.second(h)).sum(), h.sum()


@pytest.fixture
def net():
    torch.manual_seed(3)
    return Net().double()


@pytest.fixture
def given():
    torch.manual_seed(4)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    y = torch.randn(4, 5, dtype=torch.float64)  # requires none
    return x, y


@pytest.fixture
def computed(monkeypatch):
    """By stage, how many results each run has given."""
    counts = []
    run = _staged.Compiled.run

    def counted(self, stage, state, tensors):
        results, after = run(self, stage, state, tensors)
        counts.append((stage, sum(r is not None for r in results)))
        return results, after

    monkeypatch.setattr(_staged.Compiled, "run", counted)
    return counts


def forces(f, net, given):
    return torch.autograd.grad(f(*given)[0], given[0])


def weights(f, net, given):
    return torch.autograd.grad(f(*given)[0], [net.first.weight, net.second.weight])


def everything(f, net, given):
    wanted = [given[0]] + [p for p in net.parameters() if p.requires_grad]
    return torch.autograd.grad(sum(f(*given)), wanted)


def backward(f, net, given):
    wanted = [given[0]] + [p for p in net.parameters() if p.requires_grad]
    for t in wanted:
        t.grad = None
    sum(f(*given)).backward()
    return [t.grad for t in wanted]


def one_by_one(f, net, given):
    energy = f(*given)[0]
    wanted = [given[0], net.second.weight, net.first.bias]
    return [torch.autograd.grad(energy, t, retain_graph=True) for t in wanted]


def through_forces(f, net, given):
    energy, other = f(*given)
    (slope,) = torch.autograd.grad(energy, given[0], create_graph=True)
    loss = slope.square().sum() + other
    return slope, torch.autograd.grad(loss, [net.first.weight])


def through_weights(f, net, given):
    energy = f(*given)[0]
    slopes = torch.autograd.grad(energy, [net.first.weight, given[0]], create_graph=True)
    loss = sum(s.square().sum() for s in slopes)
    return slopes, torch.autograd.grad(loss, [given[0], net.second.weight, net.first.bias])


def third(f, net, given):
    (slope,) = torch.autograd.grad(f(*given)[0], given[0], create_graph=True)
    (again,) = torch.autograd.grad(slope.square().sum(), given[0], create_graph=True)
    return torch.autograd.grad(again.square().sum(), [net.first.weight, given[0]])


def checkpointed(f, net, given):
    return torch.autograd.grad(checkpoint(f, *given, use_reentrant=False)[0], given[0])


def jacobian(f, net, given):
    """All rows of one backward at once."""
    energy = f(*given)[0]
    (slope,) = torch.autograd.grad(energy, given[0], create_graph=True)
    rows = torch.eye(12, dtype=torch.float64).reshape(12, 4, 3)
    return torch.autograd.grad(slope, given[0], rows, is_grads_batched=True)


def hessian(f, net, given):
    return torch.func.hessian(lambda x: f(x, given[1])[0])(given[0].detach())


def tangent(f, net, given):
    x = given[0].detach()
    return torch.func.jvp(lambda x: f(x, given[1])[0], (x,), (torch.ones_like(x),))


WAYS = [
    forces,
    weights,
    everything,
    backward,
    one_by_one,
    through_forces,
    through_weights,
    third,
    checkpointed,
    jacobian,
    hessian,
    tangent,
]


@pytest.mark.parametrize("second", WAYS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("first", WAYS, ids=lambda f: f.__name__)
def test_one_way_after_another(first, second, net, given):
    """What was learned from some calls holds for no other."""
    f = gradus.torch.function(net, order=3)
    eager = copy.deepcopy(net)
    for way in (first, first, second, second, first):
        assert close(way(f, net, given), way(eager, eager, given), 1e-10)


def test_gradients_of_different_kinds_in_one_graph(net, given):
    """The program learns between a forward and its backward, and between two of its backwards."""
    f = gradus.torch.function(net, order=3)
    tables = []
    for g, module in ((f, net), (copy.deepcopy(net),) * 2):
        held = g(*given)[0]
        (slope,) = torch.autograd.grad(held, given[0], create_graph=True)
        forces(g, module, given)
        through_forces(g, module, given)
        (again,) = torch.autograd.grad(slope.square().sum(), given[0], create_graph=True)
        third(g, module, given)
        everything(g, module, given)
        wanted = [given[0], module.first.weight, module.second.weight]
        tables.append(
            [
                torch.autograd.grad(again.square().sum(), wanted, retain_graph=True),
                torch.autograd.grad(slope.square().sum(), wanted, retain_graph=True),
                torch.autograd.grad(held, wanted),
            ]
        )
    assert close(*tables, 1e-10)


def test_only_what_is_wanted_is_computed(net, given, computed):
    f = gradus.torch.function(net)
    forces(f, net, given)
    assert computed[-1] == (1, 4)  # by x and three parameters: nothing is known
    forces(f, net, given)
    assert computed[-1] == (1, 1)
    weights(f, net, given)
    computed.clear()
    weights(f, net, given)
    forces(f, net, given)
    assert [n for stage, n in computed if stage == 1] == [3, 3]  # those that any has wanted
    backward(f, net, given)
    backward(f, net, given)
    assert computed[-1] == (1, 4)


def test_only_what_a_loss_of_forces_wants_is_computed(net, given, computed):
    f = gradus.torch.function(net)
    for _ in range(3):
        computed.clear()
        (slope,) = torch.autograd.grad(f(*given)[0], given[0], create_graph=True)
        torch.autograd.grad(slope.square().sum(), [net.first.weight, net.second.weight])
    assert computed == [(0, 2), (1, 1), (2, 2)]


def test_a_graph_from_before_more_was_wanted(net, given):
    """The program that is switched to gives more gradients in several stages."""
    f = gradus.torch.function(net, order=3)
    tables = []
    for g, module in ((f, net), (copy.deepcopy(net),) * 2):
        third(g, module, given)
        third(g, module, given)
        (slope,) = torch.autograd.grad(g(*given)[0], given[0], create_graph=True)
        (again,) = torch.autograd.grad(slope.square().sum(), given[0], create_graph=True)
        everything(g, module, given)
        wanted = [given[0], module.first.weight, module.second.weight]
        tables.append(torch.autograd.grad(again.square().sum(), wanted))
    assert close(*tables, 1e-10)
