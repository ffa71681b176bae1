"""Loops and branches of Python functions: one instruction each of what is recorded."""

from __future__ import annotations

import operator
import re
from typing import Any, Callable, NamedTuple, Sequence, TypeVar, Union

from . import _gradus
from ._display import without_values
from ._function import _is_floating, _name_of, distinct
from ._gradus import Tensor, TracedBody, Type
from ._tensors import _cast, zeros
from ._trees import Place, flatten, is_leaf_tensor, is_number, kind_of, matched, unflatten, with_tensors
from .errors import Error

C = TypeVar("C")
Leaves = list[tuple[str, Any]]
Checkpoint = Union[int, Sequence[int]]


# ---- Trees ----


def _flat_tensors(tree: Any, name: str) -> tuple[list[str], list[Tensor], Any]:
    """The names and tensors of a tree in which numbers are tensors, and its structure."""
    leaves, structure = flatten(with_tensors(tree), name)
    tensors = [x if isinstance(x, Tensor) else _gradus.as_tensor(x) for _, x in leaves]
    return [n for n, _ in leaves], tensors, structure


def type_of(x: Tensor) -> Type:
    return Type(x.dtype, x.shape)


def as_type(given: Any, type: Type) -> Tensor:
    """A tensor; a number takes the dtype, if that can hold its kind."""
    if not is_number(given):
        return given if isinstance(given, Tensor) else _gradus.as_tensor(given)
    made = _gradus.as_tensor(given)
    fits = type.is_floating or (isinstance(given, int) and str(type.dtype.name) != "boolean")
    return _cast(made, type.dtype) if fits and not isinstance(given, bool) else made


def _leaves_as(structure: Any, types: list[Type], given: Any, name: str, differ: str) -> list[Tensor]:
    """The tensors of a tree that has to be like another one, in the order of that one. `differ` says
    what is wrong otherwise, of the leaf's name, what was expected, and what is there."""

    def other(at: str, expected: Any, there: Any) -> Error:
        return Error(differ.format(at, kind_of(expected), kind_of(there)))

    found: list[Tensor] = []
    for at, leaf, g in matched(structure, given, name, other):
        if not isinstance(leaf, Place):
            if is_leaf_tensor(g) or leaf != g:
                raise other(at, leaf, g)
            continue
        if not is_leaf_tensor(g) and not is_number(g):
            raise other(at, leaf, g)
        x = as_type(g, types[leaf.index])
        if type_of(x) != types[leaf.index]:
            raise Error(differ.format(at, types[leaf.index], type_of(x)))
        found.append(x)
    return found


# ---- Bodies ----


class _Recorded(NamedTuple):
    body: TracedBody
    structure: Any  # of what the function gives beside the carries


def _record(
    f: Callable[..., Any], call: Callable[[list[Tensor]], tuple[list[Tensor], Any]],
    types: list[Type], names: list[str], name: str,
) -> _Recorded:
    """`call` gives tensors and a structure for what `f` is called with."""
    structure: Any = None

    def run(inputs: list[Tensor]) -> list[Tensor]:
        nonlocal structure
        tensors, structure = call(inputs)
        return tensors

    unique = distinct([re.sub(r"[^\w.]", "_", n) for n in names])
    own = _name_of(f)
    body = _gradus.record_body(run, types, name if own in ("_lambda_", "traced") else own, unique)
    return _Recorded(body, structure)


def _slice_type(name: str, x: Tensor) -> Type:
    return Type(x.dtype, x.shape[1:])


def _steps(names: list[str], sequences: list[Tensor], length: int | None, what: str) -> int:
    steps = None if length is None else operator.index(length)
    for name, x in zip(names, sequences):
        if x.ndim == 0:
            raise Error(f"{what}: '{name}' is {type_of(x)}; a sequence has a first dimension")
        if steps is None:
            steps = int(x.shape[0])
        elif x.shape[0] != steps:
            other = "the length" if length is not None else f"'{names[0]}'"
            raise Error(f"{what}: '{name}' has {x.shape[0]} slices, {other} says {steps} steps")
    if steps is None:
        raise Error(f"{what}: without xs, `length` says how many steps it takes")
    if steps < 0:
        raise Error(f"{what}: the length is {steps}, which is negative")
    return steps


def _segments(checkpoint: Checkpoint, what: str) -> list[int]:
    """The lengths of segments, outermost first."""
    try:
        lengths = [operator.index(n) for n in ([checkpoint] if hasattr(checkpoint, "__index__") else checkpoint)]
    except TypeError:
        raise Error(f"{what}: checkpoint is {checkpoint!r}; it has to be an integer or some") from None
    if any(n < 1 for n in lengths) or any(b >= a for a, b in zip(lengths, lengths[1:])):
        raise Error(f"{what}: checkpoint is {checkpoint!r}; lengths are positive, and each less than before")
    return lengths


