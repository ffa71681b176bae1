"""Gradients: of tensors, and of Python functions over them."""

from __future__ import annotations

import functools
import operator
from typing import Any, Callable, NamedTuple, Sequence

from . import _gradus
from ._derivative import RecordedDerivative, lead_on
from ._display import without_values
from ._function import _is_floating, _tensors
from ._gradus import Future, Tensor
from ._trees import Place, flatten, is_number, matched, unflatten, with_tensors
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
    return _gradus.leaf_of(x)


class Arguments(NamedTuple):
    """A call's arguments with variables of their own in some places, to differentiate by."""

    args: list[Any]
    inputs: list[Tensor]
    trees: list[tuple[Any, int, int]]  # of each place: its structure, and its part of the inputs

    def trees_of(self, tensors: Sequence[Any]) -> list[Any]:
        """One tensor for each input, in the trees of the arguments."""
        return [unflatten(s, list(tensors[a:b])) for s, a, b in self.trees]


def argnums_of(argnums: Any, what: str) -> tuple[tuple[int, ...], bool]:
    """The numbers of arguments, and whether they are given as several."""
    try:
        return (operator.index(argnums),), False
    except TypeError:
        pass
    try:
        return tuple(operator.index(n) for n in argnums), True
    except TypeError:
        raise Error(f"{what}: argnums are numbers of arguments, not {argnums!r}") from None


def places_of(argnums: Sequence[int], count: int, what: str) -> list[int]:
    """The places that these numbers stand for in a call of so many arguments."""
    for n in argnums:
        if not -count <= n < count:
            raise Error(
                f"{what} by argument {n}: the call has {count} by place, and they are counted from 0"
            )
    places = [n % count for n in argnums]
    for n in places:
        if places.count(n) > 1:
            raise Error(f"{what} by argument {n}: it is named twice")
    return places


def check_points(structure: Any, what: str, argument: int) -> None:
    """An Error for what stands among the tensors by which is differentiated, and has no derivative."""
    for at, leaf, _ in matched(structure, structure, "", Error):
        if leaf is None or isinstance(leaf, Place):
            continue
        number = is_number(leaf)
        kind = f"the {type(leaf).__name__} {leaf}" if number else f"a {type(leaf).__name__}"
        found = f"'{at}' of argument {argument} is {kind}" if at else f"argument {argument} is {kind}"
        advice = f"pass the float {leaf:.1f}, or " if number and abs(leaf) < 2**53 else ""
        advice += (
            "let the function read it from elsewhere"
            if what in ("vjp", "jvp", "hvp")
            else "leave it to an argument that is not among argnums"
        )
        raise Error(f"{what}: {found}, by which there is no derivative; {advice}")


def arguments_at(
    args: Sequence[Any], argnums: Sequence[int], what: str, with_others: bool = False
) -> Arguments:
    """Those by which a function is differentiated, by their numbers. Tensors that are not floating
    are an Error, or stay as they are with `with_others`."""
    arguments = list(args)
    inputs: list[Tensor] = []
    trees = []
    for n in places_of(argnums, len(args), what):
        # A number is as good as a 0-d array.
        leaves, structure = flatten(with_tensors(args[n], (float,)))
        check_points(structure, what, n)
        with _gradus.recording():
            tensors = [
                x if with_others and not _is_floating(x) else _alias(x) for x in _tensors(leaves)
            ]
        trees.append((structure, len(inputs), len(inputs) + len(tensors)))
        inputs += tensors
        arguments[n] = unflatten(structure, tensors)
    return Arguments(arguments, inputs, trees)


def zeros_like(x: Tensor) -> Tensor:
    return _gradus.apply("full_like", [x.detach()], {"value": 0})[0]


def _value_of(given: Any, has_aux: bool, what: str) -> tuple[Tensor, Any]:
    """The 0-d value that a function gives, and what it gives beside."""
    aux = None
    if has_aux:
        if not isinstance(given, tuple) or len(given) != 2:
            raise Error(f"{what} with has_aux takes a function that gives (value, aux), not {without_values(given)}")
        given, aux = given
    out = _gradus.as_tensor(given)
    if out.ndim != 0:
        found = without_values(out)
        raise Error(f"{what} takes a function with one 0-d result, not {found}; sum it, or use vjp or jacobian")
    return out, aux


def detached(tensors: Sequence[Any], leads: Sequence[bool]) -> list[Any]:
    """They without their graph, but for those that lead on."""
    return [x.detach() if isinstance(x, Tensor) and not on else x for x, on in zip(tensors, leads)]


def _gradient_of(
    f: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool, with_value: bool
) -> Callable[..., Any]:
    places, several = argnums_of(argnums, "grad")

    @functools.wraps(f)
    def plain(*args: Any, **kwargs: Any) -> Any:
        given = arguments_at(args, places, "grad")
        with _gradus.recording():
            value, aux = _value_of(f(*given.args, **kwargs), has_aux, "grad")
        leaves, structure = flatten(aux)
        tensors = [value, *(x for _, x in leaves)]
        leads = lead_on(tensors, given.inputs)
        found: list[Tensor | None] = [None] * len(given.inputs)
        if given.inputs and value.requires_grad:
            found = gradients(value, given.inputs, keep_graph=any(leads), create_graph=leads[0])
        full = [g if g is not None else zeros_like(x) for g, x in zip(found, given.inputs)]
        trees = given.trees_of(full)
        grads = tuple(trees) if several else trees[0]
        value, *rest = detached(tensors, leads)
        aux = unflatten(structure, rest)
        if with_value:
            return ((value, aux) if has_aux else value), grads
        return (grads, aux) if has_aux else grads

    return RecordedDerivative(f, plain, places)


def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """`value_and_grad(f)(x, …)` is `(f(x, …), its gradient by x)`; see grad.

    With has_aux the function gives `(value, aux)`, and this `((value, aux), gradient)`.
    """
    return _gradient_of(f, argnums, has_aux, True)


def grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """`grad(f)(x, …)` is the gradient of the 0-d `f(x, …)` by x: of x's structure, if that is a
    tuple, list or dict of tensors. By several arguments, a tuple of gradients.

    With has_aux the function gives `(value, aux)`, and this `(gradient, aux)`. It can be nested, and
    used in what is traced: `grad(grad(f))`. See Derivative for when it runs as a program.
    """
    return _gradient_of(f, argnums, has_aux, False)
