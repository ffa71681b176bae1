"""The operators, by name: `gradus.ops.softmax(x, dim=-1)`.

Each takes tensors (arrays are viewed, numbers are scalars, None leaves an optional operand out), then
attributes: by keyword, or by place in the order of the operator's signature (`ops.softmax(x, -1)`).
`axis`, `axes` and `keepdims` stand for what is called `dim`, `dims` and `keepdim` here. It runs at
once, and is recorded where a derivative or a trace wants it. All are made from the library's own
table; `help(gradus.ops.softmax)` shows what one takes.
"""

from __future__ import annotations

import inspect
from typing import Any, Callable

from . import _gradus
from ._dtypes import name_of as _name_of_dtype

__all__: list[str] = []

# What others call it.
_other_names = {"axis": ("dim", "dims"), "axes": ("dims", "dim"), "keepdims": ("keepdim",)}


def _make(op: dict[str, Any]) -> Callable[..., Any]:
    name = op["name"]
    operands = op["operands"]
    attributes = {a[0]: a for a in op["attributes"]}
    variadic = bool(operands) and operands[-1][2]
    several = len(op["results"]) != 1 or op["results"][0].endswith("...")
    order = list(attributes)

    def take(given: list[Any], named: dict[str, Any]) -> None:
        """Attributes by place become named ones."""
        if len(order) == 1 and len(given) > 1 and not [x for x in given if not _is_size(x)]:
            given = [given]  # permute(x, 1, 0)
        if len(given) > len(order):
            raise TypeError(
                f"{name}() takes {len(operands)} operands and {len(order)} attributes by place: "
                f"{op['signature']}"
            )
        for attribute, value in zip(order, given):
            if attribute in named:
                raise TypeError(f"{name}() got two values for '{attribute}'")
            named[attribute] = value

    def split(values: list[Any], named: dict[str, Any]) -> list[Any]:
        """The operands of what is given by place; what stands behind them is named."""
        if not variadic:
            take(values[len(operands) :], named)
            return values[: len(operands)]
        at = len(operands) - 1
        # A list of tensors in the place of any number of them: cat([a, b], 0).
        if len(values) > at and isinstance(values[at], (list, tuple)):
            take(values[at + 1 :], named)
            return [*values[:at], *values[at]]
        # A text is no operand: einsum("ij,jk->ik", a, b).
        texts = [v for v in values if isinstance(v, str)]
        take(texts, named)
        rest = [v for v in values if not isinstance(v, str)]
        return [*rest[:at], *rest[at]] if texts and len(rest) == at + 1 and isinstance(
            rest[at], (list, tuple)
        ) else rest

    def call(*given: Any, **named: Any) -> Any:
        for other in _other_names.keys() & named.keys():
            own = next((n for n in _other_names[other] if n in attributes), None)
            if own is not None and other not in attributes and own not in named:
                named[own] = named.pop(other)
        values = list(given)
        if variadic or len(values) > len(operands):
            values = split(values, named)
        for i, (operand, _, is_variadic) in enumerate(operands):
            if operand in named and not is_variadic and operand not in attributes:
                values += [None] * (i + 1 - len(values))
                if values[i] is not None:
                    raise TypeError(f"{name}() got two values for '{operand}'")
                values[i] = named.pop(operand)
        if "dtype" in attributes and not isinstance(named.get("dtype"), (_gradus.DType, type(None))):
            named["dtype"] = _dtype(named["dtype"])
        results = _gradus.apply(name, values, named)
        return tuple(results) if several else results[0]

    call.__name__ = call.__qualname__ = name
    call.__module__ = __name__
    call.__doc__ = f"{op['doc']}\n\n{op['signature']}"
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        _parameters(operands, op["attributes"])
    )
    return call


def _dtype(given: Any) -> _gradus.DType:
    """Of Gradus' name, or of what NumPy takes for a dtype."""
    own = _gradus.DType.__members__
    name = given if isinstance(given, str) and given in own else _name_of_dtype(given)
    return own["boolean" if name == "bool" else name]


def _is_size(x: Any) -> bool:
    return isinstance(x, (int, _gradus.Dim)) or hasattr(x, "__index__") and not hasattr(x, "shape")


def _parameters(operands: list[Any], attributes: list[Any]) -> list[inspect.Parameter]:
    kind = inspect.Parameter
    names = {a[0] for a in attributes}
    out = []
    for operand, optional, is_variadic in operands:
        if is_variadic:
            out.append(kind(operand, kind.VAR_POSITIONAL))
        else:
            clashes = operand in names
            out.append(
                kind(
                    operand + "_" if clashes else operand,
                    kind.POSITIONAL_ONLY if clashes else kind.POSITIONAL_OR_KEYWORD,
                    default=None if optional else kind.empty,
                )
            )
    # One that is only positional makes all before it so.
    last = max((i for i, p in enumerate(out) if p.kind == kind.POSITIONAL_ONLY), default=-1)
    out[: last + 1] = [p.replace(kind=kind.POSITIONAL_ONLY) for p in out[: last + 1]]
    for attribute, has_default, value in attributes:
        out.append(
            kind(attribute, kind.KEYWORD_ONLY, default=value if has_default else kind.empty)
        )
    return out


for _op in _gradus.operators():
    if not _op["structural"]:
        globals()[_op["name"]] = _make(_op)
        __all__.append(_op["name"])
del _op
