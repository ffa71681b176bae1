"""A program against eager torch, order by order."""

from __future__ import annotations

import zlib
from typing import Any, Callable, NamedTuple, Sequence

import torch
from torch import nn

from ._function import Function
from ._modules import Reader, owner_of
from ._trees import flatten, names_of

_tolerances = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


class Row(NamedTuple):
    """A result, or a gradient, of one order."""

    order: int
    name: str
    error: float  # the greatest difference, over the greatest element of all of its order
    tolerance: float
    why: str = ""  # it could not be compared, or differs in more than values

    @property
    def passed(self) -> bool:
        return not self.why and self.error <= self.tolerance


class Report:
    """What `verify` found; true if all agrees. Printed, it is a table."""

    def __init__(self, name: str, rows: list[Row], notes: list[str]) -> None:
        self.name = name
        self.rows = rows
        self.notes = notes

    @property
    def passed(self) -> bool:
        return all(r.passed for r in self.rows)

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        width = max([len(r.name) for r in self.rows] + [4])
        lines = [f"{self.name}: {'agrees with' if self else 'DIFFERS from'} eager torch"]
        lines.append(f"  order  {'of':{width}}  error")
        for r in self.rows:
            said = "ok" if r.passed else r.why or f"more than {r.tolerance:g}"
            lines.append(f"  {r.order:5}  {r.name:{width}}  {r.error:.1e}  {said}")
        return "\n".join(lines + [f"  {note}" for note in self.notes])

    __repr__ = __str__


class _Run:
    """What one of the two computes: tensors by order and name, each order from random cotangents of
    the one before."""

    def __init__(
        self,
        f: Callable[..., Any],
        reader: Reader,
        parameters: dict[str, nn.Parameter],
        buffers: dict[str, torch.Tensor],
        args: Any,
        seed: int,
    ) -> None:
        self.tables: list[dict[str, torch.Tensor | None]] = []
        self.error: Exception | None = None
        self._seed = seed
        self._f, self._parameters, self._buffers = f, parameters, buffers
        tensors, self._structure = flatten(args)
        self._tensors = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in tensors]

    def go(self, names: list[str], order: int) -> None:
        torch.manual_seed(0)
        given = [t.clone() if t.requires_grad else t for t in self._tensors]
        args, kwargs = self._structure.fill(given)
        results, _ = flatten(self._f(*args, **kwargs))
        table: dict[str, torch.Tensor | None] = {f"result {i}": r for i, r in enumerate(results)}
        written = {f"buffer {n}": b.detach().clone() for n, b in self._buffers.items()}
        self.tables.append({**table, **written})
        by = {n: t for n, t in zip(names, self._tensors) if t.requires_grad}
        by.update({n: p for n, p in self._parameters.items() if p.requires_grad})
        for k in range(1, order + 1):
            roots = {n: t for n, t in table.items() if t is not None and t.requires_grad}
            if not roots or not by:
                return
            cotangents = [self._random(f"{k} {n}", t) for n, t in roots.items()]
            try:
                found = torch.autograd.grad(
                    list(roots.values()),
                    list(by.values()),
                    cotangents,
                    create_graph=k < order,
                    allow_unused=True,
                )
            except Exception as e:
                self.error = e
                return
            table = {f"d/d {n}": g for n, g in zip(by, found)}
            self.tables.append(dict(table))

    def _random(self, name: str, like: torch.Tensor) -> torch.Tensor:
        """The same for both, whatever else has a cotangent."""
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()) + self._seed)
        return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like)


def verify(
    module: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    order: int = 2,
    tolerance: float | None = None,
    seed: int = 0,
) -> Report:
    """Runs a module or function as a program and eagerly, and compares the results, the buffers
    that it writes, and gradients of random cotangents at every order, by all floating arguments and
    parameters. An error is relative to the greatest element of its order."""
    compiled = module if isinstance(module, Function) else Function(module, order)
    plain = compiled.function
    owner = owner_of(plain)
    parameters = dict(owner.named_parameters()) if owner is not None else {}
    buffers = dict(owner.named_buffers()) if owner is not None else {}
    given = (tuple(args), dict(kwargs or {}))
    names = names_of(plain.forward if isinstance(plain, nn.Module) else plain, *given)
    before = {n: b.detach().clone() for n, b in buffers.items()}
    runs = []
    for f in (plain, compiled):
        run = _Run(f, compiled._reader, parameters, buffers, given, seed)
        try:
            # Eager torch's fast attention has no second derivative.
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                run.go(names, order)
        finally:
            with torch.no_grad():
                for n, b in before.items():
                    buffers[n].copy_(b)
        runs.append(run)
    eager, ours = runs
    rows: list[Row] = []
    notes = []
    if tolerance is None:  # by the coarsest dtype that takes part
        everything = [*eager._tensors, *parameters.values(), *buffers.values()]
        everything += [t for table in eager.tables for t in table.values() if t is not None]
        tolerance = max([_tolerances.get(t.dtype, 0.0) for t in everything] + [1e-9])
    for k, table in enumerate(eager.tables):
        mine = ours.tables[k] if k < len(ours.tables) else None
        rows += _compare(k, table, mine, str(ours.error), tolerance)
    if eager.error is not None:
        notes.append(
            f"order {len(eager.tables)} and later: eager torch has none: "
            f"{str(eager.error).splitlines()[0]}"
        )
    return Report(repr(compiled), rows, notes)


def _compare(
    order: int,
    eager: dict[str, torch.Tensor | None],
    ours: dict[str, torch.Tensor | None] | None,
    why: str,
    tolerance: float,
) -> list[Row]:
    rows = []
    floating = [t.detach() for t in eager.values() if _has_floats(t)]
    finite = [t[t.isfinite()].abs().max() for t in floating]
    greatest = max([float(m) for m in finite] + [1e-300])
    for name, a in eager.items():
        if ours is None:
            rows.append(Row(order, name, float("nan"), tolerance, why))
            continue
        b = ours[name]
        if a is None and b is None:
            continue
        if a is None or b is None:  # no path, or zeros
            there = b if a is None else a
            assert there is not None
            error = float(there.detach().abs().max()) if there.numel() else 0.0
            rows.append(Row(order, name, error / greatest, tolerance))
        elif a.shape != b.shape or a.dtype != b.dtype:
            said = f"{b.dtype} {list(b.shape)}, eagerly {a.dtype} {list(a.shape)}"
            rows.append(Row(order, name, float("nan"), tolerance, said))
        else:
            rows.append(Row(order, name, _difference(a.detach(), b.detach(), greatest), tolerance))
    return rows


def _has_floats(t: torch.Tensor | None) -> bool:
    return t is not None and t.is_floating_point() and bool(t.isfinite().any())


def _difference(a: torch.Tensor, b: torch.Tensor, greatest: float) -> float:
    if not a.numel():
        return 0.0
    if not a.is_floating_point():
        return 0.0 if torch.equal(a, b) else float("inf")
    same = (a == b) | (a.isnan() & b.isnan())
    if bool(same.all()):
        return 0.0
    off = (a.double() - b.double()).abs()[~same]
    return float(off.max()) / greatest if bool(off.isfinite().all()) else float("inf")
