"""gradus.torch.function: modules and functions as programs that torch differentiates. SPEC T4"""

import copy
import io
import pickle
import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from models import Energy, close
from torch.utils.checkpoint import checkpoint

import gradus
import gradus.torch


def force_loss(f, model, x):
    """Energy, forces, and the gradient of a loss of both by all parameters."""
    energy = f(x)
    (slope,) = torch.autograd.grad(energy, x, create_graph=True)
    loss = (slope**2).sum() + energy
    wanted = [p for p in model.parameters() if p.requires_grad] + [x]
    return energy, slope, torch.autograd.grad(loss, wanted)


def test_double_backward(model, x):
    f = gradus.torch.function(model, order=2)
    for _ in range(3):  # the first learns how many stages are used
        assert close(force_loss(f, model, x), force_loss(model, model, x))


def test_a_function_of_several_trees(x):
    def of(pair, scale, *, shift):
        a, b = pair["a"], pair["b"]
        return {"s": torch.sin(a * b) * scale, "rest": [a.sum() + shift, 3, None]}

    f = gradus.torch.function(of)
    w = torch.linspace(0.1, 1, 12, dtype=torch.float64).reshape(4, 3).requires_grad_()
    for scale in (2.0, 3.0):
        given = ({"a": x, "b": w}, scale)
        mine, eager = f(*given, shift=w[0, 0]), of(*given, shift=w[0, 0])
        assert close(mine, eager)

        def total(r):
            return (r["s"] ** 2).sum() + r["rest"][0]

        assert close(*[torch.autograd.grad(total(r), (x, w)) for r in (mine, eager)])


def test_results_that_are_not_used(x):
    def of(x):
        return torch.sin(x), torch.cos(x), (x * 3).sum()

    f = gradus.torch.function(of)
    for used in range(3):
        mine, eager = f(x)[used], of(x)[used]
        assert close(*[torch.autograd.grad(r.sum(), x, create_graph=True) for r in (mine, eager)])


def test_frozen_parameters_and_inputs(model, x):
    f = gradus.torch.function(model)
    f(x.detach()).backward()
    eager = copy.deepcopy(model)
    eager.zero_grad()
    eager(x.detach()).backward()
    for mine, theirs in zip(model.parameters(), eager.parameters()):
        assert close(mine.grad, theirs.grad)
    assert model.first.bias.grad is None
    with torch.no_grad():
        assert not f(x).requires_grad


def test_updates_in_place_are_seen(model, x):
    f = gradus.torch.function(model)
    mine, eager = f, copy.deepcopy(model)
    one = torch.optim.Adam([p for p in mine.parameters() if p.requires_grad], lr=0.1)
    other = torch.optim.Adam([p for p in eager.parameters() if p.requires_grad], lr=0.1)
    for _ in range(5):
        for g, optimizer in ((mine, one), (eager, other)):
            optimizer.zero_grad()
            (slope,) = torch.autograd.grad(g(x), x, create_graph=True)
            (slope - 1).square().sum().backward()
            optimizer.step()
    assert close(dict(mine.state_dict()), dict(eager.state_dict()), 1e-9)
    assert list(f.state_dict()) == list(eager.state_dict())
    f.load_state_dict(Energy().double().state_dict())
    assert close(f(x), model(x))


def test_past_the_order(model, x):
    f = gradus.torch.function(model, order=1)
    (slope,) = torch.autograd.grad(f(x), x, create_graph=True)
    with pytest.raises(gradus.Error, match="order=2"):
        slope.sum().backward()
    with pytest.raises(gradus.Error, match="order=1"):
        gradus.torch.function(model, order=0)(x).backward()


def test_a_value_that_was_changed_since(model, x):
    f = gradus.torch.function(model)
    y = f(x)
    with torch.no_grad():
        model.second.weight += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_a_graph_is_used_once_or_kept(model, x):
    f = gradus.torch.function(model)
    y = f(x)
    first = torch.autograd.grad(y, x, retain_graph=True)
    assert close(first, torch.autograd.grad(y, x))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y, x)


