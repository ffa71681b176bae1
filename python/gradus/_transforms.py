"""Derivatives of Python functions over tensors."""

from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

from . import _gradus
from ._function import Function, Recorded, _bind, _is_floating, _tensors, record
from ._gradus import Future, Tensor
from ._trees import flatten, unflatten
from .errors import Error


def _sequence(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (tuple, list)) else [x]


def gradients(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    cotangents: Any = None,
    keep_graph: bool = False,
    create_graph: bool = False,
    allow_unused: bool = True,
) -> list[Tensor | None]:
    """The derivatives of the outputs, times the cotangents (ones for 0-d outputs), by the inputs.

    None where no path leads. With create_graph they can be differentiated again.
    """
    given = [None] * len(_sequence(outputs)) if cotangents is None else _sequence(cotangents)
    return _gradus.grad_of(
        _sequence(outputs),
        _sequence(inputs),
        [] if cotangents is None else given,
        keep_graph or create_graph,
        create_graph,
        allow_unused,
    )


def gradients_async(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    cotangents: Any,
    keep_graph: bool = False,
    create_graph: bool = False,
    allow_unused: bool = True,
    exit_on_error: bool = False,
) -> Future:
    """The same on a thread of the engine's: `.get()` waits for the gradients. With exit_on_error a
    failure is told at once, while other threads may still run."""
    return _gradus.grad_of_async(
        _sequence(outputs),
        _sequence(inputs),
        _sequence(cotangents),
        keep_graph or create_graph,
        create_graph,
        allow_unused,
        exit_on_error,
    )


def _alias(x: Tensor) -> Tensor:
    """The same values as a variable of their own, through which derivatives go on to `x`."""
    if x.requires_grad:
        return _gradus.apply("reshape", [x], {"shape": list(x.shape)})[0]
    y = x.detach()
    y.requires_grad = True
    return y


