"""Staged graph programs, in which every derivative is just another stage.

    program = gradus.parse(text).differentiate(2)   # or gradus.load("model.onnx")
    state = gradus.State(program.compile())
    y = state.run(x, w)                             # stage 0
    d = state.run(1.0)                              # stage 1

    @gradus.function(order=2)                       # a Python function as a program
    def f(x, w): return gradus.ops.tanh(x * w).sum()
"""

from __future__ import annotations

from . import errors
from .errors import Error, InternalError, ResourceError, Unsupported
from ._gradus import (
    BoundRun,
    CancelToken,
    Code,
    Context,
    DType,
    Dim,
    Future,
    GradcheckEntry,
    GradcheckReport,
    KernelOptions,
    OpContext,
    Potential,
    PotentialCheck,
    PotentialResult,
    Program,
    Ranks,
    StageMemory,
    StagedFunction,
    State,
    Tensor,
    Type,
    View,
    __version__,
    bind_group,
    call,
    current_context,
    from_dlpack,
    function_names,
    load_plugin,
    mpi_ranks,
    no_grad,
    parse,
    single_rank,
    thread_ranks,
    use_device,
)
from ._gradus import as_tensor as as_tensor
from . import ops
from ._directions import hessian, hvp, jacobian, jvp, laplacian, vjp
from ._function import Function, function, trace
from ._loops import cond, fori_loop, map, scan, while_loop
from ._odes import odeint
from ._program import load, load_tensors
from ._python_op import PythonOp, python_op
from ._results import Results
from ._saved import LoadedFunction, load_function, save_function
from ._solvers import linear_solve, root
from ._tensors import from_numpy, ones, tensor, zeros
from ._transforms import grad, gradients, gradients_async, value_and_grad
from ._vmap import vmap

f64, f32, f16, bf16 = DType.f64, DType.f32, DType.f16, DType.bf16
i64, i32, i16, i8, bool_ = DType.i64, DType.i32, DType.i16, DType.i8, DType.boolean
u64, u32, u16, u8 = DType.u64, DType.u32, DType.u16, DType.u8


def gradcheck(program: Program, order: int = 1, **options: object) -> GradcheckReport:
    """Holds the program's derivatives against central differences: see Program.gradcheck. Raises
    Error for a program whose derivatives are off, or cannot be compared with differences."""
    report = program.gradcheck(order, **options)  # type: ignore[arg-type]
    if not report:
        wrong = any(e.verdict == "WRONG" for e in report.entries)
        why = "derivatives are off" if wrong else "no difference could be compared"
        raise Error(f"'{program.name}': {why}: {report!r}")
    return report


__all__ = [
    "BoundRun",
    "CancelToken",
    "Code",
    "Context",
    "DType",
    "Dim",
    "Error",
    "Function",
    "Future",
    "GradcheckEntry",
    "GradcheckReport",
    "InternalError",
    "KernelOptions",
    "LoadedFunction",
    "OpContext",
    "Program",
    "PythonOp",
    "Ranks",
    "ResourceError",
    "Results",
    "StageMemory",
    "StagedFunction",
    "State",
    "Tensor",
    "Type",
    "Unsupported",
    "View",
    "__version__",
    "as_tensor",
    "bf16",
    "bind_group",
    "bool_",
    "call",
    "cond",
    "current_context",
    "errors",
    "f16",
    "f32",
    "f64",
    "fori_loop",
    "from_dlpack",
    "from_numpy",
    "function",
    "function_names",
    "grad",
    "gradcheck",
    "gradients",
    "gradients_async",
    "hessian",
    "hvp",
    "i16",
    "i32",
    "i64",
    "i8",
    "jacobian",
    "jvp",
    "laplacian",
    "linear_solve",
    "load",
    "load_function",
    "load_plugin",
    "load_tensors",
    "map",
    "mpi_ranks",
    "no_grad",
    "odeint",
    "ones",
    "ops",
    "parse",
    "python_op",
    "root",
    "save_function",
    "scan",
    "single_rank",
    "tensor",
    "thread_ranks",
    "trace",
    "u16",
    "u32",
    "u64",
    "u8",
    "use_device",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
    "zeros",
]
