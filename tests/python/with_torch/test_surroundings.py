"""gradus.torch.function among the rest of torch: optimizers, hooks, transforms, threads, memory.
SPEC T4"""

import copy
import inspect
import threading
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from models import Energy, close

import gradus
import gradus.torch

OPTIMIZERS = sorted(
    name
    for name, c in vars(torch.optim).items()
    if inspect.isclass(c) and issubclass(c, torch.optim.Optimizer) and name != "Optimizer"
)


def optimizer_of(name, parameters):
    kind = getattr(torch.optim, name)
    if name == "Muon":  # of matrices alone
        parameters = [p for p in parameters if p.dim() == 2]
    return kind(parameters, **({} if name == "Adafactor" else {"lr": 0.01}))


@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if n != "SparseAdam"])
def test_optimizer(name, model, x):
    """Steps of training through a gradient go where eager torch's go."""
    eager = copy.deepcopy(model)
    ends = []
    for g, module in ((gradus.torch.function(model), model), (eager, eager)):
        optimizer = optimizer_of(name, [p for p in module.parameters() if p.requires_grad])

        def loss():
            optimizer.zero_grad()
            (slope,) = torch.autograd.grad(g(x), x, create_graph=True)
            found = (slope - 1).square().sum()
            found.backward(inputs=list(p for p in module.parameters() if p.requires_grad))
            return found

        before = module.first.weight.detach().clone()
        for _ in range(4):
            optimizer.step(loss)
        assert not torch.equal(module.first.weight, before)
        ends.append(dict(module.state_dict()))
    assert close(*ends, 1e-7 if name == "LBFGS" else 1e-9)


def test_hooks_of_every_kind(model, x):
    """In the order and with the values of eager torch."""
    logs = []
    for module in (gradus.torch.function(model), copy.deepcopy(model)):
        log = []
        own = module.module if isinstance(module, gradus.torch.Module) else module
        handles = [
            module.register_forward_pre_hook(lambda m, a: log.append(("pre", a[0].sum()))),
            module.register_forward_hook(lambda m, a, r: log.append(("forward", r))),
            module.register_full_backward_hook(lambda m, i, o: log.append(("backward", i[0]))),
            own.second.weight.register_post_accumulate_grad_hook(
                lambda p: log.append(("accumulated", p.grad.clone()))
            ),
        ]
        y = x.detach().clone().requires_grad_()
        out = module(y)
        out.retain_grad()
        out.register_hook(lambda g: g * 2)
        out.backward()
        log += [("result", out.grad), ("input", y.grad)]
        for h in handles:
            h.remove()
        logs.append(sorted(log, key=lambda entry: entry[0]))
        own.zero_grad()
    assert close(*logs)


def test_a_hook_that_changes_a_gradient(model, x):
    tables = []
    for g, module in ((gradus.torch.function(model), model), (copy.deepcopy(model),) * 2):
        handle = module.second.weight.register_hook(lambda grad: grad * 3)
        tables.append(torch.autograd.grad(g(x), [module.second.weight, x]))
        handle.remove()
    assert close(*tables)