def value_and_grad(f: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """`value_and_grad(f)(x, …)` is `(f(x, …), its gradient by x)`; see grad."""
    several = not isinstance(argnums, int)
    places = list(argnums) if not isinstance(argnums, int) else [argnums]

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        arguments = list(args)
        trees = []
        inputs: list[Tensor] = []
        for n in places:
            if n >= len(args):
                raise Error(f"grad by argument {n}, but {len(args)} are given by place")
            leaves, structure = flatten(args[n])
            # A number is as good as a 0-d array.
            if isinstance(args[n], float):
                leaves, structure = flatten(_gradus.as_tensor(args[n]))
            tensors = [_alias(x) for x in _tensors(leaves)]
            trees.append((structure, len(inputs), len(inputs) + len(tensors)))
            inputs += tensors
            arguments[n] = unflatten(structure, tensors)
        # Whoever wants to differentiate the gradient has marked an input, or is recording.
        recording = _gradus.is_recording()
        outer, _ = flatten((args, kwargs))
        again = recording and (
            _gradus.is_tracing() or any(isinstance(x, Tensor) and x.requires_grad for _, x in outer)
        )
        with _gradus.recording():
            value = f(*arguments, **kwargs)
            out = _gradus.as_tensor(value)
            if out.ndim != 0:
                raise Error(f"grad takes a function with one 0-d result, not {out!r}")
            found: list[Tensor | None] = [None] * len(inputs)
            if out.requires_grad:
                found = gradients(out, inputs, create_graph=again)
        full = [
            g if g is not None else _gradus.apply("full_like", [x.detach()], {"value": 0})[0]
            for g, x in zip(found, inputs)
        ]
        grads = [unflatten(s, full[a:b]) for s, a, b in trees]
        if not again:
            value = out.detach()
        return value, tuple(grads) if several else grads[0]

    return call


def grad(f: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """`grad(f)(x, …)` is the gradient of the 0-d `f(x, …)` by x: of x's structure, if that is a
    tuple, list or dict of tensors.

    It can be nested, and used in what is traced: `grad(grad(f))`.
    """
    both = value_and_grad(f, argnums)

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        return both(*args, **kwargs)[1]

    return call


def _recorded(f: Callable[..., Any], args: tuple[Any, ...]) -> Recorded:
    if _gradus.is_tracing():
        raise Error("jvp and hvp run a program of their own, which a trace cannot hold; use grad")
    return f.record(*args) if isinstance(f, Function) else record(f, args, {})


def _run_along(
    f: Callable[..., Any], primals: Any, tangents: Any, kind: str
) -> tuple[Recorded, Any, list[Tensor], Any]:
    primals, tangents = tuple(_sequence(primals)), tuple(_sequence(tangents))
    if len(primals) != len(tangents):
        raise Error(f"{len(primals)} arguments and {len(tangents)} tangents are given")
    recorded = _recorded(f, primals)
    plain = f.function if isinstance(f, Function) else f
    leaves, structure = flatten(_bind(plain, primals, {}))
    along = _tensors(flatten(tangents)[0])
    inputs = _tensors(leaves)
    wrt = [n for n, x in zip(recorded.names, inputs) if _is_floating(x)]
    if len(along) != len(wrt):
        raise Error(f"{len(wrt)} floating arguments and {len(along)} tangents are given")
    program = getattr(recorded.program, kind)(wrt)
    state = _gradus.State(program.compile(), "off")
    return recorded, state.run(*inputs, *along), inputs, structure


def jvp(f: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """`(f(*primals), its derivative along the tangents)`, by forward mode.

    One argument may stand without a tuple around it. Results without a path are zeros.
    """
    recorded, results, _, _ = _run_along(f, primals, tangents, "jvp")
    names = [n for n, _ in recorded.program.results()]
    values = list(results)[: len(names)]
    slopes = []
    for name, value in zip(names, values):
        if str(value.dtype.name) not in ("f64", "f32", "f16", "bf16"):
            continue
        slope = results[f"t_{name}"]
        zero = _gradus.apply("full_like", [value], {"value": 0})[0] if slope is None else slope
        slopes.append(zero)
    by_place = iter(slopes)
    tangent_leaves = [next(by_place) if _is_floating(v) else None for v in values]
    return (
        unflatten(recorded.structure, values),
        unflatten(recorded.structure, tangent_leaves),
    )


def hvp(f: Callable[..., Any], primals: Any, tangents: Any) -> Any:
    """The Hessian of the 0-d `f(*primals)` times the tangents: forward mode over the gradient.

    Of the structure of `primals`; one argument may stand without a tuple around it.
    """
    recorded, results, inputs, _ = _run_along(f, primals, tangents, "hvp")
    single = not isinstance(primals, (tuple, list))
    _, structure = flatten(primals)
    found = []
    for name, x in zip(recorded.names, inputs):
        h = results[f"hvp_{name}"] if _is_floating(x) else None
        found.append(
            _gradus.apply("full_like", [x], {"value": 0})[0] if h is None and _is_floating(x) else h
        )
    return found[0] if single and len(found) == 1 else unflatten(structure, found)


def jacobian(f: Callable[..., Any], x: Any) -> Tensor:
    """The Jacobian of `f(x)`, one tensor of one tensor: f(x)'s sizes, then x's."""
    return _matrix(f, x, "jacobian")


def hessian(f: Callable[..., Any], x: Any) -> Tensor:
    """The Hessian of the 0-d `f(x)`: x's sizes, twice."""
    return _matrix(f, x, "hessian")


def _matrix(f: Callable[..., Any], x: Any, kind: str) -> Tensor:
    recorded = _recorded(f, (x,))
    name = recorded.names[0]
    program = getattr(recorded.program, kind)()
    result = recorded.program.results()[0][0] if kind == "jacobian" else name
    results = _gradus.State(program.compile(), "off").run(x)
    found = results[f"{kind}_{result}_{name}"] if kind == "jacobian" else results[f"hessian_{name}_{name}"]
    if found is None:
        shape = program.results()
        raise Error(f"the derivative is structurally zero: {shape}")
    return found
