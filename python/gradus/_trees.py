"""Arguments and results made of tuples, lists and dicts of tensors."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Callable, Iterator

from ._gradus import Tensor, as_tensor
from .errors import Error

Tree = Any


def is_leaf_tensor(x: Any) -> bool:
    """Whether it is a tensor, or an array that becomes one."""
    if isinstance(x, Tensor):
        return True
    if isinstance(x, type):  # of arrays: it has their attributes, and no values
        return False
    return hasattr(x, "__array_interface__") or hasattr(x, "__dlpack__")


def is_number(x: Any) -> bool:
    return isinstance(x, (bool, int, float)) and not is_leaf_tensor(x)


def with_tensors(tree: Tree, kinds: tuple[type, ...] = (bool, int, float)) -> Tree:
    """The tree with 0-d tensors in the place of numbers of these kinds."""
    return _map(tree, lambda x: as_tensor(x) if is_number(x) and isinstance(x, kinds) else x)


def flatten(tree: Tree, name: str = "") -> tuple[list[tuple[str, Any]], Tree]:
    """The tensors in order, each with its name ("params.w"), and the tree with numbers of theirs in
    their places."""
    leaves: list[tuple[str, Any]] = []
    return leaves, _places(tree, name, leaves)


def _places(x: Tree, at: str, leaves: list[tuple[str, Any]]) -> Tree:
    # Not a function within flatten, which would be a cycle that keeps the tensors until it is found.
    if isinstance(x, (tuple, list)):
        names = getattr(x, "_fields", range(len(x)))
        items = [_places(v, f"{at}.{n}" if at else str(n), leaves) for n, v in zip(names, x)]
        if isinstance(x, list):
            return items
        return tuple(items) if type(x) is tuple else type(x)(*items)
    if isinstance(x, dict):
        return {k: _places(v, f"{at}.{k}" if at else str(k), leaves) for k, v in x.items()}
    if isinstance(x, Place) or is_leaf_tensor(x):
        leaves.append((at, x))
        return Place(len(leaves) - 1)
    return x


class Place:
    """Stands for a tensor. A tree with places is flattened as one with tensors."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Place) and other.index == self.index

    def __hash__(self) -> int:
        return hash(("place", self.index))

    def __repr__(self) -> str:
        return f"tensor {self.index}"


def unflatten(structure: Tree, leaves: list[Any]) -> Tree:
    """The tree with these tensors."""
    return _map(structure, lambda x: leaves[x.index] if isinstance(x, Place) else x)


def _map(tree: Tree, f: Callable[[Any], Any]) -> Tree:
    if isinstance(tree, list):
        return [_map(x, f) for x in tree]
    if isinstance(tree, tuple):
        items = [_map(x, f) for x in tree]
        return tuple(items) if type(tree) is tuple else type(tree)(*items)
    if isinstance(tree, dict):
        return {k: _map(v, f) for k, v in tree.items()}
    return f(tree)


def values_of(tree: Tree) -> list[Any]:
    """What a structure holds beside places: values, keys of dicts, and types of other tuples."""
    if isinstance(tree, dict):
        return [v for item in tree.items() for part in item for v in values_of(part)]
    if isinstance(tree, (list, tuple)):
        own = [] if type(tree) in (list, tuple) else [type(tree)]
        return own + [v for x in tree for v in values_of(x)]
    return [] if isinstance(tree, Place) else [tree]


def places_alone(structure: Tree) -> Tree:
    """The tree with None for all that is no tensor."""
    return _map(structure, lambda x: x if isinstance(x, Place) else None)


def matched(
    tree: Tree, other: Tree, at: str, differ: Callable[[str, Any, Any], Error]
) -> Iterator[tuple[str, Any, Any]]:
    """The name of each leaf, the leaf, and what stands in its place in another tree of the same
    structure; where that differs, `differ` makes the Error of both parts."""
    if isinstance(tree, dict):
        same = isinstance(other, dict) and tree.keys() == other.keys()
        pairs = [(k, tree[k], other[k]) for k in tree] if same else None
    elif isinstance(tree, (list, tuple)):
        same = isinstance(other, (list, tuple)) and len(other) == len(tree)
        pairs = list(zip(getattr(tree, "_fields", range(len(tree))), tree, other)) if same else None
    else:
        yield at, tree, other
        return
    if pairs is None:
        raise differ(at, tree, other)
    for n, part, of_other in pairs:
        yield from matched(part, of_other, f"{at}.{n}" if at else str(n), differ)


def kind_of(x: Any) -> str:
    if isinstance(x, Place) or is_leaf_tensor(x) or is_number(x):
        return "a tensor"
    if isinstance(x, dict):
        return f"a dict with keys {list(x)}"
    if isinstance(x, (list, tuple)):
        return f"a {type(x).__name__} of {len(x)}"
    return repr(x)


def key_of(tree: Tree) -> Any:
    """A hashable stand-in for a structure. TypeError for values that have no hash."""
    if isinstance(tree, (list, tuple)):
        return (type(tree), tuple(key_of(x) for x in tree))
    if isinstance(tree, dict):
        return (dict, tuple((key_of(k), key_of(v)) for k, v in tree.items()))
    hash(tree)
    # 1, 1.0 and True are equal, and so are the zeros; they mean different things to a program. A NaN
    # differs from itself, and does not.
    if type(tree) is float:
        return (float, tree.hex())
    if type(tree) is complex:
        return (complex, tree.real.hex(), tree.imag.hex())
    if is_frozen(type(tree)) and type(tree).__dataclass_params__.eq:
        compared = (getattr(tree, f.name) for f in dataclasses.fields(tree) if f.compare)
        # The class may leave fields out of its hash that have none.
        with contextlib.suppress(TypeError):
            return (type(tree), tuple(key_of(x) for x in compared))
    return (type(tree), tree)


def is_frozen(x: type) -> bool:
    """Whether it is a dataclass whose instances have the attributes that they were made with."""
    made = vars(x).get("__dataclass_params__")  # a class derived from it has to say so of itself
    return made is not None and made.frozen
