"""Derivatives of Python functions as programs, found again by what they are called with."""

from __future__ import annotations

import functools
import types
from typing import Any, Callable, NamedTuple, Sequence

from . import _gradus
from ._function import (
    Bound,
    Function,
    Recorded,
    arguments_of,
    bind_places,
    record_bound,
)
from ._gradus import CallCache, Code, LastUse, Program, StagedFunction, Tensor
from ._reads import Guard, guards_of
from ._trees import Place, flatten, unflatten, values_of, with_tensors
from .errors import Error


class Derived(NamedTuple):
    """A program of a derivative, for arguments like those that it was made for."""

    program: Program
    sources: list[int]  # of each input: which of the call's tensors it is, then of the constants
    constants: list[Tensor]
    structure: Any  # of the results


def lead_on(tensors: Sequence[Any], own: Sequence[Tensor] = ()) -> list[bool]:
    """Of each, whether somebody may differentiate it further: a recording, or by a tensor that it was
    made of and that is none of `own`, the points of a derivative. Where nothing is recorded, nobody
    may."""
    if not _gradus.is_recording():
        return [False] * len(tensors)
    if _gradus.is_tracing():
        return [True] * len(tensors)
    known = [x for x in tensors if isinstance(x, Tensor)]
    leads = iter(_gradus.leads_elsewhere(known, list(own)))
    return [isinstance(x, Tensor) and next(leads) for x in tensors]


class Derivative(CallCache):
    """What gives a derivative of a Python function over tensors.

    It runs as one compiled program for each combination of dtypes, shapes and other values that it is
    called with. As the function is written it runs where a program would not do: within a recording,
    of which it becomes a part; where a tensor requires gradients, which it then leads on to; and where
    the function reads something that could change unnoticed (a list, an object, an array), is called
    with such an object, or decides by values, unless that is a `gradus.function`.
    """

    _most = 256

    def __init__(self, function: Callable[..., Any], plain: Callable[..., Any]) -> None:
        super().__init__()
        functools.update_wrapper(self, plain)  # first: it takes over what a function has of its own
        self.function = function
        self._plain = plain
        self._known = 0
        self._changed()

    def _changed(self) -> None:
        guards = guards_of(self.function)
        self.direct = guards is None
        self.set_guards(guards or [], Place)

    def _prepare(self, args: Any, kwargs: Any, tensors: list[Tensor]) -> Any:
        """See CallCache."""
        if _gradus.is_recording() and any(x.requires_grad for x in tensors):
            return None
        guards = self._guards(values_of(flatten((args, kwargs))[1]))
        if guards is None:
            return False
        made = self._derive(args, kwargs, tensors)
        if made is None:
            return None
        self._known += 1
        if self._known > self._most:  # whoever changes sizes at every call
            self._known = 1
            self.forget()
        staged = StagedFunction(self._compiled(made.program))
        return staged, LastUse(), made.sources, made.constants, made.structure, guards

    def _guards(self, values: list[Any]) -> list[Guard] | None:
        """What has to be as it is for arguments with these values; see guards_of."""
        if isinstance(self.function, Function):  # what it is called with are constants
            return []
        return guards_of(self.function, *values)

    def _with_tensors(self, args: Any) -> tuple[Any, ...]:
        """The arguments with tensors for floats where `floats` has it so."""
        places = {n % len(args) for n in self.floats if -len(args) <= n < len(args)}
        return tuple(with_tensors(a, (float,)) if i in places else a for i, a in enumerate(args))

    def _once(self, made: Derived, tensors: list[Tensor]) -> Any:
        """Runs a program that is not kept. Where somebody may differentiate further, its operators
        become a part of what is recorded."""
        both = [*tensors, *made.constants]
        given = [both[i] for i in made.sources]
        if _gradus.is_tracing() or any(lead_on(given)):
            return unflatten(made.structure, _gradus.play(made.program, given))
        results = _gradus.State(self._compiled(made.program), "off").run(*given)
        return unflatten(made.structure, list(results))

    def _compiled(self, program: Program) -> Code:
        """As the function that is differentiated wants it."""
        fast = isinstance(self.function, Function) and self.function.fast_functions
        return program.compile(fast_functions=fast)

    def _derive(self, args: Any, kwargs: Any, tensors: list[Tensor]) -> Derived | None:
        raise NotImplementedError

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)


class RecordedDerivative(Derivative):
    """One that a recording of the plain function holds: gradients, which the engine gives there."""

    def __init__(
        self, function: Callable[..., Any], plain: Callable[..., Any], floats: tuple[int, ...]
    ) -> None:
        super().__init__(function, plain)
        self.floats = list(floats)

    def _derive(self, args: Any, kwargs: Any, tensors: list[Tensor]) -> Derived | None:
        _, (places, named) = flatten((self._with_tensors(args), kwargs))
        bound = bind_places(self._plain, places, named, len(tensors))
        # The recording has defaults and arguments by name among those by place: a number that counts
        # from the end is another one there.
        by_place, _ = arguments_of(self._plain, bound.arguments)
        if any(n < 0 for n in self.floats) and len(by_place) != len(args):
            return None
        try:
            recorded = record_bound(self._plain, bound, tensors)
        except Error:
            return None  # the function itself says why, or decides by values
        return Derived(recorded.program, bound.sources, bound.constants, recorded.structure)


def recorded_with(
    f: Callable[..., Any],
    places: Any,
    tensors: list[Tensor],
    apart: bool = False,
    captures: bool = False,
) -> tuple[Recorded, Bound]:
    """The function as a program, for arguments in which places stand for these tensors; see
    record_bound. What it captures is among the constants. Numbers that it gives are tensors."""
    plain = f.function if isinstance(f, Function) else f
    bound = bind_places(plain, places, {}, len(tensors))
    numbers = functools.wraps(plain)(lambda *args, **kwargs: with_tensors(plain(*args, **kwargs)))
    recorded = record_bound(numbers, bound, tensors, apart, captures)
    first = len(tensors) + len(bound.constants)
    sources = [*bound.sources, *range(first, first + len(recorded.captured))]
    return recorded, bound._replace(sources=sources, constants=bound.constants + recorded.captured)


def kept_for(f: Callable[..., Any], kind: Any, make: Callable[[], Any]) -> Any:
    """What `make` gives, kept with the function for as long as that lives."""
    if not isinstance(f, (types.FunctionType, CallCache)):
        return make()  # methods and the like are made anew at each look
    kept = f.__dict__.get("_gradus_kept")
    if kept is None or kept["of"] is not f:  # wrappers take over what they find there
        kept = f.__dict__["_gradus_kept"] = {"of": f}
    made = kept.get(kind)
    if made is None:
        made = kept[kind] = make()
    return made
