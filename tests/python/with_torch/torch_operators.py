"""Programs of torch.export against eager PyTorch: results, first and second derivatives."""

import contextlib
import os
import tempfile
import warnings

import numpy as np
import torch

import gradus


class Function(torch.nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def exported(module, args, **options):
    """The module as torch.export saves it and Gradus loads it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, tuple(args), strict=False, **options)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.pt2")
        torch.export.save(program, path)
        return gradus.load(path)


def draw(shape, low=-2.0, high=2.0, dtype=torch.float64, seed=0):
    """Random numbers between two."""
    generator = torch.Generator().manual_seed(17 + seed)
    numbers = torch.rand(shape, dtype=torch.float64, generator=generator)
    return (numbers * (high - low) + low).to(dtype)


def ints(shape, low=-5, high=6, dtype=torch.int64, seed=0):
    """Random integers from `low` on, below `high`."""
    generator = torch.Generator().manual_seed(29 + seed)
    return torch.randint(low, high, shape, generator=generator).to(dtype)


def as_list(results):
    return [results] if isinstance(results, torch.Tensor) else list(results)


class Theirs:
    """What eager PyTorch computes: results, and gradients of random sums of them."""

    def __init__(self, module, args, order, seed):
        generator = torch.Generator().manual_seed(seed)
        draw = lambda t: torch.randn(t.shape, dtype=t.dtype, generator=generator)
        self.args = [a.clone().requires_grad_(a.is_floating_point() and order > 0) for a in args]
        parameters = dict(module.named_parameters()) if order > 0 else {}
        self.wanted = {f"{i}": a for i, a in enumerate(self.args) if a.requires_grad}
        self.wanted.update({n: p for n, p in parameters.items() if p.requires_grad})
        self.results = [r for r in as_list(module(*self.args)) if r is not None]
        self.cotangents = [
            draw(r) if r.is_floating_point() and order > 0 else None for r in self.results
        ]
        self.first, self.second = {}, {}
        if order > 0:
            self.first = self.gradients(self.results, self.cotangents, order > 1)
        self.directions = {n: draw(g) for n, g in self.first.items()}
        if order > 1:
            self.second = self.gradients(self.first.values(), self.directions.values(), False)

    def gradients(self, results, cotangents, create_graph):
        terms = [
            (r * c).sum() for r, c in zip(results, cotangents) if c is not None and r.requires_grad
        ]
        if not terms or not self.wanted:
            return {}
        found = torch.autograd.grad(
            sum(terms), list(self.wanted.values()), create_graph=create_graph, allow_unused=True
        )
        return {n: g for n, g in zip(self.wanted, found) if g is not None}


class Ours:
    """The loaded program, run stage by stage."""

    def __init__(self, program, args, order):
        self.program = program
        self.staged = program.differentiate(order) if order else program
        self.state = gradus.State(self.staged.compile())
        self.stage = 0
        names = [name for name, _ in program.inputs()]
        self.weights = program.weights
        self.users = [n for n in names if n not in self.weights]
        assert len(self.users) == len(args), (names, len(args))
        self.inputs = {n: a.detach().numpy() for n, a in zip(self.users, args)}
        self.inputs.update(self.weights)

    def name_of(self, wanted):
        """Our name of an argument's number or of a parameter."""
        return self.users[int(wanted)] if wanted.isdigit() else wanted

    def run(self, given):
        names = [name for name, _ in self.staged.inputs(self.stage)]
        kept = self.state.run(**{n: given.get(n) for n in names})
        results = [name for name, _ in self.staged.results(self.stage)]
        self.stage += 1
        return {
            n: None if v is None else np.asarray(v)
            for n, v in zip(results, [kept[n] for n in results])
        }


def assert_close(got, want, tolerance, what):
    if got is None:
        got = np.zeros_like(want)
    assert got.shape == want.shape, f"{what}: {got.shape} is not {want.shape}"
    assert got.dtype == want.dtype, f"{what}: {got.dtype} is not {want.dtype}"
    finite = want[np.isfinite(want)] if want.dtype.kind == "f" else want
    scale = max(1.0, float(np.abs(finite).max())) if finite.size and want.dtype.kind == "f" else 1
    np.testing.assert_allclose(
        got, want, rtol=tolerance, atol=tolerance * scale, err_msg=what, equal_nan=True
    )


def first_sizes_named(args):
    """That the first sizes of a function's arguments have names in the program."""
    named = tuple({0: torch.export.Dim.AUTO} if a.dim() > 0 else None for a in args)
    return {"dynamic_shapes": (named,)}


def check(module, *args, order=2, tolerance=None, seed=3, dynamic=False, **options):
    """Compares results and derivatives up to `order` with random cotangents; also the buffers that
    the module writes. `module` may be a function, which with `dynamic` is exported for any first
    sizes of its arguments. `options` are torch.export's."""
    if not isinstance(module, torch.nn.Module):
        module = Function(module)
    if dynamic:
        options.update(first_sizes_named(args))
    if tolerance is None:
        wide = all(a.dtype == torch.float64 for a in args if a.is_floating_point())
        tolerance = 1e-9 if wide else 1e-4
    program = exported(module, args, **options)
    theirs = Theirs(module, args, order, seed)
    ours = Ours(program, args, order)
    results = ours.run(ours.inputs)
    names = list(results)
    for i, r in enumerate(theirs.results):
        assert_close(results[names[i]], r.detach().numpy(), tolerance, f"result {i}")
    buffers = dict(module.named_buffers())
    for name in names[len(theirs.results) :]:
        if name in buffers:
            assert_close(results[name], buffers[name].detach().numpy(), tolerance, name)
    if order < 1:
        return
    given = {f"ct1_{names[i]}": c.numpy() for i, c in enumerate(theirs.cotangents) if c is not None}
    first = ours.run(given)
    compare(ours, theirs, first, theirs.first, "d1_", tolerance)
    if order < 2:
        return
    given = {f"ct2_d1_{ours.name_of(n)}": v.numpy() for n, v in theirs.directions.items()}
    second = ours.run(given)
    compare(ours, theirs, second, theirs.second, "d2_", tolerance)


def compare(ours, theirs, got, want, prefix, tolerance):
    for n, value in theirs.wanted.items():
        wanted = (
            want[n].detach().numpy(force=True)
            if n in want
            else np.zeros_like(value.detach().numpy())
        )
        name = prefix + ours.name_of(n)
        assert_close(got.get(name), wanted, tolerance, name)


@contextlib.contextmanager
def default_dtype(dtype):
    """The default dtype while a program is traced and run."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