class _Scan:
    """A scan, recorded or run step by step."""

    def __init__(
        self, f: Callable[[Any, Any], Any], init: Any, xs: Any, length: int | None, what: str = "scan",
        checkpoint: Checkpoint = (),
    ) -> None:
        self.f = f
        self.what = what
        self.checkpoint = _segments(checkpoint, what)
        self.names, self.carries, self.structure = _flat_tensors(init, "carry")
        self.types = [type_of(x) for x in self.carries]
        leaves, self.slices = flatten(xs, "x")
        self.sequence_names = [n for n, _ in leaves]
        self.sequences = [x if isinstance(x, Tensor) else _gradus.as_tensor(x) for _, x in leaves]
        self.steps = _steps(self.sequence_names, self.sequences, length, what)

    def step(self, carries: list[Tensor], slices: list[Tensor]) -> tuple[list[Tensor], Any]:
        """The next carries and the step's results, and these ones' structure."""
        given = self.f(unflatten(self.structure, carries), unflatten(self.slices, slices))
        if not isinstance(given, tuple) or len(given) != 2:
            raise Error(f"{self.what}: a step gives (carry, y), not {without_values(given)}")
        following = _leaves_as(
            self.structure, self.types, given[0], "carry",
            self.what + ": '{}' is {}, and the step gives {}; a carry keeps its structure and its types",
        )
        _, ys, structure = _flat_tensors(given[1], "y")
        return following + ys, structure

    def recorded(self) -> _Recorded:
        n = len(self.carries)
        types = self.types + [_slice_type(*x) for x in zip(self.sequence_names, self.sequences)]
        names = self.names + self.sequence_names
        return _record(self.f, lambda given: self.step(given[:n], given[n:]), types, names, "step")

    def run(self, reverse: bool) -> tuple[Any, Any]:
        if _gradus.is_tracing():
            out, structure = self._run_recorded(reverse)
        elif self.steps == 0:
            body, structure = self.recorded()
            stacks = body.results[len(self.carries) :]
            out = self.carries + [zeros([0, *t.shape], t.dtype) for t in stacks]
        else:
            out, structure = self._run_steps(reverse)
        n = len(self.carries)
        return unflatten(self.structure, out[:n]), unflatten(structure, out[n:])

    def _run_recorded(self, reverse: bool) -> tuple[list[Tensor], Any]:
        body, structure = self.recorded()
        if not body.results:
            return [], structure
        length = None if self.sequences else self.steps
        out = _gradus.scan_body(body, self.carries, self.sequences, length, reverse, self.checkpoint)
        return out, structure

    def _run_steps(self, reverse: bool) -> tuple[list[Tensor], Any]:
        n, carries = len(self.carries), self.carries
        rows: list[list[Tensor]] = []
        structure: Any = None
        for t in reversed(range(self.steps)) if reverse else range(self.steps):
            out, structure = self.step(carries, [x[t] for x in self.sequences])
            carries = out[:n]
            rows.append(out[n:])
        if reverse:
            rows.reverse()
        stacks = [_gradus.apply("stack", list(column), {"dim": 0})[0] for column in zip(*rows)]
        return carries + stacks, structure


# ---- What is called ----


def scan(
    f: Callable[[C, Any], tuple[C, Any]],
    init: C,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    checkpoint: Checkpoint = (),
) -> tuple[C, Any]:
    """Runs `carry, y = f(carry, x)` for each slice x of `xs` along its first dimension; gives the last
    carry, and the ys along a new first dimension.

    `init`, `xs` and what a step gives are tensors, or tuples, lists and dicts of them; numbers in
    `init` are 0-d tensors. All of `xs` have as many slices; without any, `length` says how many steps
    there are, and x is None. With `reverse` the last slice comes first, and each y stands at its
    slice's place. A carry keeps its dtype and shape: an Error names the one that does not.

    In what is recorded (`gradus.function`, `grad`, `jvp`, …) it is one instruction, whose body is
    recorded once: the program does not grow with the number of steps, and its derivatives are such
    loops too. The step may read any tensor beside its arguments, and they have gradients. Elsewhere
    it runs step by step.

    A derivative keeps what it reads of every step. With `checkpoint=k` it keeps the carries before
    every k-th step, and takes the k steps again when it comes to them: memory for T / k + k steps in
    place of T, the same bits. `[1000, 30]`: segments of 1,000 steps, and of 30 within those.
    """
    return _Scan(f, init, xs, length, checkpoint=checkpoint).run(reverse)


def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """What `f` gives for each slice of `xs` along its first dimension, along a new first dimension: a
    scan without a carry."""
    loop = _Scan(lambda carry, x: (carry, f(x)), (), xs, None, "map")
    return loop.run(False)[1]


def _predicate(given: Any, what: str) -> Tensor | bool:
    if isinstance(given, bool) or not is_leaf_tensor(given):
        return bool(given)
    p = given if isinstance(given, Tensor) else _gradus.as_tensor(given)
    if str(p.dtype.name) != "boolean" or p.ndim != 0:
        raise Error(f"{what} is {type_of(p)}; it has to be bool[]")
    return p


