"""Whole messages of errors that users of the module meet, in addition to those of docs/errors.md;
tests/cli/errors.txt has those of the tool."""

import numpy as np
import pytest

import gradus
from gradus import ops

PROGRAM = """graph swing {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %h = mul(%x, %w)
    %y = sum(%h)
    return %y
  }
}
"""
MEAN = """graph average {
  stage 0 (%x: f64[3] varying(data)) {
    %y = all_reduce(%x) {group = "data"}
    return %y
  }
}
"""
x = np.ones(3)


def program():
    return gradus.parse(PROGRAM, "swing.ir")


def state():
    return gradus.State(program().compile())


CASES = {
    "a text": (
        lambda: gradus.parse("graph a {\n  stage 0 () {\n", "a.ir"),
        "a.ir:3:1: error: expected a node or 'return', which ends every stage, found the end of the text",
    ),
    "a file that is not there": (
        lambda: gradus.load("nowhere.ir"),
        "nowhere.ir: cannot be read: No such file or directory",
    ),
    "an input that does not exist": (
        lambda: state().run(x, v=x),
        "stage 0 has no input 'v'; its inputs are: x, w",
    ),
    "an input twice": (
        lambda: state().run(x, x, w=x),
        "input 'w' is given twice: by its place and by its name",
    ),
    "an input of another size": (
        lambda: state().run(x, np.ones(4)),
        "stage 0: input 'w' must be f64[N]: dimension 0 must be N = 3, it is 4 (it is f64[4])",
    ),
    "a negative order": (
        lambda: program().differentiate(-1),
        "the order of derivatives must not be negative",
    ),
    "wrt of no input": (
        lambda: program().differentiate(1, wrt=["v"]),
        "there is no input 'v' in stage 0 to differentiate with respect to; its floating inputs are: x, w",
    ),
    "a memory budget without sizes": (
        lambda: program().differentiate(1).compile(memory_budget=100),
        "a memory budget needs the size of 'N'; give it in `sizes` (gradus: --set N=SIZE)",
    ),
    "a size of no dimension": (
        lambda: state().prepare({"N": 3, "M": 3}),
        "no input has a dimension 'M'; the dimensions are: N",
    ),
    "a size that a gradcheck does not have": (
        lambda: program().gradcheck(sizes={"M": 3}),
        "sizes: the program has no dimension 'M'; it has N",
    ),
    "a gradcheck of integers": (
        lambda: gradus.parse("graph a { stage 0 (%i: i64[3]) { return %i } }").gradcheck(),
        "graph 'a' has no floating result, so there is no derivative to check; stage 0 returns i i64[3]",
    ),
    "a fusion mode that does not exist": (
        lambda: gradus.State(program().compile(), fusion="frist"),
        "there is no fusion mode 'frist'; the modes are 'behind', 'first' and 'off'",
    ),
    "a dtype that does not exist": (
        lambda: gradus.tensor(x, dtype="float33"),
        "'float33' is no dtype; the dtypes are f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, "
        "bool, and NumPy's of those",
    ),
    "an array of strings": (
        lambda: gradus.tensor(np.array(["a"])),
        "an array of format '1w' is no tensor; those of float64, float32, float16, bool and integers of 8 "
        "to 64 bits in this machine's byte order are: convert it with astype",
    ),
    "an attribute that does not exist": (
        lambda: ops.sum(x, dimm=0),
        "there is no attribute 'dimm'; did you mean 'dim'? The attributes are: dim, keepdim",
    ),
    "an attribute that is missing": (
        lambda: ops.softmax(x),
        "attribute 'dim' is missing and has no default; give it as an integer: dim = …",
    ),
    "a string for a tensor": (
        lambda: ops.tanh("a"),
        "tanh: operand 0 must be a tensor or an array, not str",
    ),
    "shapes of a product": (
        lambda: ops.matmul(np.ones((2, 3)), np.ones((4, 2))),
        "matmul: sizes 3 and 4 differ: the inner sizes of 'a' [2, 3] and 'b' [4, 2], a's last and b's last "
        "but one",
    ),
    "an index out of range": (
        lambda: gradus.tensor(x)[5],
        "select: index 5 is out of range for dimension 0 of f64[3]",
    ),
    "a gradient by an argument that is not there": (
        lambda: gradus.grad(lambda a: a.sum(), argnums=3)(x),
        "grad by argument 3: the call has 1 by place, and they are counted from 0",
    ),
    "a step without results": (
        lambda: gradus.scan(lambda h, a: h, x, np.ones((4, 3))),
        "scan: a step gives (carry, y), not Tensor(f64[3])",
    ),
    "a group that is not bound": (
        lambda: gradus.State(gradus.parse(MEAN, "average.ir").compile()).run(x),
        'no group of ranks is bound to the name "data" in this context; bind mpi_ranks(), one of '
        'thread_ranks(n), or single_rank() to it: rank_groups(context).bind("data", ranks) in C++, '
        'gradus.bind_group("data", ranks) in Python',
    ),
    "a plug-in that is not there": (
        lambda: gradus.load_plugin("mine.so"),
        "mine.so: cannot be read: No such file or directory",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_message(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, message = CASES[name]
    with pytest.raises(gradus.Error) as error:
        call()
    assert str(error.value) == message
