"""Derivatives of Python functions along directions, and whole matrices of them."""

from __future__ import annotations

from typing import Any, Callable, Sequence

from . import _gradus
from ._derivative import Derivative, Derived, kept_for, lead_on, recorded_with
from ._display import without_values
from ._function import Recorded, _is_floating, _tensors
from ._gradus import Program, Tensor, Type
from ._loops import as_type, type_of
from ._tensors import zeros
from ._transforms import (
    argnums_of,
    arguments_at,
    check_points,
    detached,
    gradients,
    places_of,
    zeros_like,
)
from ._trees import (
    Place,
    flatten,
    is_leaf_tensor,
    is_number,
    kind_of,
    matched,
    places_alone,
    unflatten,
    with_tensors,
)
from .errors import Error


def _sequence(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (tuple, list)) else [x]


def _outputs(given: Any) -> tuple[list[Tensor], Any]:
    leaves, structure = flatten(with_tensors(given))
    return _tensors(leaves), structure


def _zeros_of(type: Type) -> Tensor:
    return zeros([int(str(n)) for n in type.shape], type.dtype)


def _chosen(program: Program, names: list[str]) -> tuple[Program, list[Any]]:
    """The program with these results alone, and what stands for each: the Place of one, or None for
    a structural zero."""
    types = dict(program.results())
    there = [n for n in names if types.get(n) is not None]
    if not there:  # a program gives something
        return program, [None] * len(names)
    return program.select_results(there), [Place(there.index(n)) if n in there else None for n in names]


# ---- Along tangents ----


def _directions(
    primals: Any, tangents: Any, tensors: list[Tensor], kind: str
) -> list[tuple[int, int]]:
    """Of each floating tensor of the primals, in trees with places: its number, and that of its
    tangent. Others have none: None, or integers."""
    if len(primals) != len(tangents):
        raise Error(f"{kind}: {len(primals)} arguments and {len(tangents)} tangents are given")

    def differ(at: str, x: Any, t: Any, advice: str = "") -> Error:
        x, t = (
            str(type_of(tensors[v.index])) if isinstance(v, Place)
            else f"the {type(v).__name__} {v}" if is_number(v) else kind_of(v)
            for v in (x, t)
        )
        return Error(f"{kind}: argument {at} is {x}, and its tangent {t}{advice}")

    pairs = []
    for n, (given, along) in enumerate(zip(primals, tangents)):
        for at, x, t in matched(given, along, str(n), differ):
            dx = tensors[t.index] if isinstance(t, Place) else None
            if isinstance(x, Place) and _is_floating(tensors[x.index]):
                if dx is None or type_of(dx) != type_of(tensors[x.index]):
                    raise differ(at, x, t, "; they must have one type")
                pairs.append((x.index, t.index))
                continue
            integer = isinstance(t, int) if dx is None else not _is_floating(dx)
            if t is not None and not (isinstance(x, Place) and integer):
                raise differ(at, x, t, "; it has no derivative, and None as its tangent")
    return pairs


class _Along(Derivative):
    """jvp or hvp of a function, of (primals, tangents)."""

    def __init__(self, f: Callable[..., Any], kind: str) -> None:
        super().__init__(f, self._run)
        self.kind = kind
        self.floats = [0, 1]

    def _run(self, primals: Any, tangents: Any) -> Any:
        """Where no program is kept: by gradients, of which a recording and whoever differentiates
        further know, or by a program for this call alone."""
        leaves, (places, along) = flatten(self._with_tensors((primals, tangents)))
        tensors = _tensors(leaves)
        if _gradus.is_tracing() or any(lead_on(tensors)):
            return _along_by_gradients(self.function, places, along, tensors, self.kind)
        return self._once(self._derived(places, along, tensors, captures=True), tensors)

    def _derive(self, args: Any, kwargs: Any, tensors: list[Tensor]) -> Derived:
        _, (places, along) = flatten(self._with_tensors(args))
        return self._derived(places, along, tensors)

    def _derived(
        self, primals: Any, tangents: Any, tensors: list[Tensor], captures: bool = False
    ) -> Derived:
        single = not isinstance(primals, (tuple, list))
        primals, tangents = tuple(_sequence(primals)), tuple(_sequence(tangents))
        for n, x in enumerate(primals):
            check_points(x, self.kind, n)
        pairs = _directions(primals, tangents, tensors, self.kind)
        recorded, bound = recorded_with(self.function, primals, tensors, captures=captures)
        name_of = {source: name for name, source in zip(recorded.names, bound.sources)}
        program = getattr(recorded.program, self.kind)([name_of[x] for x, _ in pairs])
        if self.kind == "jvp":
            program, structure = _pairs(program, recorded)
        else:
            leaves, structure = flatten(primals[0] if single else list(primals))
            names = [name_of[place.index] for _, place in leaves]
            program, found = self._products(program, recorded, names)
            structure = unflatten(structure, found)
        return Derived(program, bound.sources + [t for _, t in pairs], bound.constants, structure)

    def _products(
        self, program: Program, recorded: Recorded, names: list[str]
    ) -> tuple[Program, list[Any]]:
        types = dict(recorded.program.inputs())
        program, found = _chosen(program, [f"hvp_{n}" for n in names])
        return program, [
            p if p is not None else _zeros_of(types[n]) if types[n].is_floating else None
            for n, p in zip(names, found)
        ]


