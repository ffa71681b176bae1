"""Recorded functions in files: the program, and how the function is called."""

from __future__ import annotations

import inspect
import json
import os
from typing import Any, Union

from . import _gradus
from ._display import without_values
from ._function import Bound, Function, _tensors, bind_arguments, inputs_of
from ._gradus import CallCache, LastUse, Program, StagedFunction, Tensor
from ._trees import Place, flatten, key_of, unflatten
from .errors import Error

Path = Union[str, "os.PathLike[str]"]
_version = 1


def _written(tree: Any) -> Any:
    """A tree as JSON has it: {"t": kind, …}."""
    if isinstance(tree, Place):
        return {"t": "place", "i": tree.index}
    if type(tree) in (list, tuple):
        return {"t": type(tree).__name__, "items": [_written(x) for x in tree]}
    if isinstance(tree, dict) and all(isinstance(k, str) for k in tree):
        return {"t": "dict", "keys": list(tree), "items": [_written(x) for x in tree.values()]}
    if type(tree) is float:
        return {"t": "float", "v": tree.hex()}
    if tree is None or type(tree) in (bool, int, str):
        return {"t": "value", "v": tree}
    raise Error(
        f"a function with {tree!r} among its arguments or results cannot be saved; tensors, numbers, "
        "texts, None, and lists, tuples and dicts of them can"
    )


def _read(tree: Any) -> Any:
    """The tree of what `_written` gives; a ValueError for anything else."""
    if isinstance(tree, dict):
        kind, value, items, keys = (tree.get(k) for k in ("t", "v", "items", "keys"))
        if kind == "place" and type(tree.get("i")) is int:
            return Place(tree["i"])
        if kind == "float" and isinstance(value, str):
            return float.fromhex(value)
        if kind == "value" and (value is None or type(value) in (bool, int, str)):
            return value
        if isinstance(items, list):
            read = [_read(x) for x in items]
            if kind in ("list", "tuple"):
                return read if kind == "list" else tuple(read)
            if kind == "dict" and _are_names(keys) and len(keys) == len(read):
                return dict(zip(keys, read))
    raise ValueError(f"{json.dumps(tree)[:60]} is no argument or result")


def _are_names(x: Any) -> bool:
    return isinstance(x, list) and all(isinstance(name, str) for name in x)


def _field(content: dict[str, Any], key: str, kind: type) -> Any:
    if key not in content:
        raise ValueError(f"'{key}' is missing")
    if type(content[key]) is not kind:
        raise ValueError(f"'{key}' is {json.dumps(content[key])[:60]}, not a {kind.__name__}")
    return content[key]


def _parameters(written: list[Any], arguments: Any) -> list[inspect.Parameter]:
    """As the function has them. Behind the last argument by place that holds tensors, and by name,
    what holds none is a default."""
    kinds = list(inspect._ParameterKind)
    if not all(isinstance(p, list) and len(p) == 2 for p in written):
        raise ValueError("'parameters' are no pairs of a name and a kind")
    names = [name for name, _ in written]
    if not isinstance(arguments, dict) or list(arguments) != names:
        raise ValueError(f"its parameters are {names}, and its arguments are others")
    made: list[inspect.Parameter] = []
    required = False
    for name, kind in reversed(written):
        if type(kind) is not int or not 0 <= kind < len(kinds):
            raise ValueError(f"parameter '{name}' has no kind {kind!r}")
        parameter = inspect.Parameter(name, kinds[kind])
        by_place = kinds[kind] <= inspect.Parameter.POSITIONAL_OR_KEYWORD
        if by_place or kinds[kind] is inspect.Parameter.KEYWORD_ONLY:
            holds_tensors = bool(flatten(arguments[name])[0])
            required = required or by_place and holds_tensors
            if not holds_tensors and not (by_place and required):
                parameter = parameter.replace(default=arguments[name])
        made.append(parameter)
    return made[::-1]


def save_function(f: Function[Any], path: Path, *args: Any, **kwargs: Any) -> None:
    """Writes the function as it is recorded for arguments like these to a file: the program as text,
    with the arrays that it holds, and how it is called. `load_function` gives it back, in a process
    that needs none of the function's code."""
    if not isinstance(f, Function):
        raise Error(f"a gradus.function can be saved, not {f!r}")
    recorded, bound = f.record_bound(*args, **kwargs)
    try:
        signature = inspect.signature(f.function)
        parameters = [[p.name, int(p.kind)] for p in signature.parameters.values()]
    except (TypeError, ValueError):
        raise Error("a function without a signature cannot be saved") from None
    if bound.constants:
        raise Error("a function with arrays as defaults cannot be saved; give them as arguments")
    content = {
        "gradus": "function",
        "version": _version,
        "name": recorded.program.name,
        "order": f.order,
        "fast_functions": f.fast_functions,
        "parameters": parameters,
        "arguments": _written(bound.arguments),
        "results": _written(recorded.structure),
        "program": str(recorded.program),
    }
    beside = f"{os.fspath(path)}.{os.getpid()}"
    with open(beside, "w", encoding="utf-8") as out:
        json.dump(content, out)
    os.replace(beside, path)  # whole or not at all


