"""What a module or function reads beside its arguments."""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterator

import torch
from torch import nn

from .. import Error


class Traced(nn.Module):
    """A module or function as torch.export takes it: of a flat list of tensors with names, giving a
    flat list. Its parameters, buffers and submodules are the module's own, under their own names.
    """

    def __init__(self, f: Callable[..., Any], owner: nn.Module | None) -> None:
        super().__init__()
        own = self.__dict__
        own["_call"] = f
        if owner is None:
            for name, module in captured_modules(f).items():
                self._modules[name] = module
        else:
            for kind in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
                own[kind] = owner.__dict__[kind]
            own["training"] = owner.training
            for name, value in owner.__dict__.items():
                if isinstance(value, torch.Tensor):
                    own[name] = value

    def named(self, names: list[str], run: Callable[..., Any]) -> Traced:
        """The same with a `forward` of arguments with these names."""
        scope: dict[str, Any] = {"run": run}
        exec(f"def forward(self, {', '.join(names)}):\n  return run({', '.join(names)})", scope)
        made = Traced.__new__(type("Traced", (Traced,), {"forward": scope["forward"]}))
        made.__dict__.update(self.__dict__)
        return made


def owner_of(f: Callable[..., Any]) -> nn.Module | None:
    """The module whose parameters `f` reads: itself, or that of a method."""
    if isinstance(f, nn.Module):
        return f
    bound = getattr(f, "__self__", None)
    return bound if isinstance(bound, nn.Module) else None


def _captured(f: Any, seen: set[int], name: str = "") -> Iterator[tuple[str, Any]]:
    if id(f) in seen:
        return
    seen.add(id(f))
    if isinstance(f, (nn.Module, torch.Tensor)):
        yield name or type(f).__name__, f
    elif isinstance(f, functools.partial):
        for i, x in enumerate([f.func, *f.args]):
            yield from _captured(x, seen, f"partial{i}")
        for n, x in f.keywords.items():
            yield from _captured(x, seen, n)
    elif isinstance(f, (list, tuple)):
        for i, x in enumerate(f):
            yield from _captured(x, seen, f"{name}{i}")
    elif hasattr(f, "__code__"):
        cells = zip(f.__code__.co_freevars, f.__closure__ or ())
        for n, cell in cells:
            try:
                yield from _captured(cell.cell_contents, seen, n)
            except ValueError:  # not filled yet
                pass
        for n in f.__code__.co_names:
            if n in f.__globals__ and not isinstance(f.__globals__[n], type(torch)):
                yield from _captured(f.__globals__[n], seen, n)
    elif hasattr(f, "__wrapped__"):
        yield from _captured(f.__wrapped__, seen, name)
    elif hasattr(f, "__func__"):
        yield from _captured(f.__self__, seen, name)
        yield from _captured(f.__func__, seen, name)


def captured_modules(f: Callable[..., Any]) -> dict[str, nn.Module]:
    """The modules that a function reads from where it was written, by name."""
    found: dict[str, nn.Module] = {}
    for name, x in _captured(f, set()):
        if isinstance(x, nn.Module):
            while name in found:
                name += "_"
            found[name] = x
        elif x.requires_grad:
            raise Error(
                f"'{getattr(f, '__name__', f)}' reads the tensor '{name}', which requires a "
                "gradient, from outside: it would be a constant. Give it as an argument, or as a "
                "parameter of a module"
            )
    return found


class Reader:
    """The tensors of a module by their names, as they are when they are asked for, and what tells
    that the module is no longer the one that was exported."""

    def __init__(self, root: nn.Module) -> None:
        self._root = root
        self._modules: list[tuple[dict[str, Any], str, nn.Module]] = []
        for name, module in root.named_modules():
            if name:
                parent, _, last = name.rpartition(".")
                self._modules.append((root.get_submodule(parent)._modules, last, module))

    def modes(self) -> tuple[bool | None, ...]:
        """Which modules train; None for one that was replaced."""
        return tuple([m.training if d.get(n) is m else None for d, n, m in self._modules])

    def place_of(self, name: str) -> tuple[dict[str, Any], str] | None:
        """The dict and key that a parameter or buffer is read from."""
        path, _, last = name.rpartition(".")
        try:
            module = self._root.get_submodule(path)
        except AttributeError:
            return None
        for table in (module._parameters, module._buffers):
            if last in table:
                return table, last
        return None
