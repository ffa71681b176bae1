"""Arguments and results as flat lists of tensors, and what they are made of beside."""

from __future__ import annotations

import inspect
import itertools
import re
from typing import Any, Callable, NamedTuple

import torch
from torch.utils import _pytree as pytree

from .. import Error


class Structure(NamedTuple):
    """A tree with its tensors taken out."""

    spec: Any
    rest: tuple[Any, ...]  # leaves; a tensor's place holds `Tensors`
    count: int  # of tensors

    def fill(self, tensors: Any) -> Any:
        it = iter(tensors)
        leaves = [next(it) if x is Tensors else x for x in self.rest]
        return pytree.tree_unflatten(leaves, self.spec)

    def filler(self) -> Callable[[Any], Any]:
        """`fill` for many calls, of a list or tuple."""
        places = itertools.count()
        leaves = [_Place(next(places)) if x is Tensors else x for x in self.rest]
        try:
            return _maker(pytree.tree_unflatten(leaves, self.spec), {id(x) for x in self.rest})
        except _OfAnotherKind:
            return self.fill

    def key(self) -> Any:
        # 1, 1.0 and True are equal, and mean different things.
        return self.spec, tuple((type(x), x) for x in self.rest)


class Tensors:
    """Stands for a tensor."""


class _Place(NamedTuple):
    number: int


class _OfAnotherKind(Exception):
    """A node of a tree that is no plain list, tuple or dict."""


_plain = (int, float, bool, str, type(None), complex, bytes, torch.dtype, torch.device)


def read(tree: Any, tensors: list[torch.Tensor]) -> Any:
    """Appends the tensors, in the order of `flatten`. What is left of the tree, as a key; None where
    it has nodes of kinds that only torch knows."""
    try:
        return _read(tree, tensors)
    except _OfAnotherKind:
        return None


def _read(x: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(x, torch.Tensor):
        tensors.append(x)
        return Tensors
    kind = type(x)
    if kind is tuple or kind is list:
        return kind, tuple([_read(item, tensors) for item in x])
    if kind is dict:
        return kind, tuple(x), tuple([_read(item, tensors) for item in x.values()])
    if kind in _plain:
        return kind, x
    raise _OfAnotherKind


def _maker(template: Any, leaves: set[int]) -> Callable[[Any], Any]:
    """What makes a tree of values for the places of a template."""
    kind = type(template)
    if kind is _Place:
        number = template.number
        return lambda values: values[number]
    if id(template) in leaves:
        return lambda values: template
    if kind is list or kind is tuple:
        numbers = [x.number for x in template if type(x) is _Place]
        if len(numbers) == len(template) and numbers:
            begin, end = numbers[0], numbers[-1] + 1  # places are in order
            return lambda values: kind(values[begin:end])
        makers = [_maker(x, leaves) for x in template]
        return lambda values: kind([make(values) for make in makers])
    if kind is dict:
        named = [(k, _maker(x, leaves)) for k, x in template.items()]
        return lambda values: {k: make(values) for k, make in named}
    raise _OfAnotherKind


def flatten(tree: Any) -> tuple[list[torch.Tensor], Structure]:
    leaves, spec = pytree.tree_flatten(tree)
    tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
    rest = tuple([Tensors if isinstance(x, torch.Tensor) else x for x in leaves])
    return tensors, Structure(spec, rest, len(tensors))


def names_of(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """Names for the tensors among the arguments, in their order: x, or data_pos for data["pos"]."""
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    first: list[str] = []
    for p in parameters:
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            first.append(p.name)
    names: list[str] = []
    for i, a in enumerate(args):
        names += _names_within(first[i] if i < len(first) else f"x{i}", a)
    for n, a in kwargs.items():
        names += _names_within(n, a)
    return _unique(names)


def _names_within(name: str, tree: Any) -> list[str]:
    found = []
    for path, leaf in pytree.tree_flatten_with_path(tree)[0]:
        if isinstance(leaf, torch.Tensor):
            parts = [
                str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", "")))) for k in path
            ]
            found.append("_".join([name, *parts]))
    return found


def _unique(names: list[str]) -> list[str]:
    taken: set[str] = {"self"}
    out = []
    for name in names:
        name = re.sub(r"\W", "_", name, flags=re.ASCII)
        if not name.isidentifier() or name in _keywords:
            name = "x_" + name
        n, i = name, 1
        while n in taken:
            n, i = f"{name}_{i}", i + 1
        taken.add(n)
        out.append(n)
    return out


_keywords = set(__import__("keyword").kwlist)


def check_hashable(structure: Structure, what: str) -> Any:
    try:
        key = structure.key()
        hash(key)
    except TypeError as e:
        raise Error(
            f"{what}: arguments that are no tensors must have a hash, since a program is made for "
            f"their values: {e}"
        ) from None
    return key
