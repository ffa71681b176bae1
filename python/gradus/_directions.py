"""Derivatives of Python functions along directions, and whole matrices of them."""

from __future__ import annotations

from typing import Any, Callable, Sequence

from . import _gradus
from ._derivative import Derivative, Derived, floating_names, kept_for, lead_on, recorded_with
from ._display import without_values
from ._function import Recorded, _is_floating, _tensors
from ._gradus import Program, Tensor, Type
from ._tensors import zeros
from ._transforms import any_leads_on, arguments_at, detached, gradients, zeros_like
from ._trees import Place, flatten, unflatten
from .errors import Error


def _sequence(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (tuple, list)) else [x]


def _outputs(given: Any) -> tuple[list[Tensor], Any]:
    leaves, structure = flatten(given)
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


class _Along(Derivative):
    """jvp or hvp of a function, of (primals, tangents)."""

    def __init__(self, f: Callable[..., Any], kind: str) -> None:
        super().__init__(f, self._run)
        self.kind = kind

    def _run(self, primals: Any, tangents: Any) -> Any:
        """Where no program is kept: by gradients, of which a recording and whoever differentiates
        further know, or by a program for this call alone."""
        if _gradus.is_tracing() or any_leads_on(primals, tangents):
            return _along_by_gradients(self.function, primals, tangents, self.kind)
        leaves, (places, along) = flatten((primals, tangents))
        tensors = _tensors(leaves)
        return self._once(self._derived(places, along, tensors, captures=True), tensors)

    def _derive(self, args: Any, kwargs: Any, tensors: list[Tensor]) -> Derived:
        _, (places, along) = flatten(args)
        return self._derived(places, along, tensors)

    def _derived(
        self, primals: Any, tangents: Any, tensors: list[Tensor], captures: bool = False
    ) -> Derived:
        single = not isinstance(primals, (tuple, list))
        primals, tangents = tuple(_sequence(primals)), tuple(_sequence(tangents))
        if len(primals) != len(tangents):
            raise Error(f"{len(primals)} arguments and {len(tangents)} tangents are given")
        recorded, bound = recorded_with(self.function, primals, tensors, captures=captures)
        wrt = floating_names(recorded, bound, tensors)
        along = [place.index for _, place in flatten(tangents)[0]]
        if len(along) != len(wrt):
            raise Error(f"{len(wrt)} floating arguments and {len(along)} tangents are given")
        program = getattr(recorded.program, self.kind)(wrt)
        if self.kind == "jvp":
            program, structure = _pairs(program, recorded)
        else:
            program, structure = self._products(program, recorded, primals, single)
        return Derived(program, bound.sources + along, bound.constants, structure)

    def _products(
        self, program: Program, recorded: Recorded, primals: Any, single: bool
    ) -> tuple[Program, Any]:
        types = dict(recorded.program.inputs())
        names = [n for n in recorded.names]
        program, found = _chosen(program, [f"hvp_{n}" for n in names])
        full = [
            p if p is not None else _zeros_of(types[n]) if types[n].is_floating else None
            for n, p in zip(names, found)
        ]
        if single and len(full) == 1:
            return program, full[0]
        _, structure = flatten(primals[0] if single else list(primals))
        return program, unflatten(structure, full)


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
        unflatten(recorded.structure, along),
    )


def _along_by_gradients(f: Any, primals: Any, tangents: Any, kind: str) -> Any:
    single = not isinstance(primals, (tuple, list))
    primals, tangents = _sequence(primals), _sequence(tangents)
    if len(primals) != len(tangents):
        raise Error(f"{len(primals)} arguments and {len(tangents)} tangents are given")
    given = arguments_at(primals, range(len(primals)), kind)
    floating = [x for x in given.inputs if _is_floating(x)]
    along = _tensors(flatten(tangents)[0])
    if len(along) != len(floating):
        raise Error(f"{len(floating)} floating arguments and {len(along)} tangents are given")
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
    return unflatten(structure, detached(out, leads)), unflatten(structure, slopes)


