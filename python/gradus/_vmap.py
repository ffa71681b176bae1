"""Python functions of one, for many at once."""

from __future__ import annotations

import functools
import operator
from typing import Any, Callable

from . import _gradus
from ._derivative import RecordedDerivative, kept_for
from ._function import _tensors
from ._gradus import Tensor, Type
from ._loops import _flat_tensors, _record, type_of
from ._trees import flatten, key_of, unflatten
from .errors import Error

Axes = Any  # an int, None, or a tree of those


def _axes_of(axes: Axes, tree: Any, what: str, at: str) -> list[int | None]:
    """An axis for each place in the tree. An axis that stands for a part of the tree holds for all
    places there."""
    if axes is None or hasattr(axes, "__index__"):
        axis = None if axes is None else operator.index(axes)
        return [axis] * len(flatten(tree)[0])
    if isinstance(axes, dict) and isinstance(tree, dict) and axes.keys() == tree.keys():
        return [n for k in tree for n in _axes_of(axes[k], tree[k], what, f"{at}[{k!r}]")]
    both_lists = isinstance(axes, (list, tuple)) and isinstance(tree, (list, tuple))
    if both_lists and len(axes) == len(tree):
        pairs = enumerate(zip(axes, tree))
        return [n for i, (a, t) in pairs for n in _axes_of(a, t, what, f"{at}[{i}]")]
    raise Error(f"vmap: {what}{at} is {axes!r}; it has to be an axis, or a tree like what it is for")


def _with_axis(axis: int, x: Tensor, what: str) -> Tensor:
    """The tensor with this axis in front."""
    if not -x.ndim <= axis < x.ndim:
        raise Error(f"vmap: {what} is {type_of(x)}, which has no axis {axis}")
    return x if axis in (0, -x.ndim) else _moved(x, axis, 0)


def _moved(x: Tensor, source: int, destination: int) -> Tensor:
    attributes = {"source": [source], "destination": [destination]}
    return _gradus.apply("movedim", [x], attributes)[0]


class _Mapped:
    """The function for many, as it runs where no program is kept."""

    def __init__(self, f: Callable[..., Any], in_axes: Axes, out_axes: Axes) -> None:
        self.f = f
        self.in_axes = in_axes
        self.out_axes = out_axes

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        by_place, places = flatten(args)
        by_name, named = flatten(kwargs)
        leaves = by_place + by_name
        axes = self._axes(places, named)
        given = [
            x if axis is None else _with_axis(axis, x, f"'{name}'")
            for (name, _), x, axis in zip(leaves, _tensors(leaves), axes)
        ]
        mapped = [axis is not None for axis in axes]
        names = [name for name, _ in leaves]
        self._check_sizes(names, given, mapped)
        types = [Type(x.dtype, x.shape[1:] if m else x.shape) for x, m in zip(given, mapped)]

        def call(one: list[Tensor]) -> tuple[list[Tensor], Any]:
            first, rest = one[: len(by_place)], one[len(by_place) :]
            given = self.f(*unflatten(places, first), **unflatten(named, rest))
            _, out, result = _flat_tensors(given, "result")
            return out, result

        made = _record(self.f, call, types, [f"x.{n}" for n in names], "vmap")
        out = _gradus.vmap_body(made.body, given, mapped) if made.body.results else []
        return unflatten(made.structure, self._with_out_axes(out, made.structure))

    def _axes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int | None]:
        axes = self.in_axes
        if isinstance(axes, (list, tuple)) and len(axes) != len(args):
            raise Error(f"vmap: in_axes has {len(axes)} entries for {len(args)} arguments by place")
        # Arguments by name are mapped over their first axis.
        return _axes_of(axes, args, "in_axes", "") + _axes_of(0, kwargs, "in_axes", "")

    def _check_sizes(self, names: list[str], given: list[Tensor], mapped: list[bool]) -> None:
        sizes = [(n, int(x.shape[0])) for n, x, m in zip(names, given, mapped) if m]
        if not sizes:
            raise Error("vmap: no tensor is mapped; in_axes says which axis of which argument is")
        for name, size in sizes:
            if size != sizes[0][1]:
                first, expected = sizes[0]
                raise Error(f"vmap: argument '{name}' has {size} along its axis, and '{first}' has {expected}")

    def _with_out_axes(self, out: list[Tensor], structure: Any) -> list[Tensor]:
        moved = []
        for x, axis in zip(out, _axes_of(self.out_axes, structure, "out_axes", "")):
            if axis is None or not -x.ndim <= axis < x.ndim:
                raise Error(f"vmap: out_axes has {axis} for a result of {type_of(x)}; say where its axis goes")
            moved.append(x if axis in (0, -x.ndim) else _moved(x, 0, axis))
        return moved


def vmap(f: Callable[..., Any], in_axes: Axes = 0, out_axes: Axes = 0) -> Callable[..., Any]:
    """`vmap(f)(xs, …)` is f of each slice of `xs, …` along their first axis, along a new first axis of
    the results: one program for all, by the operators' rules for batches, and no loop over f.

    `in_axes` says which axis of the arguments is mapped: one number for all, or a tuple with one for
    each argument by place; None leaves an argument as it is. In the place of a number there may be a
    tree of numbers, like the argument. Arguments by name are mapped over their first axis, and what
    are no tensors are handed on. `out_axes` says, the same way, where the axis stands in the results.
    All mapped axes have one size, which may be 0.

    f is recorded once, for tensors without the axis: it may hold loops, branches, `grad` and other
    `vmap`s, and read any tensor beside its arguments; all of these have gradients. It may not decide
    by values, and no branch may take another side for some slices than for others: `ops.where` chooses
    there. An Error names an operator that takes no batch: a function of your own, or one whose number
    of results depends on data that differ from slice to slice.

    See Derivative for when it runs as a compiled program.
    """

    def make() -> RecordedDerivative:
        plain = _Mapped(f, in_axes, out_axes)
        return RecordedDerivative(f, functools.wraps(f)(lambda *args, **kwargs: plain(*args, **kwargs)), ())

    try:
        key = ("vmap", key_of(in_axes), key_of(out_axes))
    except TypeError as e:
        raise Error(f"vmap: in_axes and out_axes are numbers, or trees of numbers: {e}") from None
    return kept_for(f, key, make)