class Pair(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor


def test_trees_of_every_kind(x):
    def of(pair, *rest, flags=(True, "sum"), **named):
        total = pair.a * pair.b + sum(r["t"][0] for r in rest)
        for t in named.values():
            total = total * t
        return Pair(total if flags[0] else -total, [total.sum(), flags[1]]), {"n": len(rest)}

    f = gradus.torch.function(of)
    given = (Pair(x, x * 2), {"t": (x.sin(),)}, {"t": [x.cos(), 3]})
    for options in ({}, {"flags": (False, "mean")}, {"k": x * 0.5}):
        assert close(f(*given, **options), of(*given, **options))


def test_undefined_cotangents(x):
    """A result that is not used has no cotangent, in the next stage too; nor has one by a function
    that gives None."""

    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a * 1, b * 1

        @staticmethod
        def backward(ctx, a, b):
            return (a if a is None else a * 0.5), None

    def of(x):
        return torch.sin(x), torch.exp(x), x.sum() * 3

    tables = []
    for g in (gradus.torch.function(of), of):
        a, b, c = g(x)
        a, b = Half.apply(a, b)
        (slope,) = torch.autograd.grad((a * a).sum() + b.sum(), x, create_graph=True)
        tables.append([slope, *torch.autograd.grad(slope.sum(), x)])
    assert close(*tables)


def test_results_without_a_path(x):
    f = gradus.torch.function(lambda x, w: (x.sin(), w.detach() * 2))
    w = torch.ones(3, dtype=torch.float64, requires_grad=True)
    a, b = f(x, w)
    assert not b.requires_grad
    assert torch.autograd.grad(a.sum(), w, allow_unused=True) == (None,)


def test_ensembles_and_per_sample_gradients(model):
    """Parameters stacked, and a gradient for each sample by all parameters."""
    models = [copy.deepcopy(model) for _ in range(3)]
    for i, m in enumerate(models):
        torch.nn.init.normal_(m.first.weight, generator=torch.Generator().manual_seed(i))
    f = gradus.torch.function(model)
    xs = torch.randn(5, 4, 3, dtype=torch.float64)
    tables = []
    for g in (f, model):

        def loss(p, x, g=g):
            return torch.func.functional_call(g, p, (x,))

        stacked = {
            n: torch.stack([dict(m.named_parameters())[n].detach() for m in models])
            for n, _ in model.named_parameters()
        }
        own = {n: p.detach() for n, p in model.named_parameters()}
        each = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(own, xs)
        all = torch.vmap(loss, in_dims=(0, None))(stacked, xs[0])
        tables.append([all, each])
    assert close(*tables)


def test_functional_jacobian(x):
    def of(x):
        return torch.tanh(x @ x.T).sum(1)

    f = gradus.torch.function(of)
    for vectorize in (False, True):
        mine, eager = (
            torch.autograd.functional.jacobian(g, x, vectorize=vectorize) for g in (f, of)
        )
        assert close(mine, eager)
    assert close(*[torch.autograd.functional.vjp(g, x, torch.ones(4).double()) for g in (f, of)])


def test_gradcheck(model, x):
    f = gradus.torch.function(model)
    assert torch.autograd.gradcheck(f, (x,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(f, (x,))


def test_threads_that_run_while_one_exports(x):
    """torch.export puts its own tensors into the module meanwhile."""

    class Scaled(Energy):
        def forward(self, x, scale):
            return super().forward(x) * scale

    torch.manual_seed(7)
    model = Scaled().double()
    f = gradus.torch.function(model)
    expected = torch.autograd.grad(model(x, 1.0), x)
    f(x, 1.0)
    faults, stop = [], threading.Event()

    def work():
        try:
            while not stop.is_set():
                close(torch.autograd.grad(f(x, 1.0), x), expected)
        except BaseException as e:
            faults.append(e)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for scale in (2.0, 3.0, 4.0, 5.0):  # each is exported
        close(torch.autograd.grad(f(x, scale), x), [scale * g for g in expected])
    stop.set()
    for t in threads:
        t.join()
    assert not faults


def test_no_copies():
    """A later stage reads the caller's memory, and torch reads a tensor of ours where it lies."""
    f = gradus.torch.function(lambda x, w: x * w, dynamic=True)
    x, w = torch.ones(8, requires_grad=True), torch.full((8,), 2.0, requires_grad=True)
    compiled = f.variant(x, w).staged.compiled((True, True), 1)
    state = gradus.State(compiled.code)
    (y,) = state.run_exchanged([x.detach(), w.detach()], torch.Tensor)
    assert close(y, torch.full((8,), 2.0))
    with torch.no_grad():
        w.fill_(5)  # behind its back
    dx, dw = state.run_exchanged([torch.ones(8)], torch.Tensor)
    assert close(dx, torch.full((8,), 5.0)) and close(dw, torch.ones(8))
    ours = gradus.State(compiled.code).run(x.detach(), w.detach())[0]
    seen = torch.from_dlpack(ours)
    assert seen.data_ptr() == torch.from_dlpack(ours).data_ptr()
    assert seen.data_ptr() == ours.numpy().__array_interface__["data"][0]


def test_a_module_that_was_made_anew(model, x):
    """load_state_dict, moves and replaced parameters are seen by the next call."""
    f = gradus.torch.function(model)
    f(x)
    other = Energy().double()
    f.load_state_dict(other.state_dict())
    assert close(f(x), other(x))
    model.second.weight = torch.nn.Parameter(model.second.weight.detach() * 2)
    assert close(f(x), model(x)) and not close_to(f(x), other(x))
    model.float()
    assert close(f(x.detach().float()), model(x.detach().float()), 1e-6)


def close_to(a, b):
    return bool(torch.allclose(a, b))
