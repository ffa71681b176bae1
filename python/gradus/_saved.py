"""Recorded functions in files: the program, and how the function is called."""

from __future__ import annotations

import inspect
import json
import os
from typing import Any, Union

from . import _gradus
from ._display import without_values
from ._function import Function, bind_arguments, inputs_of
from ._gradus import CallCache, LastUse, Program, StagedFunction, Tensor
from ._trees import Place, flatten, key_of
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
    kind = tree["t"]
    if kind == "place":
        return Place(tree["i"])
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(_read(x) for x in tree["items"])
    if kind == "dict":
        return dict(zip(tree["keys"], map(_read, tree["items"])))
    return float.fromhex(tree["v"]) if kind == "float" else tree["v"]


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
    it was saved for. It can be differentiated as often as that one."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__()
        self.__name__ = content["name"]
        self.order = int(content["order"])
        self.fast_functions = bool(content.get("fast_functions", False))
        self.program: Program = _gradus.parse(content["program"], content["name"])
        kinds = list(inspect._ParameterKind)
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(n, kinds[k]) for n, k in content["parameters"]]
        )
        self._arguments = _read(content["arguments"])
        self._results = _read(content["results"])
        self._staged: dict[Any, StagedFunction] = {}
        self.set_guards([], Place)

    def _plain(self, *args: Any, **kwargs: Any) -> Any:
        raise Error(f"'{self.__name__}' comes from a file: a recording does not see into it")

    def _prepare(self, args: Any, kwargs: Any, tensors: list[Tensor]) -> Any:
        """See CallCache."""
        _, (places, named) = flatten((args, kwargs))
        given = self._with_defaults(places, named)
        bound = bind_arguments(given, len(tensors))
        if key_of(bound.arguments) != key_of(self._arguments):
            raise Error(
                f"'{self.__name__}' was saved for other arguments: {self._arguments!r}, not "
                f"{bound.arguments!r}"
            )
        inputs = inputs_of(bound, tensors)
        for x, (name, type) in zip(inputs, self.program.inputs()):
            if type != _gradus.Type(x.dtype, list(x.shape)):
                raise Error(f"'{self.__name__}' was saved for a {type} as '{name}', not {without_values(x)}")
        wrt = tuple(_gradus.is_recording() and x.requires_grad for x in inputs)
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

    def _with_defaults(self, args: Any, kwargs: Any) -> dict[str, Any]:
        """The arguments by name; what is not given is what it was when the function was saved."""
        bound = self.__signature__.bind_partial(*args, **kwargs).arguments
        return {n: bound[n] if n in bound else v for n, v in self._arguments.items()}

    def __repr__(self) -> str:
        return f"<function '{self.__name__}' from a file>"


def load_function(path: Path) -> LoadedFunction:
    """The function that `save_function` wrote to a file."""
    with open(path, encoding="utf-8") as file:
        try:
            content = json.load(file)
        except ValueError as e:
            raise Error(f"{os.fspath(path)}: it is no saved function: {e}") from None
    if not isinstance(content, dict) or content.get("gradus") != "function":
        raise Error(f"{os.fspath(path)}: it is no saved function")
    if content["version"] > _version:
        raise Error(f"{os.fspath(path)}: a newer release of Gradus wrote it")
    return LoadedFunction(content)