def _pairs(program: Program, recorded: Recorded) -> tuple[Program, Any]:
    """The program's results and their slopes, as what the function gives."""
    results = recorded.program.results()
    program, found = _chosen(
        program, [n for n, _ in results] + [f"t_{n}" for n, t in results if t and t.is_floating]
    )
    values, slopes = found[: len(results)], iter(found[len(results) :])
    along: list[Any] = []
    for _, type in results:
        slope = next(slopes) if type and type.is_floating else None
        along.append(_zeros_of(type) if slope is None and type.is_floating else slope)
    return program, (
        unflatten(recorded.structure, values),
        unflatten(places_alone(recorded.structure), along),
    )


def _along_by_gradients(f: Any, primals: Any, tangents: Any, tensors: list[Tensor], kind: str) -> Any:
    single = not isinstance(primals, (tuple, list))
    primals, tangents = _sequence(primals), _sequence(tangents)
    given = arguments_at([unflatten(x, tensors) for x in primals], range(len(primals)), kind, True)
    pairs = _directions(primals, tangents, tensors, kind)
    floating = [x for x in given.inputs if _is_floating(x)]
    along = [tensors[t] for _, t in pairs]
    with _gradus.recording():
        out, structure = _outputs(f(*given.args))
    leads = lead_on(out, given.inputs)
    again = any(leads) or any(lead_on(along))
    if kind == "hvp":
        slopes = _slopes_of_gradient(out, floating, along, again)
        found = iter(slopes)
        full = [next(found) if _is_floating(x) else None for x in given.inputs]
        trees = given.trees_of(full)
        return trees[0] if single else trees
    slopes = _slopes(out, floating, along, again)
    return unflatten(structure, detached(out, leads)), unflatten(places_alone(structure), slopes)


def _slopes_of_gradient(out: Any, by: Any, along: Any, again: bool) -> list[Tensor]:
    """The gradient's derivative along the tangents, which is that of its product with them."""
    if len(out) != 1 or out[0].ndim != 0:
        raise Error(f"hvp takes a function with one 0-d result, not {without_values(out)}; sum it, or use jacobian")
    found = gradients(out[0], by, create_graph=True) if by and out[0].requires_grad else [None] * len(by)
    pairs = [(g, t) for g, t in zip(found, along) if g is not None and g.requires_grad]
    second: list[Tensor | None] = [None] * len(by)
    if pairs:
        second = gradients([g for g, _ in pairs], by, [t for _, t in pairs], create_graph=again)
    return [h if h is not None else zeros_like(x) for h, x in zip(second, by)]


def _slopes(out: list[Tensor], by: Any, along: Any, again: bool) -> list[Tensor | None]:
    """Of each floating output: the backward is linear in its cotangents, and its derivative by them
    along the tangents is the forward derivative."""
    slopes: list[Tensor | None] = [zeros_like(y) if _is_floating(y) else None for y in out]
    led = [i for i, y in enumerate(out) if y.requires_grad]
    if not led or not by:
        return slopes
    seeds = []
    for i in led:
        seed = zeros_like(out[i])
        seed.requires_grad = True
        seeds.append(seed)
    back = gradients([out[i] for i in led], by, seeds, create_graph=True)
    pairs = [(g, t) for g, t in zip(back, along) if g is not None and g.requires_grad]
    if pairs:
        found = gradients([g for g, _ in pairs], seeds, [t for _, t in pairs], create_graph=again)
        for i, slope in zip(led, found):
            slopes[i] = slope if slope is not None else slopes[i]
    return slopes