class LoadedFunction(CallCache):
    """A function from a file: it is called as the one that was saved, with arguments like those that
    it was saved for. It can be differentiated as often as that one; within a recording, any number of
    times."""

    def __init__(self, content: dict[str, Any], path: str) -> None:
        """A ValueError says what is wrong with the content."""
        super().__init__()
        self.__name__ = _field(content, "name", str)
        self.order = _field(content, "order", int)
        self.fast_functions = _field({"fast_functions": False, **content}, "fast_functions", bool)
        text = _field(content, "program", str)
        self.program: Program = _gradus.parse(text, f"the program in {path}")
        self._arguments = _read(_field(content, "arguments", dict))
        self._results = _read(_field(content, "results", dict))
        parameters = _parameters(_field(content, "parameters", list), self._arguments)
        self.__signature__ = inspect.Signature(parameters)
        if self.program.stages != 1 or self.order < 0:
            raise ValueError("it has no program of one stage, and an order of at least 0")
        for tree, there in (
            (self._arguments, self.program.inputs()),
            (self._results, self.program.results()),
        ):
            if [place.index for _, place in flatten(tree)[0]] != list(range(len(there))):
                raise ValueError("its program has other inputs or results")
        self._staged: dict[Any, StagedFunction] = {}
        self.set_guards([], Place)

    def _plain(self, *args: Any, **kwargs: Any) -> Any:
        """Within a recording: its operators become a part of that."""
        leaves, (places, named) = flatten((args, kwargs))
        tensors = _tensors(leaves)
        inputs = inputs_of(self._bound(places, named, tensors), tensors)
        return unflatten(self._results, _gradus.play(self.program, inputs))

    def _prepare(self, args: Any, kwargs: Any, tensors: list[Tensor]) -> Any:
        """See CallCache."""
        _, (places, named) = flatten((args, kwargs))
        bound = self._bound(places, named, tensors)
        wrt = tuple(_gradus.is_recording() and x.requires_grad for x in inputs_of(bound, tensors))
        key = wrt, _gradus.current_context_id()
        staged = self._staged.get(key)
        if staged is None:
            program = self.program
            if any(wrt):
                names = [n for (n, _), w in zip(program.inputs(), wrt) if w]
                program = program.differentiate(self.order, names)
            code = program.compile(fast_functions=self.fast_functions)
            staged = self._staged.setdefault(key, StagedFunction(code))
        return staged, LastUse(), bound.sources, bound.constants, self._results, []

    def _bound(self, places: Any, named: Any, tensors: list[Tensor]) -> Bound:
        """The arguments, which have to be like those that it was saved for."""
        bound = bind_arguments(self._with_defaults(places, named), len(tensors))
        if key_of(bound.arguments) != key_of(self._arguments):
            raise Error(
                f"'{self.__name__}' was saved for other arguments: {self._arguments!r}, not "
                f"{bound.arguments!r}"
            )
        for x, (name, type) in zip(inputs_of(bound, tensors), self.program.inputs()):
            if type != _gradus.Type(x.dtype, list(x.shape)):
                raise Error(f"'{self.__name__}' was saved for a {type} as '{name}', not {without_values(x)}")
        return bound

    def _with_defaults(self, args: Any, kwargs: Any) -> dict[str, Any]:
        """The arguments by name; what is not given is what it was when the function was saved."""
        bound = self.__signature__.bind_partial(*args, **kwargs).arguments
        return {n: bound[n] if n in bound else v for n, v in self._arguments.items()}

    def __repr__(self) -> str:
        return f"<function '{self.__name__}' from a file>"


def load_function(path: Path) -> LoadedFunction:
    """The function that `save_function` wrote to a file."""
    name = os.fspath(path)
    with open(path, encoding="utf-8") as file:
        try:
            content = json.load(file)
        except (ValueError, RecursionError) as e:
            raise Error(f"{name}: it is no saved function: {e}") from None
    if not isinstance(content, dict) or content.get("gradus") != "function":
        raise Error(f"{name}: it is no saved function")
    try:
        if _field(content, "version", int) > _version:
            raise Error(f"{name}: a newer release of Gradus wrote it")
        return LoadedFunction(content, name)
    except (ValueError, RecursionError) as e:
        raise Error(f"{name}: it is a damaged saved function: {e}; save it again") from None
