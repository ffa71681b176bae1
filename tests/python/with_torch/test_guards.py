"""What an export goes by: guards on sizes, which a program from a file checks, and numbers that are
computed from sizes."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import gradus
import gradus.torch
from torch.export import Dim


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y=None):
        return self.function(x) if y is None else self.function(x, y)


def loaded(function, args, sizes, tmp_path):
    exported = torch.export.export(Function(function), args, dynamic_shapes=sizes, strict=False)
    path = tmp_path / "m.pt2"
    torch.export.save(exported, path)
    return exported, gradus.load(str(path))


def run(program, *args):
    return gradus.State(program.compile()).run(*[np.asarray(a) for a in args])[0]


# Each with the sizes of the export, and others.
BRANCHES = {
    "modulo": (lambda x: x.sum() if x.shape[0] % 2 == 0 else -x.sum(), (6, 4)),
    "product": (lambda x: x.sum() if x.shape[0] * x.shape[1] > 20 else -x.sum(), (6, 4)),
    "order": (lambda x: x.sum() if x.shape[0] > x.shape[1] else -x.sum(), (6, 4)),
    "not_equal": (lambda x: x.sum() if x.shape[0] != 7 else -x.sum(), (6, 4)),
    "equal": (lambda x: x.sum() if x.shape[0] == x.shape[1] else -x.sum(), (5, 5)),
    "least": (lambda x: x.sum() if x.shape[0] > 5 else -x.sum(), (6, 4)),
    "half": (lambda x: x[: int(x.shape[0] * 0.5)].sum(), (6, 4)),
    "quotient": (lambda x: x.sum() if x.shape[0] / x.shape[1] > 1.25 else -x.sum(), (6, 4)),
    "either": (lambda x: x.sum() if x.shape[0] % 2 == 0 or x.shape[1] > 5 else -x.sum(), (6, 4)),
    "rows": (lambda x: x.sum() if x.stride(0) > 3 else -x.sum(), (6, 4)),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_sizes_of_other_branches_fail(name, tmp_path):
    function, shape = BRANCHES[name]
    x = torch.ones(shape)
    exported, program = loaded(function, (x,), ({0: Dim.AUTO, 1: Dim.AUTO},), tmp_path)
    module = exported.module()
    ran = refused = 0
    for n in range(2, 10):
        for m in range(2, 10):
            x = torch.ones(n, m)
            try:
                expected = module(x)
            except (AssertionError, RuntimeError):
                with pytest.raises(gradus.Error, match="the program (requires|takes)|must be"):
                    run(program, x)
                refused += 1
            else:
                assert run(program, x) == expected == function(x)
                ran += 1
    assert ran and refused, (ran, refused)


def test_the_guard_is_in_the_message(tmp_path):
    _, program = loaded(BRANCHES["modulo"][0], (torch.ones(6, 4),), ({0: Dim.AUTO},), tmp_path)
    with pytest.raises(gradus.Error) as e:
        run(program, np.ones((7, 4), "f4"))
    assert "(L['x'].size()[0] % 2) == 0" in str(e.value) and "= 7" in str(e.value)


def test_arguments_in_trees(tmp_path):
    def function(x, y):
        total = x["b"].sum() + y.sum()
        return total if x["b"].shape[0] > y.shape[0] else -total

    sizes = ({"b": {0: Dim.AUTO}}, {0: Dim.AUTO})
    _, program = loaded(function, ({"b": torch.ones(9)}, torch.ones(6)), sizes, tmp_path)
    assert run(program, np.ones(8, "f4"), np.ones(5, "f4")) == 13
    with pytest.raises(gradus.Error, match="the program requires"):
        run(program, np.ones(5, "f4"), np.ones(8, "f4"))


def test_a_guard_that_is_rounded(tmp_path):
    def function(x):
        return x.sum() if x.shape[0] * 0.7 > 2 else -x.sum()

    with pytest.raises(gradus.Error, match="the guard '0.7.*0.7 is rounded"):
        loaded(function, (torch.ones(6),), ({0: Dim.AUTO},), tmp_path)
    compiled = gradus.torch.function(function, dynamic=True)
    for n in (6, 5, 2, 9, 3):
        assert compiled(torch.ones(n)) == function(torch.ones(n))