def _slopes_of_gradient(out: Any, by: Any, along: Any, again: bool) -> list[Tensor]:
    """The gradient's derivative along the tangents, which is that of its product with them."""
    if len(out) != 1 or out[0].ndim != 0:
        raise Error(f"hvp takes a function with one 0-d result, not {without_values(out)}; sum it, or use jacobian")
    found = gradients(out[0], by, create_graph=True) if out[0].requires_grad else [None] * len(by)
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
    if not led:
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
    same structure. Results without a path are zeros. See Derivative for when it runs as a program.
    """
    return kept_for(f, "jvp", lambda: _Along(f, "jvp"))(primals, tangents)


def hvp(f: Callable[..., Any], primals: Any, tangents: Any) -> Any:
    """The Hessian of the 0-d `f(*primals)` times the tangents: forward mode over the gradient.

    Of the structure of `primals`; one argument may stand without a tuple around it. See Derivative
    for when it runs as a program.
    """
    return kept_for(f, "hvp", lambda: _Along(f, "hvp"))(primals, tangents)


def vjp(f: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """`(f(*primals), pullback)`: the pullback takes cotangents of the structure of the result, and
    gives the gradients by the primals, a tuple with one of each one's structure. It may be called any
    number of times.

    With has_aux the function gives `(value, aux)`, and this `(value, pullback, aux)`.
    """
    given = arguments_at(primals, range(len(primals)), "vjp")
    with _gradus.recording():
        value = f(*given.args)
        aux = None
        if has_aux:
            if not isinstance(value, tuple) or len(value) != 2:
                raise Error(f"vjp with has_aux takes a function that gives (value, aux), not {without_values(value)}")
            value, aux = value
    out, structure = _outputs(value)
    floating = [x for x in given.inputs if _is_floating(x)]

    def pullback(cotangents: Any) -> tuple[Any, ...]:
        leaves, _ = flatten(cotangents)
        given_ct = _tensors(leaves)
        if isinstance(cotangents, (float, int)):
            given_ct = [_gradus.as_tensor(float(cotangents))]
        if len(given_ct) != len(out):
            raise Error(f"{len(out)} results and {len(given_ct)} cotangents are given")
        again = any(lead_on(out, given.inputs)) or any(lead_on(given_ct))
        led = [(y, ct) for y, ct in zip(out, given_ct) if y.requires_grad]
        found: list[Tensor | None] = [None] * len(floating)
        if led:
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


# ---- Matrices ----


class _Matrix(Derivative):
    """jacobian, hessian or laplacian of a function, of its arguments."""

    def __init__(
        self,
        f: Callable[..., Any],
        kind: str,
        argnums: int | tuple[int, ...],
        mapped: tuple[int, ...] = (),
    ) -> None:
        super().__init__(f, self._run)
        self.kind = kind
        self.several = not isinstance(argnums, int)
        self.places = argnums if isinstance(argnums, tuple) else (argnums,)
        self.mapped = mapped
        self.floats = sum(1 << n for n in set(self.places) if 0 <= n < 64)

    def _run(self, *args: Any) -> Any:
        """As _Along's; of points, the program's operators become a part of what is recorded."""
        if not self.mapped and (_gradus.is_tracing() or any_leads_on(args)):
            return _matrix_by_gradients(self, args)
        leaves, places = flatten(self._with_tensors(args))
        tensors = _tensors(leaves)
        return self._once(self._derived(places, tensors, captures=True), tensors)

    def _with_tensors(self, args: Any) -> tuple[Any, ...]:
        return tuple(
            _gradus.as_tensor(a) if i in self.places and type(a) is float else a
            for i, a in enumerate(args)
        )

    def _derive(self, args: Any, kwargs: Any, tensors: list[Tensor]) -> Derived:
        return self._derived(flatten(self._with_tensors(args))[1], tensors)

    def _derived(self, args: Any, tensors: list[Tensor], captures: bool = False) -> Derived:
        for n in (*self.places, *self.mapped):
            if not 0 <= n < len(args):
                raise Error(
                    f"{self.kind} by argument {n}: the call has {len(args)} by place, "
                    "and they are counted from 0"
                )
        of_points = [p.index for n in self.mapped for _, p in flatten(args[n])[0]]
        points = _number_of_points(self.kind, [tensors[i] for i in of_points])
        front = [] if points is None else [points]
        tensors = list(tensors)
        for i in of_points:
            tensors[i] = _one_point(tensors[i])
        recorded, bound = recorded_with(self.function, args, tensors, bool(of_points), captures)
        name_of = {source: name for name, source in zip(recorded.names, bound.sources)}
        trees = []  # of each argument: its structure, and the names of its tensors
        for n in self.places:
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
        return program, unflatten(recorded.structure, rows)

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
    flat = y.reshape(-1) if y.requires_grad else None
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
    given = arguments_at(args, matrix.places, matrix.kind)
    by = given.inputs
    with _gradus.recording():
        out, structure = _outputs(matrix.function(*given.args))
    again = any(lead_on(out, by))
    with _gradus.recording():
        if matrix.kind == "jacobian":
            blocks = [matrix._of_arguments(given.trees_of(_rows(y, by, again))) for y in out]
            return unflatten(structure, blocks)
        if len(out) != 1 or out[0].ndim != 0:
            found = without_values(out)
            raise Error(f"{matrix.kind} takes a function with one 0-d result, not {found}; sum it, or use jacobian")
        first = gradients(out[0], by, create_graph=True) if out[0].requires_grad else [None] * len(by)
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


def _argnums(argnums: int | Sequence[int]) -> int | tuple[int, ...]:
    return argnums if isinstance(argnums, int) else tuple(argnums)


def _matrix(
    f: Callable[..., Any],
    kind: str,
    argnums: int | Sequence[int],
    mapped: int | Sequence[int] | None,
) -> _Matrix:
    places = _argnums(argnums)
    points = () if mapped is None else (mapped,) if isinstance(mapped, int) else tuple(mapped)
    return kept_for(f, (kind, places, points), lambda: _Matrix(f, kind, places, points))


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
