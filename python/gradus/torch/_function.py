"""torch modules and functions as programs that torch differentiates to any order."""

from __future__ import annotations

import functools
import threading
import warnings
from typing import Any, Callable, Iterable, Sequence

import torch
from torch import nn

from .. import Error, Program
from ._autograd import call_staged
from ._importing import Imported, exports, import_function
from ._modules import Reader, Traced, owner_of
from ._refusals import NotExported
from ._staged import Staged
from ._trees import Structure, check_hashable, flatten, names_of, read

_many = 8  # programs of one function, differing in sizes alone: more of them deserve a word


def _parts(z: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(z.resolve_conj())


class Variant:
    """A program for arguments of some kind, and where its inputs come from."""

    def __init__(self, imported: Imported, reader: Reader, order: int) -> None:
        self.imported = imported
        self.staged = Staged(imported.program, order)
        self.outputs = imported.outputs
        self._fill = imported.outputs.filler()
        self.single = imported.outputs.count == 1 and imported.outputs.spec.is_leaf()
        self.written = imported.written
        self.complex_inputs = imported.complex_inputs
        self.complex_results = imported.complex_results
        self._stored: list[tuple[dict[Any, Any], Any]] = []
        for name, value in imported.stored:
            self._stored.append(reader.place_of(name) or ({0: value}, 0))

    def stored(self) -> list[torch.Tensor]:
        return [table[key] for table, key in self._stored]

    def real_stored(self) -> list[torch.Tensor]:
        """As the program has them."""
        return [_parts(t) if t.is_complex() else t for t in self.stored()]

    def __call__(self, tensors: list[torch.Tensor]) -> Any:
        given = tensors + exports.read(self.stored)
        if self.written:
            return self._writing(given)
        results = self._call(given)
        return results[0] if self.single else self._fill(results)

    def _call(self, given: list[torch.Tensor]) -> Any:
        for i in self.complex_inputs:
            given[i] = _parts(given[i])
        results = call_staged(self.staged, given)
        if self.complex_results:
            results = list(results)
            for i in self.complex_results:
                results[i] = torch.view_as_complex(results[i].contiguous())
        return results

    def _writing(self, given: list[torch.Tensor]) -> Any:
        targets = [given[i] for i in self.written]
        for i in self.written:
            given[i] = given[i].clone()  # later stages read what it was
        results = self._call(given)
        count = self.outputs.count
        for target, value in zip(targets, results[count:]):
            with torch.set_grad_enabled(torch.is_grad_enabled() and value.requires_grad):
                target.copy_(value)
        return self._fill(results[:count])


class Family:
    """The programs for arguments that differ in nothing but sizes."""

    def __init__(self) -> None:
        self.variants: list[Variant] = []
        self.shapes: list[list[tuple[int, ...]]] = []

    def find(self, tensors: Sequence[torch.Tensor]) -> Variant | None:
        for v in reversed(self.variants):
            if v.imported.fits(tensors):
                return v
        return None

    def named_sizes(self, tensors: Sequence[torch.Tensor]) -> list[dict[int, Any]] | None:
        """Those that have differed between calls; none where nothing has."""
        named = []
        for i, t in enumerate(tensors):
            dims = {}
            for d, n in enumerate(t.shape):
                if n > 1 and any(s[i][d] != n for s in self.shapes):
                    dims[d] = torch.export.Dim.AUTO
            named.append(dims)
        return named if any(named) else None


def all_named(tensors: Sequence[torch.Tensor]) -> list[dict[int, Any]]:
    auto = torch.export.Dim.AUTO
    return [{d: auto for d, n in enumerate(t.shape) if n > 1} for t in tensors]


class Function:
    """A callable over torch tensors that runs as a program, differentiable `order` times by torch.

    It is exported once for each combination of its tensors' dtypes and ranks, the values of its
    other arguments and the modules that train. Sizes that differ between calls get names. Whatever
    else the function reads is what it was then; parameters and buffers are read at each call.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        order: int = 2,
        dynamic: Any = None,
        owner: nn.Module | None = None,  # whose parameters f reads; None: what f itself says
    ) -> None:
        if order < 0:
            raise Error(f"the order must be 0 or more, not {order}")
        self.function = f
        self.order = order
        self.dynamic = dynamic
        self._given_owner = owner
        self._start()
        if not isinstance(f, nn.Module):
            functools.update_wrapper(self, f)

    def _start(self) -> None:
        self._lock = threading.RLock()
        self._families: dict[Any, Family] = {}
        self._known: dict[Any, Variant] = {}
        self._owner = self._given_owner or owner_of(self.function)
        self._traced = Traced(self.function, self._owner)
        self._reader = Reader(self._traced)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_exporting() and not exports.run_elsewhere():
            return self.function(*args, **kwargs)
        tensors, key, structure = self._key(args, kwargs)
        variant = self._known.get(key)
        if variant is None:
            variant = self._find(key, tensors, structure, args, kwargs)
        try:
            return variant(tensors)
        except Error:
            if not self._is_stale(variant):
                raise
        with self._lock:
            self._families.clear()
            self._known.clear()
        return self.variant(*args, **kwargs)(tensors)

    def variant(self, *args: Any, **kwargs: Any) -> Variant:
        """The program for arguments like these."""
        tensors, key, structure = self._key(args, kwargs)
        known = self._known.get(key)
        return known or self._find(key, tensors, structure, args, kwargs)

    def _key(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[torch.Tensor], Any, Structure | None]:
        tensors: list[torch.Tensor]
        structure: Structure | None = None
        base: Any
        if not kwargs and all([isinstance(a, torch.Tensor) for a in args]):
            tensors, base = list(args), len(args)
        else:
            tensors = []
            base = read((args, kwargs), tensors)
            if base is None:
                tensors, structure = flatten((args, kwargs))
                base = check_hashable(structure, repr(self))
        training = None if self._owner is None else self._owner.training
        kind = base, self._reader.modes(), training, _ambient()
        return tensors, (kind, tuple([(t.shape, t.dtype) for t in tensors])), structure

    def _find(
        self,
        key: Any,
        tensors: Sequence[torch.Tensor],
        structure: Structure | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Variant:
        with self._lock:
            kind = key[0]
            if None in kind[1]:
                self._start()  # a submodule was replaced
                kind = (kind[0], self._reader.modes(), *kind[2:])
                key = kind, key[1]
            family_key = kind, tuple((t.dtype, t.dim()) for t in tensors)
            family = self._families.setdefault(family_key, Family())
            variant = family.find(tensors)
            if variant is None:
                structure = structure or flatten((args, kwargs))[1]
                variant = self._make(family, tensors, structure, args, kwargs)
                family.variants.append(variant)
                family.shapes.append([tuple(t.shape) for t in tensors])
                if len(family.variants) == _many:
                    warnings.warn(
                        f"{self!r} was exported {_many} times for sizes that differ; say which "
                        "ones may, by dynamic="
                    )
            if len(self._known) > 4096:
                self._known.clear()
            self._known[key] = variant
            return variant

    def _make(
        self,
        family: Family,
        tensors: Sequence[torch.Tensor],
        structure: Structure,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Variant:
        if self.dynamic is None:
            dynamic: Any = family.named_sizes(tensors)
        elif self.dynamic is True:
            dynamic = all_named(tensors)
        elif self.dynamic is False:
            dynamic = None
        else:
            dynamic = self.dynamic
        f = self.function
        names = names_of(f.forward if isinstance(f, nn.Module) else f, args, kwargs)
        traced = self._traced
        traced.training = traced.training if self._owner is None else self._owner.training
        imported = import_function(traced, f, structure, names, tensors, dynamic, self.order)
        if _may_differentiate(tensors) or _may_differentiate(traced.parameters()):
            try:
                imported.program.differentiate(self.order)  # what has no derivative is refused now
            except Error as e:
                raise NotExported(str(e)) from e
        return Variant(imported, self._reader, self.order)

    def _is_stale(self, variant: Variant) -> bool:
        """Whether parameters have other dtypes or sizes than those that were exported."""
        inputs = variant.imported.program.inputs()
        stored = variant.real_stored()
        for (_, type_), t in zip(inputs[len(inputs) - len(stored) :], stored):
            dtype = str(t.dtype).removeprefix("torch.")
            if _dtypes.get(dtype) != type_.dtype.name or tuple(type_.shape) != tuple(t.shape):
                return True
        return False

    def program(self, *args: Any, **kwargs: Any) -> Program:
        """Stage 0 for arguments like these, to be printed or differentiated."""
        return self.variant(*args, **kwargs).imported.program

    def __repr__(self) -> str:
        f = self.function
        name = type(f).__name__ if isinstance(f, nn.Module) else getattr(f, "__name__", repr(f))
        return f"gradus.torch.function({name}, order={self.order})"

    def __getstate__(self) -> Any:
        names = ("function", "order", "dynamic", "_given_owner")
        return {n: self.__dict__[n] for n in names}

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)
        self._start()


_dtypes = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint64": "u64",
    "uint32": "u32",
    "uint16": "u16",
    "uint8": "u8",
    "bool": "boolean",
}


def _may_differentiate(tensors: Iterable[torch.Tensor]) -> bool:
    if torch._C._are_functorch_transforms_active():
        return True
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def _ambient() -> Any:
    """What of torch's state decides what a function means."""
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        raise NotExported(
            "torch.export does not see what torch.autocast does; call the function outside of it, "
            "and give the module the dtype that it is to compute in"
        )
    return torch.get_default_dtype()


class Module(nn.Module):
    """A module that runs as a program. Its parameters, buffers, submodules and state_dict are those
    of the module that it was made of."""

    def __init__(self, module: nn.Module, order: int = 2, dynamic: Any = None) -> None:
        super().__init__()
        self._adopt(module)
        self.__dict__["compiled"] = Function(module, order, dynamic)

    def _adopt(self, module: nn.Module) -> None:
        self.__dict__["module"] = module
        for name in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            self.__dict__[name] = module.__dict__[name]

    @property
    def training(self) -> bool:
        return self.__dict__["module"].training if "module" in self.__dict__ else True

    @training.setter
    def training(self, mode: bool) -> None:
        if "module" in self.__dict__:
            self.__dict__["module"].training = mode

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__["compiled"](*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "module" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["module"], name)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__["module"].state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__["module"].load_state_dict(*args, **kwargs)

    def train(self, mode: bool = True) -> Module:
        self.__dict__["module"].train(mode)
        return self

    def __repr__(self) -> str:
        compiled = self.__dict__["compiled"]
        return f"gradus.torch.Module(order={compiled.order})({self.__dict__['module']!r})"

    def __reduce__(self) -> Any:
        compiled = self.__dict__["compiled"]
        return Module, (self.__dict__["module"], compiled.order, compiled.dynamic)


def function(module_or_callable: Callable[..., Any], order: int = 2, dynamic: Any = None) -> Any:
    """The module or function as a program that torch differentiates up to `order` times.

    Of a module it gives a module, with the same parameters, buffers and state_dict; of a function a
    function. `dynamic` says which sizes have names, so that others need no new program: None those
    that have differed between calls, True all, False none, or torch.export's specification for each
    tensor in order. Past the order an Error says which one to ask for.
    """
    if isinstance(module_or_callable, nn.Module):
        return Module(module_or_callable, order, dynamic)
    return Function(module_or_callable, order, dynamic)


__all__ = ["Function", "Module", "NotExported", "function"]
