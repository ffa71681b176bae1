"""Python functions recorded as programs."""

from __future__ import annotations

import functools
import inspect
import re
import threading
import types
from typing import TYPE_CHECKING, Any, Callable, Generic, NamedTuple, TypeVar, overload

from . import _gradus
from ._display import function_html, function_text
from ._gradus import CallCache, LastUse, Program, StagedFunction, Tensor
from ._trees import Place, flatten, key_of, unflatten
from .errors import Error

R = TypeVar("R")


class Recorded(NamedTuple):
    """A function as a program of one stage, for arguments like those that it was recorded with."""

    program: Program
    names: list[str]  # of the tensors among the arguments, which are the program's inputs
    structure: Any  # of what the function returns
    captured: list[Tensor]  # for the program's last inputs, which have no names


class Bound(NamedTuple):
    """A call's arguments as the function takes them; numbers stand for tensors."""

    arguments: dict[str, Any]  # with a Place for each of the program's inputs
    names: list[str]  # of the inputs
    sources: list[int]  # of each input: which of the call's tensors it is, then of the constants
    constants: list[Tensor]  # arrays that are defaults


def _tensors(leaves: list[tuple[str, Any]]) -> list[Tensor]:
    return [x if isinstance(x, Tensor) else _gradus.as_tensor(x) for _, x in leaves]


def _is_floating(x: Tensor) -> bool:
    return str(x.dtype.name) in ("f64", "f32", "f16", "bf16")


