"""The backend of torch.compile."""

from __future__ import annotations

import functools
import warnings
from typing import Any, Callable, Sequence

import torch
from torch import fx

from .. import Error, Unsupported
from ._function import Function
from ._refusals import check_graph


def backend(
    graph: fx.GraphModule, examples: Sequence[Any], *, options: Any = None, **_: Any
) -> Callable[..., Any]:
    """What torch.compile(…, backend="gradus") calls with each graph that it finds.

    Options: `order`, how often the result can be differentiated (2); `strict`, whether what cannot
    be imported is an error, instead of running eagerly with a warning.
    """
    _keep_out()
    given = dict(options or {})
    order, strict = given.pop("order", 2), given.pop("strict", False)
    if given:
        raise Error(
            f"the backend has no option '{next(iter(given))}'; its options are order and strict"
        )
    return Compiled(graph, examples, order, strict)


@functools.cache
def _keep_out() -> None:
    """Has dynamo pass over this package. It would compile what runs within a compiled function,
    such as the backward of a stage."""
    from torch._dynamo import trace_rules

    trace_rules.add(__name__.partition(".")[0])


class Compiled:
    """A graph of dynamo's: it takes sizes beside tensors, and may give them."""

    def __init__(
        self, graph: fx.GraphModule, examples: Sequence[Any], order: int, strict: bool
    ) -> None:
        self._eager = graph
        self._strict = strict
        self._refused = False
        if not any(isinstance(x, fx.Node) for x in graph.graph.output_node().args[0]):
            self._refused = True  # it gives nothing that would be computed
            return
        inputs = [n for n in graph.graph.nodes if n.op == "placeholder"]
        # Of sizes with names as well, which the examples themselves do not show.
        examples = [n.meta.get("example_value", x) for n, x in zip(inputs, examples)]
        self._tensors = [i for i, x in enumerate(examples) if isinstance(x, torch.Tensor)]
        places = _places_of_sizes(examples)
        try:
            tensors, self._sizes = _without_sizes(graph, examples, places)
        except Unsupported as e:
            self._refuse(e)
            return
        auto = torch.export.Dim.AUTO
        dynamic = [
            {d: auto for d, n in enumerate(examples[i].shape) if isinstance(n, torch.SymInt)}
            for i in self._tensors
        ]

        def run(*args: Any) -> Any:
            check_graph(graph)
            with fx.traceback.preserve_node_meta():
                return fx.Interpreter(tensors).run(*args)

        self._function = Function(run, order, dynamic if any(dynamic) else False, owner=tensors)

    def __call__(self, *args: Any) -> Any:
        if not self._refused:
            try:
                return self._run(args)
            except Unsupported as e:
                self._refuse(e)
        return self._eager(*args)

    def _refuse(self, e: Unsupported) -> None:
        if self._strict:
            raise e
        self._refused = True
        warnings.warn(f"gradus runs a graph of torch.compile eagerly: {e}", stacklevel=3)

    def _run(self, args: Sequence[Any]) -> Any:
        results = self._function(*[args[i] for i in self._tensors])
        if not self._sizes:
            return results
        it = iter(results)
        return tuple([next(it) if s is None else s(args) for s in self._sizes])


def _expression(x: Any) -> Any:
    return x.node.expr if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)) else None


def _places_of_sizes(examples: Sequence[Any]) -> dict[Any, tuple[int, int]]:
    """By symbol: a tensor among the arguments, and its dimension of that size."""
    places: dict[Any, tuple[int, int]] = {}
    for i, x in enumerate(examples):
        if isinstance(x, torch.Tensor):
            for d, n in enumerate(x.shape):
                symbol = _expression(n)
                if symbol is not None and symbol.is_Symbol:
                    places.setdefault(symbol, (i, d))
    return places


def _without_sizes(
    graph: fx.GraphModule, examples: Sequence[Any], places: dict[Any, tuple[int, int]]
) -> tuple[fx.GraphModule, list[Any]]:
    """The graph without arguments and results that are sizes; and for each result None, or a
    function of the arguments where it is a size."""
    made = fx.Graph()
    copied: dict[fx.Node, Any] = {}
    inputs = [n for n in graph.graph.nodes if n.op == "placeholder"]
    for node, x in zip(inputs, examples):
        if isinstance(x, torch.Tensor):
            copied[node] = made.node_copy(node)
    for node, x in zip(inputs, examples):
        if isinstance(x, torch.Tensor):
            continue
        symbol = _expression(x)
        if symbol in places:
            i, d = places[symbol]
            size = torch.ops.aten.sym_size.int
            copied[node] = made.call_function(size, (copied[inputs[i]], d))
        elif symbol is None:
            copied[node] = x
        elif node.users:
            raise Unsupported(f"the number '{node.name}' is no tensor's size; give it as a tensor")
    sizes: list[Any] = []
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            continue
        if node.op != "output":
            copied[node] = made.node_copy(node, lambda n: copied[n])
            continue
        kept = []
        for x in node.args[0]:
            value = x.meta.get("example_value") if isinstance(x, fx.Node) else x
            of_size = isinstance(x, fx.Node) and not isinstance(value, torch.Tensor)
            sizes.append(_function_of(value, places) if of_size else None)
            if not of_size:
                kept.append(copied[x] if isinstance(x, fx.Node) else x)
        made.output(tuple(kept))
    made.eliminate_dead_code()
    return fx.GraphModule(graph, made), sizes if any(sizes) else []


def _function_of(value: Any, places: dict[Any, tuple[int, int]]) -> Callable[[Sequence[Any]], Any]:
    expression = _expression(value)
    if expression is None:
        return lambda args: value
    symbols = sorted(expression.free_symbols, key=str)

    def compute(args: Sequence[Any]) -> Any:
        sizes = {s: args[places[s][0]].shape[places[s][1]] for s in symbols}
        return int(expression.subs(sizes))

    return compute
