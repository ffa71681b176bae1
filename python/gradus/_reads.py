"""What a Python function reads beside its arguments: whether a program may run in its place."""

from __future__ import annotations

import builtins
import dis
import enum
import math
import types
from typing import Any, Callable

# Those that compute with what they are given, and do nothing else.
_pure = {
    getattr(builtins, name)
    for name in (
        "abs all any bool complex dict divmod enumerate filter float frozenset int isinstance len "
        "list map max min pow property range reversed round set slice sorted str sum tuple type zip"
    ).split()
} | {
    x for x in vars(builtins).values() if isinstance(x, type) and issubclass(x, BaseException)
}
_numbers = (int, float, complex, str, bytes, bool, type(None), type(...), enum.Enum)
# What changes or reads something that no guard watches.
_refused = ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF", "STORE_ATTR",
            "DELETE_ATTR", "STORE_SUBSCR", "DELETE_SUBSCR", "IMPORT_NAME", "YIELD_VALUE")

Guard = tuple[Any, Any, Any]  # a cell, or a dict and a name in it; and what it holds


def guards_of(f: Callable[..., Any]) -> list[Guard] | None:
    """What has to be as it is for a recording of `f` to stand for it: each global and each variable
    of functions around that it reads, or that functions read which it calls by name. None where
    something among them can change without being another object: then it runs as it is written."""
    found: list[Guard] = []
    return found if _Search(found).visit(f) else None


class _Search:
    def __init__(self, found: list[Guard]) -> None:
        self.found = found
        self.seen: set[int] = set()

    def visit(self, x: Any) -> bool:
        """Whether `x` is always the same while it is this object, but for the guards found."""
        from . import _derivative, _function, _loops, ops

        if isinstance(x, _numbers):
            return True
        if isinstance(x, _function.Function):  # it is what it was when it was recorded
            return True
        if isinstance(x, _derivative.Derivative):
            return self.visit(x.function)
        if isinstance(x, types.FunctionType):
            if x.__module__ in (ops.__name__, _loops.__name__):
                return True
            return self.visit_function(x)
        if isinstance(x, types.ModuleType):
            return x is math or x is ops or x.__name__ == "gradus"
        if isinstance(x, tuple):
            return all(self.visit(item) for item in x)
        if isinstance(x, type) and issubclass(x, tuple) and hasattr(x, "_fields"):
            return True
        try:
            return x in _pure
        except TypeError:
            return False

    def visit_function(self, f: types.FunctionType) -> bool:
        if id(f) in self.seen:
            return True
        self.seen.add(id(f))
        defaults = [*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()]
        if not all(self.visit(x) for x in defaults):
            return False
        cells = dict(zip(f.__code__.co_freevars, f.__closure__ or ()))
        return self.visit_code(f.__code__, f.__globals__, cells, set())

    def visit_code(self, code: Any, where: dict[str, Any], cells: Any, around: set[str]) -> bool:
        """`around`: variables of the functions around that are made anew at each call."""
        own = around | set(code.co_cellvars)
        for step in dis.get_instructions(code):
            if step.opname in _refused and step.argval not in own:
                return False
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                if not self.visit_global(where, step.argval):
                    return False
            elif step.opname in ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"):
                if step.argval not in own and not self.visit_cell(cells.get(step.argval)):
                    return False
        inner = (c for c in code.co_consts if isinstance(c, types.CodeType))
        return all(self.visit_code(c, where, cells, own) for c in inner)

    def visit_global(self, where: dict[str, Any], name: str) -> bool:
        if name in where:
            self.found.append((where, name, where[name]))
            return self.visit(where[name])
        return hasattr(builtins, name) and getattr(builtins, name) in _pure

    def visit_cell(self, cell: Any) -> bool:
        try:
            value = cell.cell_contents
        except (AttributeError, ValueError):
            return False
        self.found.append((cell, None, value))
        return self.visit(value)
