"""Equations over Python functions: roots, and linear systems of which products are given."""

from __future__ import annotations

from typing import Any, Callable

from . import _gradus
from ._display import without_values
from ._gradus import Tensor
from ._loops import _flat_tensors, _record, type_of
from ._trees import is_leaf_tensor, unflatten
from .errors import Error


def _solve(
    what: str, solve: Callable[..., Tensor], f: Callable[..., Any], first: Any, args: tuple[Any, ...],
    max_steps: int | None, tolerance: float | None,
) -> Tensor:
    x = first if isinstance(first, Tensor) else _gradus.as_tensor(first)
    names, constants, structure = _flat_tensors(args, "arg")
    types = [type_of(x)] + [type_of(c) for c in constants]

    def call(given: list[Tensor]) -> tuple[list[Tensor], Any]:
        y = f(given[0], *unflatten(structure, given[1:]))
        if not is_leaf_tensor(y):
            raise Error(f"{what}: the function gives {without_values(y)}; it has to give a tensor, {types[0]}")
        out = y if isinstance(y, Tensor) else _gradus.as_tensor(y)
        if type_of(out) != types[0]:
            raise Error(f"{what}: the function takes {types[0]} and gives {type_of(out)}; they must have one type")
        return [out], None

    body = _record(f, call, types, ["x", *names], "equation").body
    return solve(body, x, constants, max_steps, tolerance)


def root(
    f: Callable[..., Any], x0: Any, *args: Any, max_steps: int | None = None, tolerance: float | None = None
) -> Tensor:
    """x with `f(x, *args)` = 0, by Newton's method from `x0`, a number or a vector; `f` gives a tensor
    of x's type.

    It ends where no element of f is larger than `tolerance`: 1e-10 in f64, 1e-5 in f32, 1e-2 else. After
    `max_steps` (50) steps that is an Error. Derivatives of every order are those of the equation at x:
    one linear solve each, and no step is kept. They pass to `args`, trees of tensors, and to what `f`
    reads beside; none passes to `x0`.
    """
    return _solve("root", _gradus.root_body, f, x0, args, max_steps, tolerance)


def linear_solve(
    product: Callable[..., Any], b: Any, *args: Any, max_steps: int | None = None, tolerance: float | None = None
) -> Tensor:
    """x with `product(x, *args)` = b, by conjugate gradients: the product is linear in x, symmetric and
    positive definite.

    It ends where |b - product| is at most `tolerance` |b|: 1e-10 in f64, 1e-5 in f32, 1e-2 else. After
    `max_steps` (1000) steps that is an Error. A derivative is one more such system, of any order.
    """
    return _solve("linear_solve", _gradus.linear_solve_body, product, b, args, max_steps, tolerance)