def _bind(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name. What a function takes by `*xs` or `**xs` is one tuple or dict."""
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):
        return {**{f"x{i}": a for i, a in enumerate(args)}, **kwargs}
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _name_of(f: Callable[..., Any]) -> str:
    name = re.sub(r"\W", "_", getattr(f, "__name__", "traced"))
    return name if re.match(r"[A-Za-z_]", name) else "_" + name


def bind_places(f: Callable[..., Any], args: Any, kwargs: Any, given: int) -> Bound:
    """The arguments of a call in which places stand for its tensors, so many of them."""
    return bind_arguments(_bind(f, args, kwargs), given)


def distinct(names: list[str]) -> list[str]:
    unique: dict[str, None] = {}
    for n in names:
        while n in unique:
            n += "_"
        unique[n] = None
    return list(unique)


def bind_arguments(arguments_by_name: dict[str, Any], given: int) -> Bound:
    """The same for arguments that stand by their names."""
    leaves, arguments = flatten(arguments_by_name)
    names = [re.sub(r"[^\w.]", "_", n) for n, _ in leaves]
    names = distinct([n if re.match(r"[A-Za-z_]", n) else "x" + n for n in names])
    sources: list[int] = []
    constants: list[Tensor] = []
    for _, leaf in leaves:
        if isinstance(leaf, Place):
            sources.append(leaf.index)
        else:
            sources.append(given + len(constants))
            constants += _tensors([("", leaf)])
    return Bound(arguments, names, sources, constants)


def record_bound(
    f: Callable[..., Any],
    bound: Bound,
    tensors: list[Tensor],
    apart: bool = False,
    captures: bool = False,
) -> Recorded:
    """Runs `f` once, and records what it does with the call's tensors. A recording around it is told
    of none of that where this one is `apart`; otherwise it refuses it. With `captures`, what else `f`
    reads that requires gradients is an input of the program too; otherwise it is an Error."""
    result: Any = None

    def call(inputs: list[Tensor]) -> list[Tensor]:
        nonlocal result
        out, result = flatten(_call_bound(f, unflatten(bound.arguments, inputs)))
        if not out:
            raise Error(f"'{_name_of(f)}' gives no tensor: there is nothing to record")
        return _tensors(out)

    # All floating arguments require gradients while `f` runs: what it differentiates itself stays
    # connected with them.
    inputs = []
    for x in inputs_of(bound, tensors):
        x = x.detach()
        if _is_floating(x):
            x.requires_grad = True
        inputs.append(x)
    program, captured = _gradus.record(call, inputs, _name_of(f), bound.names, 0, apart, captures)
    return Recorded(program, bound.names, result, captured)


def inputs_of(bound: Bound, tensors: list[Tensor]) -> list[Tensor]:
    """The program's inputs for a call's tensors."""
    both = [*tensors, *bound.constants]
    return [both[i] for i in bound.sources]


def record(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Recorded:
    """Runs `f` once, and records what it does with the tensors among its arguments."""
    leaves, (places, named) = flatten((args, kwargs))
    return record_bound(f, bind_places(f, places, named, len(leaves)), _tensors(leaves))


def _call_bound(f: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    args, kwargs = arguments_of(f, arguments)
    return f(*args, **kwargs)


def arguments_of(
    f: Callable[..., Any], arguments: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Those that stand by their names as a call has them: by place, and by name."""
    try:
        parameters = inspect.signature(f).parameters
    except (TypeError, ValueError):
        return list(arguments.values()), {}
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, value in arguments.items():
        kind = parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            args.extend(value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            kwargs.update(value)
        elif kind is inspect.Parameter.KEYWORD_ONLY:
            kwargs[name] = value
        else:
            args.append(value)
    return args, kwargs


class _Known(NamedTuple):
    """A recorded function, ready to run: a program for each set of arguments that it was
    differentiated by, in each context."""

    recorded: Recorded
    arguments: dict[str, Any]  # with places, as Bound has them
    staged: dict[tuple[tuple[bool, ...], int], StagedFunction]
    used: LastUse


class _Recent:
    """What was asked for last, by key; what was used longest ago goes. For any number of threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[Any, _Known] = {}
        self._lock = threading.Lock()

    def get(self, key: Any) -> _Known | None:
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                known.used.touch()
            return known

    def put(self, key: Any, recorded: Recorded, arguments: Any) -> tuple[_Known, bool]:
        """What is there by then: another thread may have been faster. And whether others went."""
        gone = []  # their ends may run anything, and do so without the lock
        with self._lock:
            known = self._known.setdefault(key, _Known(recorded, arguments, {}, LastUse()))
            known.used.touch()
            while len(self._known) > self._most:
                oldest = min(self._known, key=lambda k: self._known[k].used.time)
                gone.append(self._known.pop(oldest))
        return known, bool(gone)

    def all(self) -> list[_Known]:
        """Those that are kept, what was used last at the end."""
        with self._lock:
            return sorted(self._known.values(), key=lambda k: k.used.time)


if TYPE_CHECKING:

    class _Base(CallCache, Generic[R]): ...

else:  # a class of nanobind's is the only base that one derived from it has
    _Base = {R: CallCache}


class Function(_Base[R]):
    """A Python function over tensors that runs as a program.

    It is recorded once for each combination of its tensors' dtypes, shapes and requires_grad, and of
    the values of its other arguments; then the program runs in its place. Whatever else the function
    reads is what it was when it was recorded. The result can be differentiated `order` times. Within
    another function that is being recorded it is part of that one. The `most_programs` recordings
    that were called last are kept. With `fast_functions`, exp, tanh, sigmoid and silu are computed
    within 4 ulp of f32 in place of 1, in its derivatives, too; f64 does not change.
    """

    _most_staged = 64  # of one recording

    def __init__(
        self,
        f: Callable[..., R],
        order: int = 1,
        most_programs: int = 256,
        fast_functions: bool = False,
    ) -> None:
        super().__init__()
        if order < 0:
            raise Error(f"the order must be 0 or more, not {order}")
        if most_programs < 1:
            raise Error(f"most_programs must be 1 or more, not {most_programs}")
        functools.update_wrapper(self, f)  # first: it takes over what a function has of its own
        self.function = self._plain = f
        self.order = order
        self.fast_functions = fast_functions
        self._recent = _Recent(most_programs)
        self.set_guards([], Place)

    if TYPE_CHECKING:  # CallCache's is compiled, and finds the program by what it is called with

        def __call__(self, *args: Any, **kwargs: Any) -> R: ...

    else:
        __class_getitem__ = classmethod(types.GenericAlias)

    def _prepare(self, args: Any, kwargs: Any, tensors: list[Tensor]) -> Any:
        """What runs for arguments like these from now on; see CallCache."""
        known, bound = self._find(args, kwargs, tensors)
        inputs = inputs_of(bound, tensors)
        recording = _gradus.is_recording()
        wrt = tuple(recording and x.requires_grad for x in inputs)
        key = wrt, _gradus.current_context_id()  # which the staged function keeps alive
        staged = known.staged.get(key)
        if staged is None:
            program = self._differentiated(known.recorded, wrt)
            while len(known.staged) >= self._most_staged:  # contexts come and go
                known.staged.pop(next(iter(known.staged), key), None)
                self.forget()
            code = program.compile(fast_functions=self.fast_functions)
            staged = known.staged.setdefault(key, StagedFunction(code))
        return staged, known.used, bound.sources, bound.constants, known.recorded.structure, []

    def _differentiated(self, recorded: Recorded, wrt: tuple[bool, ...]) -> Program:
        names = [n for n, w in zip(recorded.names, wrt) if w]
        return recorded.program.differentiate(self.order, names) if names else recorded.program

    def recordings(self) -> list[_Known]:
        """What is kept for each signature, that of the last call at the end."""
        return self._recent.all()

    def staged_program(self, known: _Known) -> Program:
        """What was compiled last for this signature."""
        wrt, _ = next(reversed(list(known.staged)), ((), None))
        return self._differentiated(known.recorded, wrt)

    def record(self, *args: Any, **kwargs: Any) -> Recorded:
        """The program of one stage for arguments like these."""
        leaves, _ = flatten((args, kwargs))
        return self._find(args, kwargs, _tensors(leaves))[0].recorded

    def record_bound(self, *args: Any, **kwargs: Any) -> tuple[Recorded, Bound]:
        """The same, and which argument is which of the program's inputs."""
        leaves, _ = flatten((args, kwargs))
        known, bound = self._find(args, kwargs, _tensors(leaves))
        return known.recorded, bound

    def _find(self, args: Any, kwargs: Any, tensors: list[Tensor]) -> tuple[_Known, Bound]:
        _, (places, named) = flatten((args, kwargs))
        bound = bind_places(self.function, places, named, len(tensors))
        key = self._key(bound.arguments, inputs_of(bound, tensors))
        known = self._recent.get(key)
        if known is None:
            recorded = record_bound(self.function, bound, tensors)
            known, others_went = self._recent.put(key, recorded, bound.arguments)
            if others_went:
                self.forget()
        return known, bound

    def program(self, *args: Any, order: int | None = None, **kwargs: Any) -> Program:
        """The staged program for arguments like these, with derivatives by all floating ones: to be
        printed, or run stage by stage."""
        one = self.record(*args, **kwargs).program
        order = self.order if order is None else order
        return one.differentiate(order) if order else one

    def __repr__(self) -> str:
        return function_text(self)

    def _repr_html_(self) -> str:
        return function_html(self)

    def _key(self, structure: Any, tensors: list[Tensor]) -> Any:
        try:
            static = key_of(structure)
        except TypeError as e:
            raise Error(
                f"'{_name_of(self.function)}': arguments that are no tensors must have a hash, since "
                f"a program is recorded for their values: {e}"
            ) from None
        return static, tuple((x.dtype, x.shape) for x in tensors)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)


@overload
def function(f: Callable[..., R]) -> Function[R]: ...
@overload
def function(
    *, order: int = 1, most_programs: int = 256, fast_functions: bool = False
) -> Callable[[Callable[..., R]], Function[R]]: ...


def function(
    f: Any = None, *, order: int = 1, most_programs: int = 256, fast_functions: bool = False
) -> Any:
    """Makes a program of a Python function over tensors: `@gradus.function(order=2)`.

    See Function. Arguments and results may be tuples, lists and dicts of tensors.
    """
    if f is None:
        return lambda g: Function(g, order, most_programs, fast_functions)
    return Function(f, order, most_programs, fast_functions)


def trace(f: Callable[..., Any], *args: Any, order: int = 0, **kwargs: Any) -> Program:
    """The program of what `f` does with these arguments, with derivatives up to `order`.

    A Type stands for a tensor of it, and may have names for sizes: `trace(f, Type("f32", [Dim("N"),
    3]))`. Such a program runs for all sizes; `f` is run for several, and must do the same for each.
    """
    from ._named_sizes import has_types, record_named

    plain = f.function if isinstance(f, Function) else f
    if has_types((args, kwargs)):
        program = record_named(lambda a, k: record(plain, a, k).program, args, kwargs)
    else:
        recorded = f.record(*args, **kwargs) if isinstance(f, Function) else record(f, args, kwargs)
        program = recorded.program
    return program.differentiate(order) if order else program
