"""Arguments and results as flat lists of tensors, and what they are made of beside."""

from __future__ import annotations

import inspect
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

    def key(self) -> Any:
        # 1, 1.0 and True are equal, and mean different things.
        return self.spec, tuple((type(x), x) for x in self.rest)


class Tensors:
    """Stands for a tensor."""


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
