"""Programs with names for sizes, of functions that are recorded with numbers.

A function is recorded for several choices of numbers. The texts of the recordings differ in what
depends on the names, and only there: each number that differs is a polynomial of them.
"""

from __future__ import annotations

import re
from itertools import combinations_with_replacement
from typing import Any, Callable

from . import _gradus
from ._gradus import Dim, Program, Type
from ._tensors import zeros
from .errors import Error

_token = re.compile(r"[A-Za-z_%][\w.]*|\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+|\S|\s+")
_name = re.compile(r"[A-Za-z_]\w*")
_choices = 4  # two settle a polynomial, two more hold it to that
# Of the k-th choice for the i-th name: number 5 i + k. Some are even, some have other divisors.
_sizes = (7, 12, 25, 18, 11, 27, 16, 20, 13, 33, 30, 17, 28, 35, 22, 39)


def has_types(tree: Any) -> bool:
    if isinstance(tree, (list, tuple)):
        return any(map(has_types, tree))
    return any(map(has_types, tree.values())) if isinstance(tree, dict) else isinstance(tree, Type)


def _names_in(tree: Any) -> list[str]:
    if isinstance(tree, (list, tuple)):
        return [n for x in tree for n in _names_in(x)]
    if isinstance(tree, dict):
        return [n for x in tree.values() for n in _names_in(x)]
    if not isinstance(tree, Type):
        return []
    dims = [str(d) for d in tree.shape if isinstance(d, Dim)]
    for d in dims:
        if not _name.fullmatch(d):
            raise Error(f"a size of an argument is a number or a name, not '{d}'")
    return dims


def _with_sizes(tree: Any, sizes: dict[str, int]) -> Any:
    """Tensors of these sizes in the places of types."""
    if isinstance(tree, (list, tuple)):
        items = [_with_sizes(x, sizes) for x in tree]
        return items if isinstance(tree, list) else tuple(items) if type(tree) is tuple else type(tree)(*items)
    if isinstance(tree, dict):
        return {k: _with_sizes(v, sizes) for k, v in tree.items()}
    if isinstance(tree, Type):
        return zeros([sizes[str(d)] if isinstance(d, Dim) else d for d in tree.shape], tree.dtype)
    return tree


def record_named(record: Callable[[Any, Any], Program], args: Any, kwargs: Any) -> Program:
    """What `record` gives for these arguments, types with names among them."""
    names = sorted(set(_names_in((args, kwargs))))
    if 2 * len(names) > len(_sizes):
        raise Error(f"{len(names)} names of sizes are more than {len(_sizes) // 2}")
    found = []
    for k in range(_choices if names else 1):
        sizes = {n: _sizes[(5 * i + k) % len(_sizes)] for i, n in enumerate(names)}
        found.append((sizes, record(*_with_sizes((args, kwargs), sizes))))
    if not names:
        return found[0][1]
    return _gradus.parse(_unified(found))


def _unified(found: list[tuple[dict[str, int], Program]]) -> str:
    texts = [_token.findall(str(program)) for _, program in found]
    if len({len(t) for t in texts}) != 1:
        raise Error("the function does other things for other sizes; its program has no names for them")
    out = []
    for tokens in zip(*texts):
        if len(set(tokens)) == 1:
            out.append(tokens[0])
        elif all(t.isdigit() for t in tokens):
            out.append(_polynomial([s for s, _ in found], [int(t) for t in tokens]))
        else:
            raise Error(
                f"a size decides what the program has as {', '.join(map(repr, tokens))}; compute it by "
                "operators on tensors, or record the function for numbers"
            )
    return "".join(out)


def _polynomial(sizes: list[dict[str, int]], values: list[int]) -> str:
    """c * term + d, of a name, a product or a sum of two."""
    names = list(sizes[0])
    pairs = list(combinations_with_replacement(names, 2))
    terms: list[tuple[list[int], Dim]] = [([s[n] for s in sizes], Dim(n)) for n in names]
    terms += [([s[a] * s[b] for s in sizes], Dim(a) * Dim(b)) for a, b in pairs]
    terms += [([s[a] + s[b] for s in sizes], Dim(a) + Dim(b)) for a, b in pairs if a != b]
    for of, dim in terms:
        if of[0] == of[1] or (values[0] - values[1]) % (of[0] - of[1]) != 0:
            continue
        c = (values[0] - values[1]) // (of[0] - of[1])
        d = values[0] - c * of[0]
        if all(v == c * n + d for v, n in zip(values, of)):
            return str(dim * c + d)
    raise Error(
        f"a number in the program is {values} for sizes of {sizes}, which is no product or sum of two"
    )
