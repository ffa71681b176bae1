"""The operators, by name: `gradus.ops.softmax(x, dim=-1)`.

Each takes tensors (arrays are viewed, numbers are scalars, None leaves an optional operand out) and
attributes by keyword, runs at once, and is recorded where a derivative or a trace wants it. All are
made from the library's own table; `help(gradus.ops.softmax)` shows what one takes.
"""

from __future__ import annotations

import inspect
from typing import Any, Callable

from . import _gradus

__all__: list[str] = []


def _make(op: dict[str, Any]) -> Callable[..., Any]:
    name = op["name"]
    operands = op["operands"]
    attributes = {a[0]: a for a in op["attributes"]}
    variadic = bool(operands) and operands[-1][2]
    several = len(op["results"]) != 1 or op["results"][0].endswith("...")

    def call(*given: Any, **named: Any) -> Any:
        values = list(given)
        # A list of tensors in the place of any number of them: cat([a, b], dim=0).
        if variadic and len(values) == len(operands) and isinstance(values[-1], (list, tuple)):
            values[-1:] = values[-1]
        for i, (operand, _, is_variadic) in enumerate(operands):
            if operand in named and not is_variadic and operand not in attributes:
                values += [None] * (i + 1 - len(values))
                if values[i] is not None:
                    raise TypeError(f"{name}() got two values for '{operand}'")
                values[i] = named.pop(operand)
        results = _gradus.apply(name, values, named)
        return tuple(results) if several else results[0]

    call.__name__ = call.__qualname__ = name
    call.__module__ = __name__
    call.__doc__ = f"{op['doc']}\n\n{op['signature']}"
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        _parameters(operands, op["attributes"])
    )
    return call


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
