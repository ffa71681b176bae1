"""Prints ops.pyi: the operators' functions with their types, from the library's table.

The build runs it when the module is made.
"""

from __future__ import annotations

import textwrap
from typing import Any

from gradus import _gradus

HEAD = '''"""Made from the table of operators."""

from collections.abc import Sequence
from typing import Any

from ._gradus import ArrayLike, DType, Tensor

'''


def annotation(default: Any, has_default: bool) -> str:
    if not has_default or default is None:
        return "Any"
    if isinstance(default, bool):
        return "bool"
    if isinstance(default, (int, float)):
        return "float"
    if isinstance(default, str):
        return "str"
    if isinstance(default, list):
        return "int | Sequence[int]"
    return "DType | str" if isinstance(default, _gradus.DType) else "Any"


def parameter(name: str, kind: str, default: Any, has_default: bool) -> str:
    shown = f"DType.{default.name}" if isinstance(default, _gradus.DType) else repr(default)
    return f"{name}: {kind}" + (f" = {shown}" if has_default else "")


def function(op: dict[str, Any]) -> str:
    attributes = {a[0] for a in op["attributes"]}
    parameters = []
    variadic = False
    for name, optional, many in op["operands"]:
        if many:
            parameters.append(f"*{name}: ArrayLike | Sequence[ArrayLike] | None")
            variadic = True
        else:
            name = name + "_" if name in attributes else name
            kind = "ArrayLike | None" if optional else "ArrayLike"
            parameters.append(parameter(name, kind, None, optional))
            if name.endswith("_"):
                parameters.append("/")
    optional = any(o[1] for o in op["operands"])
    without_default = [not has for _, has, _ in op["attributes"]]
    in_order = without_default == sorted(without_default, reverse=True)
    if op["attributes"] and not variadic and (optional or not in_order):
        parameters.append("*")  # by place they would not be valid Python
    for name, has_default, value in op["attributes"]:
        parameters.append(parameter(name, annotation(value, has_default), value, has_default))
    many = len(op["results"]) != 1 or op["results"][0].endswith("...")
    result = "Tensor"
    if op["results"][0].endswith("..."):
        result = "tuple[Tensor, ...]"
    elif many:
        result = "tuple[" + ", ".join(["Tensor"] * len(op["results"])) + "]"
    head = f"def {op['name']}({', '.join(parameters)}) -> {result}:"
    lines = [head]
    if len(head) > 100:
        lines = [f"def {op['name']}("] + wrapped(", ".join(parameters)) + [f") -> {result}:"]
    doc = op["doc"].replace("\\", "\\\\")
    if len(doc) < 90 and not doc.endswith('"'):
        lines.append(f'    """{doc}"""')
    else:
        lines += wrapped('"""' + doc) + ['    """']
    return "\n".join(lines) + "\n"


def wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text, 100, initial_indent="    ", subsequent_indent="    ", break_long_words=False
    )


def stubs() -> str:
    return HEAD + "\n".join(function(op) for op in _gradus.operators() if not op["structural"])


if __name__ == "__main__":
    print(stubs(), end="")
