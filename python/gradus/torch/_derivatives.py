"""Derivatives that a function takes inside itself, as one node of its program each.

torch.export cannot trace what torch.autograd.grad and torch.func.grad do. While a function is
exported they are therefore not run: an operator of our own stands for each, and the importer makes
it the program's `grad`, which has derivatives of any order.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, Sequence

import torch
from torch.utils import _pytree as pytree

from ._refusals import check_derivative, replaced

_library = torch.library.Library("gradus", "DEF")
_library.define("variable(Tensor x) -> Tensor")
_library.define("grad(Tensor[] outputs, Tensor[] cotangents, Tensor[] inputs) -> Tensor[]")


def _only_exported(*_: Any) -> Any:
    raise RuntimeError("gradus::grad and gradus::variable stand in exported programs alone")


for _name in ("variable", "grad"):
    _library.impl(_name, _only_exported, "CompositeExplicitAutograd")


@torch.library.register_fake("gradus::variable")
def _variable_type(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.register_fake("gradus::grad")
def _grad_types(
    outputs: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    return [torch.empty_like(x) for x in inputs]


@contextlib.contextmanager
def derivatives_inside() -> Iterator[None]:
    """For what this thread exports, derivatives are nodes of the program."""
    from torch._functorch import eager_transforms as functorch

    places: list[tuple[Any, str, Callable[[Any], Any]]] = [
        (torch.autograd, "_engine_run_backward", lambda _: _run_backward),
        (functorch, "grad_and_value_impl", lambda _: _grad_and_value),
        (functorch, "_vjp_with_argnums", lambda _: _vjp),
    ]
    with replaced(places):
        yield


def _node_of(t: torch.Tensor) -> tuple[Any, int]:
    edge = torch.autograd.graph.get_gradient_edge(t)
    return edge.node, edge.output_nr


def _used(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[bool]:
    """Which inputs the outputs depend on, as autograd sees it."""
    seen = set()
    edges = [_node_of(y) for y in outputs]
    while edges:
        edge = edges.pop()
        if edge[0] is None or edge in seen:
            continue
        seen.add(edge)
        edges.extend(edge[0].next_functions)
    return [x.requires_grad and _node_of(x) in seen for x in inputs]


def _gradients(
    outputs: Sequence[torch.Tensor],
    cotangents: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
) -> list[torch.Tensor | None]:
    """None where no output depends on an input."""
    check_derivative()
    used = _used(outputs, inputs)
    wanted = [x for x, u in zip(inputs, used) if u]
    given = iter(torch.ops.gradus.grad(list(outputs), list(cotangents), wanted) if wanted else [])
    return [next(given) if u else None for u in used]


def _run_backward(
    outputs: Sequence[torch.Tensor],
    cotangents: Sequence[torch.Tensor | None],
    retain_graph: bool,
    create_graph: bool,
    inputs: Sequence[torch.Tensor] = (),
    allow_unused: bool = False,
    accumulate_grad: bool = False,
    **_: Any,
) -> tuple[torch.Tensor | None, ...]:
    if accumulate_grad or not inputs:
        raise RuntimeError(
            "backward() writes to .grad, which no program can; use torch.autograd.grad there"
        )
    pairs = [(y, c) for y, c in zip(outputs, cotangents) if c is not None]
    if len(pairs) < len(outputs) or not all(y.requires_grad for y in outputs):
        raise RuntimeError("an output of torch.autograd.grad does not require a gradient")
    gradients = _gradients([y for y, _ in pairs], [c for _, c in pairs], inputs)
    if not allow_unused and any(g is None for g in gradients):
        raise RuntimeError(
            "torch.autograd.grad: an input is not used by the outputs; allow_unused=True gives None"
        )
    return tuple(g if g is None or create_graph else g.detach() for g in gradients)


def _variables(tree: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, torch.ops.gradus.variable, tree)


def _chosen(argnums: int | tuple[int, ...], args: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """The arguments with variables in the places that are differentiated."""
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)
    numbers = [n + len(args) if n < 0 else n for n in numbers]
    return [_variables(a) if i in numbers else a for i, a in enumerate(args)], numbers


def _or_zero(gradients: Sequence[torch.Tensor | None], of: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """As torch.func has it."""
    return [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, of)]


def _grad_and_value(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...],
    has_aux: bool,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> tuple[Any, Any]:
    given, numbers = _chosen(argnums, args)
    result = func(*given, **kwargs)
    y = result[0] if has_aux else result
    if not isinstance(y, torch.Tensor) or y.dim() > 0:
        raise RuntimeError("torch.func.grad takes a function of a 0-d tensor as its result")
    leaves, structure = pytree.tree_flatten([given[n] for n in numbers])
    cotangent = torch.ones_like(y)
    gradients = _gradients([y], [cotangent], leaves) if y.requires_grad else [None] * len(leaves)
    trees = pytree.tree_unflatten(_or_zero(gradients, leaves), structure)
    return (trees[0] if isinstance(argnums, int) else tuple(trees)), result


def _vjp(
    func: Callable[..., Any],
    *primals: Any,
    argnums: int | tuple[int, ...] | None = None,
    has_aux: bool = False,
) -> Any:
    every = tuple(range(len(primals)))
    given, numbers = _chosen(every if argnums is None else argnums, primals)
    result = func(*given)
    outputs, form = pytree.tree_flatten(result[0] if has_aux else result)
    leaves, structure = pytree.tree_flatten([given[n] for n in numbers])

    def pull_back(cotangents: Any, *_: Any, **__: Any) -> Any:
        flat, given_form = pytree.tree_flatten(cotangents)
        if given_form != form:
            raise RuntimeError("cotangents have to have the form of the function's results")
        pairs = [(y, c) for y, c in zip(outputs, flat) if y.requires_grad]
        gradients: Sequence[torch.Tensor | None] = [None] * len(leaves)
        if pairs:
            gradients = _gradients([y for y, _ in pairs], [c for _, c in pairs], leaves)
        trees = pytree.tree_unflatten(_or_zero(gradients, leaves), structure)
        return trees[0] if isinstance(argnums, int) else tuple(trees)

    values = pytree.tree_unflatten(outputs, form)
    return (values, pull_back, result[1]) if has_aux else (values, pull_back)