def jvp(f: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """`(f(*primals), its derivative along the tangents)`, by forward mode.

    One argument may stand without a tuple around it; arguments may be trees, with tangents of the
    same structure: None for what is not floating. Results without a path are zeros. See Derivative
    for when it runs as a program.
    """
    return kept_for(f, "jvp", lambda: _Along(f, "jvp"))(primals, tangents)


def hvp(f: Callable[..., Any], primals: Any, tangents: Any) -> Any:
    """The Hessian of the 0-d `f(*primals)` times the tangents: forward mode over the gradient.

    Of the structure of `primals`; one argument may stand without a tuple around it. See jvp, and
    Derivative for when it runs as a program.
    """
    return kept_for(f, "hvp", lambda: _Along(f, "hvp"))(primals, tangents)


def vjp(f: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """`(f(*primals), pullback)`: the pullback takes cotangents of the structure of the result, and
    gives the gradients by the primals, a tuple with one of each one's structure. It may be called any
    number of times.

    With has_aux the function gives `(value, aux)`, and this `(value, pullback, aux)`.
    """
    given = arguments_at(primals, range(len(primals)), "vjp", True)
    with _gradus.recording():
        value = f(*given.args)
        aux = None
        if has_aux:
            if not isinstance(value, tuple) or len(value) != 2:
                raise Error(f"vjp with has_aux takes a function that gives (value, aux), not {without_values(value)}")
            value, aux = value
    leaves, structure = flatten(value)
    out = _tensors(leaves)
    floating = [x for x in given.inputs if _is_floating(x)]

    def pullback(cotangents: Any) -> tuple[Any, ...]:
        given_ct = _cotangents(structure, out, cotangents)
        again = any(lead_on(out, given.inputs)) or any(lead_on(given_ct))
        led = [(y, ct) for y, ct in zip(out, given_ct) if ct is not None and y.requires_grad]
        found: list[Tensor | None] = [None] * len(floating)
        if led and floating:
            found = gradients(
                [y for y, _ in led], floating, [ct for _, ct in led], True, create_graph=again
            )
        by_place = iter(g if g is not None else zeros_like(x) for g, x in zip(found, floating))
        return tuple(
            given.trees_of([next(by_place) if _is_floating(x) else None for x in given.inputs])
        )

    leaves, aux_structure = flatten(aux)
    tensors = [*out, *(x for _, x in leaves)]
    kept = detached(tensors, lead_on(tensors, given.inputs))
    value, aux = unflatten(structure, kept), unflatten(aux_structure, kept[len(out) :])
    return (value, pullback, aux) if has_aux else (value, pullback)


def _cotangents(structure: Any, out: list[Tensor], given: Any) -> list[Tensor | None]:
    """One for each result, None where there is none."""

    def differ(at: str, y: Any, ct: Any) -> Error:
        name = f"'{at}' of the result" if at else "the result"
        return Error(f"vjp: {name} is {kind_of(y)}, and its cotangent {kind_of(ct)}")

    found: list[Tensor | None] = []
    for at, place, ct in matched(structure, given, "", differ):
        if not isinstance(place, Place):
            continue
        if ct is not None and not is_leaf_tensor(ct) and not is_number(ct):
            raise differ(at, place, ct)
        y = out[place.index]
        found.append(as_type(ct, type_of(y)) if ct is not None and _is_floating(y) else None)
    return found


# ---- Matrices ----


class _Matrix(Derivative):
    """jacobian, hessian or laplacian of a function, of its arguments."""

    def __init__(
        self,
        f: Callable[..., Any],
        kind: str,
        argnums: tuple[int, ...],
        several: bool,
        mapped: tuple[int, ...],
    ) -> None:
        super().__init__(f, self._run)
        self.kind = kind
        self.argnums = argnums
        self.several = several
        self.mapped = mapped
        self.floats = list(argnums)

    def _run(self, *args: Any) -> Any:
        """As _Along's; of points, the program's operators become a part of what is recorded."""
        leaves, places = flatten(self._with_tensors(args))
        tensors = _tensors(leaves)
        if not self.mapped and (_gradus.is_tracing() or any(lead_on(tensors))):
            return _matrix_by_gradients(self, args)
        return self._once(self._derived(places, tensors, captures=True), tensors)

    def _derive(self, args: Any, kwargs: Any, tensors: list[Tensor]) -> Derived:
        return self._derived(flatten(self._with_tensors(args))[1], tensors)

    def _derived(self, args: Any, tensors: list[Tensor], captures: bool = False) -> Derived:
        places = places_of(self.argnums, len(args), self.kind)
        for n in places:
            check_points(args[n], self.kind, n)
        mapped = places_of(self.mapped, len(args), self.kind)
        of_points = [p.index for n in mapped for _, p in flatten(args[n])[0]]
        points = _number_of_points(self.kind, [tensors[i] for i in of_points])
        front = [] if points is None else [points]
        tensors = list(tensors)
        for i in of_points:
            tensors[i] = _one_point(tensors[i])
        recorded, bound = recorded_with(self.function, args, tensors, bool(of_points), captures)
        name_of = {source: name for name, source in zip(recorded.names, bound.sources)}
        trees = []  # of each argument: its structure, and the names of its tensors
        for n in places:
            leaves, structure = flatten(args[n])
            names = [name_of[place.index] for _, place in leaves]
            trees.append((structure, names))
        wrt = [n for _, names in trees for n in names]
        differing = [name_of[i] for i in of_points]
        program = getattr(recorded.program, self.kind)(wrt, differing, points)
        types = dict(recorded.program.inputs())
        if self.kind == "jacobian":
            program, structure = self._jacobian(program, recorded, types, trees, front)
        elif self.kind == "hessian":
            program, structure = self._hessian(program, types, trees, front)
        else:
            program, structure = self._laplacian(program, types, trees, front)
        return Derived(program, bound.sources, bound.constants, structure)

    def _of_arguments(self, list: list[Any]) -> Any:
        return tuple(list) if self.several else list[0]

    def _jacobian(
        self, program: Program, recorded: Any, types: Any, trees: Any, front: list[int]
    ) -> Any:
        results = [(n, t) for n, t in recorded.program.results()]
        inputs = [n for _, names in trees for n in names]
        pairs = [(y, x) for y in results for x in inputs]
        program, found = _chosen(program, [f"jacobian_{y}_{x}" for (y, _), x in pairs])
        full = {
            (y, x): p if p is not None else _zero_block(t, types[x], front)
            for ((y, t), x), p in zip(pairs, found)
        }
        rows = [
            self._of_arguments([unflatten(s, [full[y, x] for x in names]) for s, names in trees])
            for y, _ in results
        ]
        return program, unflatten(places_alone(recorded.structure), rows)

    def _hessian(self, program: Program, types: Any, trees: Any, front: list[int]) -> Any:
        inputs = [n for _, names in trees for n in names]
        pairs = [(x, w) for x in inputs for w in inputs]
        program, found = _chosen(program, [f"hessian_{x}_{w}" for x, w in pairs])
        full = {
            (x, w): p if p is not None else _zero_block(types[x], types[w], front)
            for (x, w), p in zip(pairs, found)
        }

        def row(x: str) -> Any:
            return self._of_arguments(
                [unflatten(s, [full[x, w] for w in names]) for s, names in trees]
            )

        return program, self._of_arguments(
            [unflatten(s, [row(x) for x in names]) for s, names in trees]
        )

    def _laplacian(self, program: Program, types: Any, trees: Any, front: list[int]) -> Any:
        inputs = [n for _, names in trees for n in names]
        program, found = _chosen(program, [f"laplacian_{x}" for x in inputs])
        full = {
            x: p if p is not None else zeros(front, types[x].dtype) for x, p in zip(inputs, found)
        }
        return program, self._of_arguments(
            [unflatten(s, [full[x] for x in names]) for s, names in trees]
        )


def _zero_block(y: Any, x: Any, front: list[int]) -> Tensor:
    return zeros([*front, *(int(str(n)) for n in (*y.shape, *x.shape))], x.dtype)


def _number_of_points(kind: str, tensors: list[Tensor]) -> int | None:
    """How many points there are, which the arguments' tensors have in front; None where none are."""
    sizes = {x.shape[0] if x.ndim else None for x in tensors}
    if not sizes:
        return None
    if len(sizes) > 1 or None in sizes:
        shapes = ", ".join(str(tuple(x.shape)) for x in tensors)
        raise Error(
            f"{kind}: what is mapped has a dimension of the points in front, of one size, not {shapes}"
        )
    return sizes.pop()


def _one_point(x: Tensor) -> Tensor:
    """What the function is recorded with, of which only the type has a say."""
    if _gradus.is_tracing() or not x.shape[0]:
        return zeros(x.shape[1:], x.dtype)
    return x.detach()[0]


def _rows(y: Tensor, by: list[Tensor], again: bool) -> list[Tensor]:
    """The Jacobian of one output by each input, a gradient for each of its elements."""
    flat = y.reshape(-1) if by and y.requires_grad else None
    found: list[list[Tensor]] = [[] for _ in by]
    for i in range(y.size):
        row = gradients(flat[i], by, keep_graph=True, create_graph=again) if flat is not None else by
        for j, x in enumerate(by):
            g = row[j] if flat is not None else None
            found[j].append(g if g is not None else zeros_like(x))
    return [
        _gradus.apply("stack", list(rows), {"dim": 0})[0].reshape([*y.shape, *x.shape])
        if rows
        else zeros([*y.shape, *x.shape], x.dtype)
        for rows, x in zip(found, by)
    ]


def _matrix_by_gradients(matrix: _Matrix, args: Any) -> Any:
    given = arguments_at(args, matrix.argnums, matrix.kind)
    by = given.inputs
    with _gradus.recording():
        out, structure = _outputs(matrix.function(*given.args))
    again = any(lead_on(out, by))
    with _gradus.recording():
        if matrix.kind == "jacobian":
            blocks = [matrix._of_arguments(given.trees_of(_rows(y, by, again))) for y in out]
            return unflatten(places_alone(structure), blocks)
        if len(out) != 1 or out[0].ndim != 0:
            found = without_values(out)
            raise Error(f"{matrix.kind} takes a function with one 0-d result, not {found}; sum it, or use jacobian")
        first = gradients(out[0], by, create_graph=True) if by and out[0].requires_grad else [None] * len(by)
        full = [g if g is not None else zeros_like(x) for g, x in zip(first, by)]
        if matrix.kind == "laplacian":
            traces = [_trace_of(g, x, again) for g, x in zip(full, by)]
            return matrix._of_arguments(given.trees_of(traces))
        rows = [matrix._of_arguments(given.trees_of(_rows(g, by, again))) for g in full]
        return matrix._of_arguments(given.trees_of(rows))


def _trace_of(g: Tensor, x: Tensor, again: bool) -> Tensor:
    """The sum of the second derivatives, a gradient for each element."""
    total = zeros_like(x.reshape(-1)[0]) if x.size else zeros([], x.dtype)
    if not g.requires_grad:
        return total
    flat = g.reshape(-1)
    for i in range(x.size):
        (row,) = gradients(flat[i], [x], keep_graph=True, create_graph=again)
        if row is not None:
            total = total + row.reshape(-1)[i]
    return total


def _matrix(
    f: Callable[..., Any],
    kind: str,
    argnums: int | Sequence[int],
    mapped: int | Sequence[int] | None,
) -> _Matrix:
    places, several = argnums_of(argnums, kind)
    points = () if mapped is None else argnums_of(mapped, kind)[0]
    key = (kind, places, several, points)
    return kept_for(f, key, lambda: _Matrix(f, kind, places, several, points))


def jacobian(
    f: Callable[..., Any],
    *args: Any,
    argnums: int | Sequence[int] = 0,
    mapped: int | Sequence[int] | None = None,
) -> Any:
    """The Jacobian of `f(*args)` by the argument `argnums`, a tensor of f's sizes, then x's.

    Where f gives a tree, or the argument is one, it is the tree of the results, in whose places are
    trees of the argument; by several arguments, tuples. Within a recording there is a gradient for
    each element of the results. See Derivative for when it runs as a program.

    `mapped` are arguments of many points at once: each of their tensors has a dimension of the
    points in front, and so has the result. f is written for one point, for each of which it is
    taken; the other arguments are the same for all. It runs as one program for all points, of which
    a recording takes the operators.
    """
    return _matrix(f, "jacobian", argnums, mapped)(*args)


def hessian(
    f: Callable[..., Any],
    *args: Any,
    argnums: int | Sequence[int] = 0,
    mapped: int | Sequence[int] | None = None,
) -> Any:
    """The Hessian of the 0-d `f(*args)` by the argument `argnums`: x's sizes, twice.

    By a tree, or several arguments: their tree, in whose places is their tree. See jacobian, also
    for `mapped`.
    """
    return _matrix(f, "hessian", argnums, mapped)(*args)


def laplacian(
    f: Callable[..., Any],
    *args: Any,
    argnums: int | Sequence[int] = 0,
    mapped: int | Sequence[int] | None = None,
) -> Any:
    """The sum of the second derivatives of the 0-d `f(*args)` by each element of the argument
    `argnums`: 0-d, for each tensor of a tree. See jacobian.

    For many points x of one f(p, x): `laplacian(f, p, xs, argnums=1, mapped=1)`, one for each row.
    """
    return _matrix(f, "laplacian", argnums, mapped)(*args)