def cond(
    predicate: Any,
    true_fun: Callable[..., Any],
    false_fun: Callable[..., Any],
    *operands: Any,
) -> Any:
    """`true_fun(*operands)` where the predicate (a 0-d bool) holds, else `false_fun(*operands)`.

    In what is recorded both are recorded, as graphs of one instruction that runs the one and not the
    other: they have to give the same structure, of the same dtypes and shapes. A bool of Python's
    chooses at once. The functions may read any tensor beside their arguments.
    """
    p = _predicate(predicate, "cond: the predicate")
    if isinstance(p, bool) or not _gradus.is_tracing():
        return (true_fun if bool(p) else false_fun)(*operands)
    leaves, structure = flatten(operands, "x")
    tensors = [x if isinstance(x, Tensor) else _gradus.as_tensor(x) for _, x in leaves]
    types, names = [type_of(x) for x in tensors], [n for n, _ in leaves]

    def then(given: list[Tensor]) -> tuple[list[Tensor], Any]:
        _, out, result = _flat_tensors(true_fun(*unflatten(structure, given)), "result")
        return out, result

    first = _record(true_fun, then, types, names, "then")

    def otherwise(given: list[Tensor]) -> tuple[list[Tensor], Any]:
        out = _leaves_as(
            first.structure, first.body.results, false_fun(*unflatten(structure, given)), "result",
            "cond: '{}' is {} where the predicate holds, and {} where not",
        )
        return out, first.structure

    second = _record(false_fun, otherwise, types, names, "otherwise")
    if not first.body.results:
        return first.structure
    return unflatten(first.structure, _gradus.cond_bodies(p, first.body, second.body, tensors))


def fori_loop(
    lower: Any, upper: Any, body: Callable[[Tensor, C], C], init: C, checkpoint: Checkpoint = ()
) -> C:
    """Runs `carry = body(i, carry)` for i = lower, …, upper - 1, a 0-d i64 tensor; gives the last
    carry. See scan for what carries may be, and for `checkpoint`. Where the bounds are tensors of what
    is recorded, it is a while_loop."""
    if _gradus.is_tracing() and any(isinstance(b, Tensor) for b in (lower, upper)):
        return _fori_by_while(lower, upper, body, init, checkpoint)
    first, end = _bound(lower, "lower"), _bound(upper, "upper")
    places = _gradus.apply("arange", [], {"start": first, "end": max(first, end)})[0]
    step = lambda carry, i: (body(i, carry), None)  # noqa: E731
    step.__name__ = _name_of(body)
    return _Scan(step, init, places, None, "fori_loop", checkpoint).run(False)[0]


def _bound(given: Any, name: str) -> int:
    if isinstance(given, Tensor):
        given = given.item()
    try:
        return operator.index(given)
    except TypeError:
        raise Error(f"fori_loop: '{name}' is {given!r}; it has to be an integer") from None


def _integer(given: Any, name: str) -> Tensor:
    """A bound as an i64."""
    x = _gradus.as_tensor(given)
    if _is_floating(x):
        raise Error(f"fori_loop: '{name}' is {type_of(x)}; it has to be an integer")
    return _cast(x, _gradus.DType.i64)


def _fori_by_while(
    lower: Any, upper: Any, body: Callable[[Tensor, C], C], init: C, checkpoint: Checkpoint
) -> C:
    first, end = (_integer(b, name) for b, name in ((lower, "lower"), (upper, "upper")))
    return while_loop(
        lambda at: at[0] < end, lambda at: (at[0] + 1, body(at[0], at[1])), (first, init), checkpoint
    )[1]


def while_loop(
    cond_fun: Callable[[C], Any], body_fun: Callable[[C], C], init: C, checkpoint: Checkpoint = ()
) -> C:
    """Runs `carry = body_fun(carry)` for as long as `cond_fun(carry)`, a 0-d bool, holds; gives the
    last carry. See scan for what carries may be, what the functions may read, and `checkpoint`."""
    segments = _segments(checkpoint, "while_loop")
    names, carries, structure = _flat_tensors(init, "carry")
    types = [type_of(x) for x in carries]

    def holds(given: list[Tensor]) -> Tensor:
        p = _predicate(cond_fun(unflatten(structure, given)), "while_loop: the condition")
        return _gradus.as_tensor(p)

    def step(given: list[Tensor]) -> list[Tensor]:
        differ = "while_loop: '{}' is {}, and the step gives {}; a carry keeps its structure and its types"
        return _leaves_as(structure, types, body_fun(unflatten(structure, given)), "carry", differ)

    if _gradus.is_tracing():
        if not carries:
            raise Error("while_loop: without a tensor as a carry, its end is not to be recorded")
        condition = _record(cond_fun, lambda given: ([holds(given)], None), types, names, "condition")
        body = _record(body_fun, lambda given: (step(given), None), types, names, "step")
        carries = _gradus.while_bodies(condition.body, body.body, carries, segments)
    else:
        while bool(holds(carries)):
            carries = step(carries)
    return unflatten(structure, carries)