TRANSFORMS = {
    "grad": lambda f, x, w: torch.func.grad(f)(x),
    "value": lambda f, x, w: torch.func.grad_and_value(f)(x),
    "vjp": lambda f, x, w: torch.func.vjp(f, x)[1](torch.tensor(2.0, dtype=x.dtype)),
    "jvp": lambda f, x, w: torch.func.jvp(f, (x,), (w,)),
    "hessian": lambda f, x, w: torch.func.hessian(f)(x),
    "reverse twice": lambda f, x, w: torch.func.jacrev(torch.func.jacrev(f))(x),
    "forward twice": lambda f, x, w: torch.func.jacfwd(torch.func.jacfwd(f))(x),
    "reverse over forward": lambda f, x, w: torch.func.jacrev(torch.func.jacfwd(f))(x),
    "vmap": lambda f, x, w: torch.vmap(f)(torch.stack([x, w])),
    "vmap of grad": lambda f, x, w: torch.vmap(torch.func.grad(f))(torch.stack([x, w])),
    "grad of vmap": lambda f, x, w: torch.func.grad(
        lambda z: (torch.vmap(f, in_dims=1)(z) ** 2).sum()
    )(torch.stack([x, w], 1)),
    "functional hessian": lambda f, x, w: torch.autograd.functional.hessian(f, x),
    "vectorized": lambda f, x, w: torch.autograd.functional.hessian(f, x, vectorize=True),
    "functional jvp": lambda f, x, w: torch.autograd.functional.jvp(f, x, w),
    "functional hvp": lambda f, x, w: torch.autograd.functional.hvp(f, x, w),
    "functional vhp": lambda f, x, w: torch.autograd.functional.vhp(f, x, w),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name, model, x):
    torch.manual_seed(9)
    w = torch.randn(4, 3, dtype=torch.float64)
    f = gradus.torch.function(model)
    run = TRANSFORMS[name]
    assert close(run(f, x.detach(), w), run(model, x.detach(), w))


def test_functional_call(model, x):
    f = gradus.torch.function(model)
    named = {n: (p * 2).detach() for n, p in model.named_parameters()}

    def loss(g, named):
        return torch.func.functional_call(g, named, (x.detach(),))

    mine, eager = (torch.func.grad(lambda p, g=g: loss(g, p))(named) for g in (f, model))
    assert close(mine, eager)


def test_hooks(model, x):
    f = gradus.torch.function(model)
    seen = []
    handle = f.register_forward_hook(lambda module, given, out: seen.append("forward"))
    x.register_hook(lambda g: seen.append("x"))
    model.second.weight.register_hook(lambda g: seen.append("weight"))
    f(x).backward()
    handle.remove()
    assert sorted(seen) == ["forward", "weight", "x"]


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant, model, x):
    f = gradus.torch.function(model)
    mine = checkpoint(f, x, use_reentrant=reentrant)
    mine.backward()
    (eager,) = torch.autograd.grad(model(x), x)
    assert close(x.grad, eager)


def test_saved_tensors_elsewhere(model, x):
    """Hooks that give other tensors back: the state is made anew."""
    f = gradus.torch.function(model)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
        y = f(x)
    assert close(torch.autograd.grad(y, x), torch.autograd.grad(model(x), x))


def test_threads(model, x):
    f = gradus.torch.function(model)
    expected = force_loss(model, model, x)
    faults = []

    def work():
        try:
            for _ in range(20):
                close(force_loss(f, model, x), expected)
        except Exception as e:
            faults.append(e)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults


def test_pickle_and_copy(model, x):
    f = gradus.torch.function(model, order=2)
    f(x)
    for other in (pickle.loads(pickle.dumps(f)), copy.deepcopy(f)):
        assert close(other(x), f(x))
        assert other.second.weight is not f.second.weight
    buffer = io.BytesIO()
    torch.save(f.state_dict(), buffer)


def test_sizes_get_names(model):
    f = gradus.torch.function(model)
    for n in (4, 5, 6, 9, 200):
        x = torch.randn(n, 3, dtype=torch.float64)
        assert close(f(x), model(x))
    kinds = list(f.compiled._families.values())
    assert len(kinds) == 1 and len(kinds[0].variants) == 2  # as first seen, and for all others
    (only,) = gradus.torch.function(model, dynamic=True).compiled.program(x).inputs()[:1]
    assert "f64[s" in str(only[1])


def test_buffers_are_written(x):
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(3, dtype=torch.float64))

        def forward(self, x):
            before = self.seen * 1
            self.seen.add_(x.detach().sum(0))
            return (x * self.seen + x * before).sum()

    mine, eager = Counting(), Counting()
    f = gradus.torch.function(mine)
    for _ in range(3):
        assert close(force_loss(f, mine, x), force_loss(eager, eager, x))
        assert close(mine.seen, eager.seen)


def test_an_input_that_is_written(x):
    def of(x):
        x.mul_(2)
        return (x**3).sum()

    f = gradus.torch.function(of)
    tables = []
    for g in (f, of):
        y = x * 1
        out = g(y)
        tables.append([y.detach(), out, *torch.autograd.grad(out + y.sum(), x)])
    assert close(*tables)


def test_results_are_the_callers(x):
    """What is done to a result in place changes nothing else."""
    f = gradus.torch.function(lambda x: (x, x.reshape(-1), torch.sin(x)))
    a, b, c = f(x.detach())
    for t in (a, b, c):
        t.zero_()
    assert x.abs().min() > 0 and close(f(x.detach())[2], torch.sin(x.detach()))


