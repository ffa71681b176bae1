"""Whole messages of errors that users of the module meet often; tests/cli/errors.txt has those of the
tool."""

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


def run_twice():
    s = state()
    s.run(x, x)
    s.run(x, x)


CASES = {
    "a text": (
        lambda: gradus.parse("graph a {\n  stage 0 () {\n", "a.ir"),
        "a.ir:3:1: error: expected a node or 'return', which ends every stage, found the end of the text",
    ),
    "a file that is not there": (
        lambda: gradus.load("nowhere.ir"),
        "nowhere.ir: cannot be read: No such file or directory",
    ),
    "an input that is missing": (
        lambda: state().run(x),
        "stage 0 takes 2 inputs (x: f64[N], w: f64[N]), 1 are given",
    ),
    "an input that does not exist": (
        lambda: state().run(x, v=x),
        "stage 0 has no input 'v'",
    ),
    "an input twice": (
        lambda: state().run(x, x, w=x),
        "input 'w' is given twice: by its place and by its name",
    ),
    "an input of another size": (
        lambda: state().run(x, np.ones(4)),
        "stage 0: input 'w' must be f64[N]: dimension 0 must be N = 3, it is 4 (it is f64[4])",
    ),
    "an input of another dtype": (
        lambda: state().run(x, np.ones(3, np.float32)),
        "stage 0: input 'w' must be f64[N], it is f32[3]; convert it to f64",
    ),
    "a list for an array": (
        lambda: state().run(x, [1.0, 2.0, 3.0]),
        "input 'w' must be a tensor or an array, not list",
    ),
    "a stage beyond the last": (
        run_twice,
        "all 1 stages of 'swing' have run; restart the state, or run a clone taken earlier",
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
        "a memory budget wants the size of 'N' (gradus: --set N=N)",
    ),
    "a size of no dimension": (
        lambda: state().prepare({"N": 3, "M": 3}),
        "no input has a dimension 'M'",
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
        "there is no attribute 'dimm'; the attributes are: dim, keepdim",
    ),
    "an attribute that is missing": (
        lambda: ops.softmax(x),
        "attribute 'dim' is missing and has no default",
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
    "a gradient of a vector": (
        lambda: gradus.grad(lambda a: a * a)(x),
        "grad takes a function with one 0-d result, not Tensor(f64[3], requires_grad)",
    ),
    "a gradient of integers": (
        lambda: gradus.grad(lambda a: (a * a).sum())(np.arange(3)),
        "i64[3] cannot require gradients: only floating tensors can",
    ),
    "a gradient by an argument that is not there": (
        lambda: gradus.grad(lambda a: a.sum(), argnums=3)(x),
        "grad by argument 3, but 1 are given by place",
    ),
    "backward of a constant": (
        lambda: gradus.tensor(x).sum().backward(),
        "output 0 does not require gradients: nothing it depends on does",
    ),
    "a branch on a value that is recorded": (
        lambda: gradus.function(lambda a: a if a.sum() > 0 else -a)(x),
        "'_lambda_' cannot be traced: it reads back the values of a bool[]; what they decide would hold for "
        "these inputs alone. Decide by operators ('where', comparisons), or before the trace",
    ),
    "a carry that changes its type": (
        lambda: gradus.scan(lambda h, a: (h.sum(), h), x, np.ones((4, 3))),
        "scan: 'carry' is f64[3], and the step gives f64[]",
    ),
    "a step without results": (
        lambda: gradus.scan(lambda h, a: h, x, np.ones((4, 3))),
        "scan: a step gives (carry, y), not Tensor(f64[3])",
    ),
    "a group that is not bound": (
        lambda: gradus.State(gradus.parse(MEAN, "average.ir").compile()).run(x),
        'no group of ranks is bound to the name "data" in this context; bind one with '
        'rank_groups(context).bind("data", communicator): mpi_ranks() for the ranks of MPI, '
        "thread_ranks(n) for threads, or single_rank()",
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
