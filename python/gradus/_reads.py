"""What a Python function reads beside its arguments: whether a program may run in its place."""

from __future__ import annotations

import builtins
import dis
import enum
import functools
import math
import types
from typing import Any, Callable, NamedTuple

import numpy

from ._gradus import DType
from ._trees import is_frozen

# Those that compute with what they are given, and do nothing else.
_pure = (
    {
        getattr(builtins, name)
        for name in (
            "abs all any bool complex dict divmod enumerate filter float frozenset int isinstance "
            "len list map max min pow property range reversed round set slice sorted str sum tuple "
            "type zip"
        ).split()
    }
    | {x for x in vars(builtins).values() if isinstance(x, type) and issubclass(x, BaseException)}
    | {x for x in vars(math).values() if callable(x)}
)
_numbers = (int, float, complex, str, bytes, bool, type(None), type(...), type(NotImplemented), range)
# What changes or reads something that no guard watches.
_refused = ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF", "STORE_ATTR",
            "DELETE_ATTR", "STORE_SUBSCR", "DELETE_SUBSCR", "IMPORT_NAME", "YIELD_VALUE")
_refused_attributes = ("__dict__", "__globals__", "__closure__")
# Methods that make, compare and show objects; the others with such names stand for operators.
_of_all_objects = {
    f"__{name}__"
    for name in (
        "new init post_init init_subclass class_getitem subclasshook setattr delattr repr str format "
        "eq ne lt le gt ge hash dir sizeof reduce reduce_ex getnewargs getstate setstate replace"
    ).split()
}
_descriptors = (types.MemberDescriptorType, type(NamedTuple("_", [("field", int)]).field))
_heap_type = 1 << 9  # of the flags of a type whose attributes can change

Guard = tuple[Any, Any, Any]  # see Guard in python/calls.cpp


def guards_of(f: Callable[..., Any], *arguments: Any) -> list[Guard] | None:
    """What has to be as it is for a recording of `f` to stand for it, called with these objects: each
    global and each variable of functions around that it reads, or that functions read which it calls
    by name; their defaults; and attributes of functions and of classes. None where something among
    them can change without being another object: then it runs as it is written."""
    search = _Search()
    return search.found if search.stay([*arguments, f]) else None


class _Search:
    def __init__(self) -> None:
        self.found: list[Guard] = []
        self.owners: dict[int, Any] = {}  # by id: functions and classes, which have attributes
        self.attributes: set[str] = set()  # that some function reads of something

    def stay(self, objects: list[Any]) -> bool:
        """Whether these are always the same while they are these objects, but for the guards found."""
        if not all(self.visit(x) for x in objects):
            return False
        seen: set[tuple[int, str]] = set()
        while True:
            read = [
                (owner, name)
                for key, owner in self.owners.items()
                for name in list(vars(owner))
                if (key, name) not in seen and self.is_read(owner, name)
            ]
            if not read:
                return True
            for owner, name in read:
                seen.add((id(owner), name))
                value = vars(owner)[name]
                self.found.append((owner if isinstance(owner, type) else vars(owner), name, value))
                if not self.visit_attribute(value):
                    return False

    def is_read(self, owner: Any, name: str) -> bool:
        """By its name, or by an operator."""
        if name in self.attributes:
            return True
        if not isinstance(owner, type) or name in _of_all_objects:
            return False
        f = vars(owner)[name]
        return name.startswith("__") and isinstance(f, types.FunctionType) and f.__module__ != "enum"

    def visit_attribute(self, x: Any) -> bool:
        if isinstance(x, (staticmethod, classmethod)):
            return self.visit(x.__func__)
        if isinstance(x, property):
            return all(self.visit(f) for f in (x.fget, x.fset, x.fdel))
        if isinstance(x, functools.cached_property):
            return self.visit(x.func)
        return isinstance(x, _descriptors) or self.visit(x)

    def visit(self, x: Any) -> bool:
        from . import _derivative, _function, _loops, _saved, ops

        if isinstance(x, enum.Enum):
            own = {name: v for name, v in vars(x).items() if name == "_value_" or name[0] != "_"}
            self.found += [(vars(x), name, v) for name, v in own.items()]
            return self.visit_class(type(x)) and all(map(self.visit, own.values()))
        if isinstance(x, _numbers) and not hasattr(x, "__dict__"):
            return True
        # What was recorded stays as it was.
        if isinstance(x, (_function.Function, _saved.LoadedFunction)):
            self.owners[id(x)] = x
            return True
        if isinstance(x, _derivative.Derivative):
            self.owners[id(x)] = x
            return self.visit(x.function)
        if isinstance(x, types.FunctionType):
            if x.__module__ in (ops.__name__, _loops.__name__):
                return True
            return self.visit_function(x)
        if isinstance(x, types.ModuleType):
            return x is math or x is ops or x.__name__ == "gradus"
        if isinstance(x, (tuple, frozenset)):
            return (type(x) in (tuple, frozenset) or self.visit(type(x))) and all(map(self.visit, x))
        if isinstance(x, slice):
            return all(map(self.visit, (x.start, x.stop, x.step)))
        if isinstance(x, (numpy.dtype, DType)):
            return True
        if isinstance(x, type):
            if issubclass(x, tuple) and hasattr(x, "_fields"):
                return self.visit_class(x)
            return x in _pure or issubclass(x, numpy.generic) and not x.__flags__ & _heap_type
        if is_frozen(type(x)):
            held = [getattr(x, name, None) for name in x.__dataclass_fields__]
            held += getattr(x, "__dict__", {}).values()
            return self.visit_class(type(x)) and all(map(self.visit, held))
        return isinstance(x, types.BuiltinFunctionType) and x in _pure

    def visit_class(self, x: type) -> bool:
        classes = [c for c in x.__mro__ if c.__flags__ & _heap_type and c.__module__ != "enum"]
        self.owners.update((id(c), c) for c in classes)
        return True

    def visit_function(self, f: types.FunctionType) -> bool:
        if id(f) in self.owners:
            return True
        self.owners[id(f)] = f
        self.found.append((f, None, (f.__code__, f.__defaults__, f.__kwdefaults__)))
        by_name = f.__kwdefaults__ or {}
        self.found += [(by_name, name, value) for name, value in by_name.items()]
        if not all(self.visit(x) for x in (*(f.__defaults__ or ()), *by_name.values())):
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
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                if step.argval in _refused_attributes:
                    return False
                self.attributes.add(step.argval)
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