def test_memory_is_shared():
    f = gradus.torch.function(lambda x: x * 2, dynamic=True)
    staged = f.variant(torch.ones(8)).staged
    x = torch.ones(8, dtype=torch.float32)
    state = gradus.State(staged.compiled((), 0).code)
    (y,) = state.run_exchanged([x], torch.Tensor)
    assert isinstance(y, torch.Tensor) and close(y, x * 2)
    x.fill_(3)  # read at the next call, wherever it lies
    assert close(f(x), x * 2)


def test_captured_modules_and_tensors(model, x):
    f = gradus.torch.function(lambda x: model(x) * 2)
    assert close(f(x), model(x) * 2)
    wanted = [p for p in model.parameters() if p.requires_grad]
    assert close(torch.autograd.grad(f(x), wanted), torch.autograd.grad(model(x) * 2, wanted))
    w = torch.ones(3, dtype=torch.float64, requires_grad=True)
    with pytest.raises(gradus.Error, match="'w'.*argument"):
        gradus.torch.function(lambda x: (x * w).sum())

    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.list = [torch.ones(3, dtype=torch.float64, requires_grad=True)]

        def forward(self, x):
            return (x * self.list[0]).sum()

    with pytest.raises(gradus.Error, match="would be a constant"):
        gradus.torch.function(Hidden())(x)


def test_tied_parameters(x):
    class Tied(torch.nn.Module):
        def __init__(self, one):
            super().__init__()
            self.a = torch.nn.Parameter(torch.full((3,), 0.3, dtype=torch.float64))
            self.b = self.a if one else torch.nn.Parameter(self.a.detach())  # of the same memory

        def forward(self, x):
            return (torch.sin(x * self.a) * self.b).sum()

    for one in (True, False):
        model = Tied(one)
        f = gradus.torch.function(model)
        wanted = list(model.parameters())
        assert len(wanted) == (1 if one else 2)
        mine, eager = (torch.autograd.grad(g(x), wanted, create_graph=True) for g in (f, model))
        assert close(mine, eager)


def test_other_dtypes_and_submodules(model, x):
    f = gradus.torch.function(model)
    f(x)
    f.float()
    y = x.detach().float()
    assert close(f(y), model(y), 1e-6)
    model.second = torch.nn.Linear(5, 1)
    assert close(f(y), model(y), 1e-6)


def test_modes(x):
    class Modes(torch.nn.Module):
        def forward(self, x):
            return (x if self.training else x * 2).sum()

    f = gradus.torch.function(Modes())
    assert close(f(x), x.sum())
    assert close(f.eval()(x), 2 * x.sum())
    assert close(f.train()(x), x.sum())


def test_autocast_is_refused(model, x):
    f = gradus.torch.function(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.raises(gradus.Unsupported, match="autocast"):
            f(x)


def test_what_requires_a_gradient(x):
    f = gradus.torch.function(lambda x: (x.detach() * 2, x * 2, x > 0))
    assert [r.requires_grad for r in f(x)] == [False, True, False]


def test_gradcheck(model, x):
    f = gradus.torch.function(model)
    assert torch.autograd.gradcheck(f, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(f, x)


def test_torch_is_imported_when_it_is_used():
    import subprocess
    import sys

    code = "import gradus, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=_environment())


def _environment():
    import os
    import sys

    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def test_a_function_that_gives_no_tensor(x):
    with pytest.raises(gradus.torch.NotExported, match="gives no tensor"):
        gradus.torch.function(lambda x: 3)(x)


def test_integers_run_within_vmap(x):
    f = gradus.torch.function(lambda a: a * 3 + 1)
    a = torch.arange(6).reshape(2, 3)
    assert torch.equal(torch.vmap(f)(a), a * 3 + 1)


def test_trees_of_every_kind_come_and_go(x):
    from collections import OrderedDict, namedtuple

    Pair = namedtuple("Pair", "u v")

    def of(tree, flag):
        a, (b, rest), c = tree["a"], tree["l"], tree["p"]
        scale = 2.0 if flag is True else 3.0
        return {"sum": [a + b, (c.u * scale, 7)], "o": OrderedDict(z=c.v, y=rest["q"]), "e": ()}

    tree = {"a": x, "l": [x * 2, {"q": x * 3}], "p": Pair(x * 4, x * 5)}
    plain = {"a": x, "l": (x * 2, {"q": x * 3}), "p": Pair(x * 4, x * 5)}
    f = gradus.torch.function(of)
    for given in (tree, plain):
        for flag in (True, 1):  # equal, and not the same
            mine, eager = f(given, flag), of(given, flag)
            flat = torch.utils._pytree.tree_flatten
            assert flat(mine)[1] == flat(eager)[1]
            assert all(
                torch.equal(m, e) if isinstance(e, torch.Tensor) else m == e
                for m, e in zip(flat(mine)[0], flat(eager)[0])
            )
