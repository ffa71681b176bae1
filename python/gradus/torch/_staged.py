"""A program, its derivatives, and what else derives from it, ready to be run on torch's tensors."""

from __future__ import annotations

import threading
from typing import Any, Sequence

import torch

from .. import Error, Program, State


class Compiled:
    """A program with `depth` derivative stages by some of its inputs, and where each stage's
    inputs and results stand among those of torch's functions.

    A stage as a function takes the inputs of all stages up to it, in order.
    """

    def __init__(self, program: Program, wrt: tuple[str, ...], depth: int) -> None:
        self.program = program.differentiate(depth, list(wrt)) if depth else program
        self.code = self.program.compile()
        self.depth = depth
        self.inputs: list[list[str]] = []  # by stage: its own
        self.results: list[list[str | None]] = []  # by stage; None: a structural zero
        self.floating: list[list[bool]] = []  # by stage: which results can have a derivative
        self.cotangents: list[list[int]] = []  # by stage: results that take one in the next
        self.gradients: list[list[int | None]] = []  # by stage, by input of the stage before
        self.kept: list[list[bool]] = []  # by stage, by input up to it: a later stage wants it
        taken: list[str] = []
        for k in range(depth + 1):
            own = [name for name, _ in self.program.inputs(k)]
            results = [(n, t) for n, t in self.program.results(k)]
            names = [n for n, _ in results]
            self.inputs.append(own)
            self.floating.append([t is not None and t.dtype.name in _floating for _, t in results])
            self.results.append([None if t is None else n for n, t in results])
            places = {n: i for i, n in enumerate(names)}
            self.gradients.append([places.get(f"d{k}_{n}") for n in taken])
            taken = taken + own
        for k in range(depth):
            places = {n: i for i, n in enumerate(n for n, _ in self.program.results(k))}
            prefix = len(f"ct{k + 1}_")
            self.cotangents.append([places[n[prefix:]] for n in self.inputs[k + 1]])
        # Results that no derivative passes through.
        self.constant: list[list[int]] = [[] for _ in range(depth + 1)]
        for k in range(depth):
            used = self.code.reads(k + 1)
            self.constant[k] = [i for i, u in zip(self.cotangents[k], used) if not u]
        read = [self.code.reads_later(k) for k in range(depth + 1)]
        for k in range(depth + 1):
            kept = [r for s in range(k + 1) for r in read[s]]
            for later in self.gradients[k + 1 :]:
                kept = [a or later[i] is not None for i, a in enumerate(kept)]
            self.kept.append(kept)

    def run(
        self, stage: int, state: State | None, tensors: Sequence[Any]
    ) -> tuple[list[Any], State]:
        """A stage's results and the state after it. `tensors`: the inputs of all stages so far.
        `state`: as it was before the stage; None: the stages before are run anew."""
        first = sum(len(names) for names in self.inputs[:stage])
        own = tensors[first:]
        if state is None:
            state = State(self.code)
            at = 0
            for names in self.inputs[:stage]:
                state.run_exchanged(tensors[at : at + len(names)], torch.Tensor)
                at += len(names)
        elif stage:
            state = state.clone()
        return state.run_exchanged(own, torch.Tensor), state


class Staged:
    """A program of one stage that can be differentiated `order` times.

    What derives from it (a later stage, the derivative along a direction, the same for many inputs)
    is another one, made when it is asked for first.
    """

    def __init__(self, program: Program, order: int, spent: int = 0) -> None:
        self.program = program
        self.order = order
        self.spent = spent  # derivatives that were taken of what the user gave to get here
        self.names = [name for name, _ in program.inputs()]
        self.floating = [t.dtype.name in _floating for _, t in program.inputs()]
        self.results = [name for name, _ in program.results()]
        self.depth = min(1, order)  # stages that calls have used so far
        self._lock = threading.RLock()
        self._compiled: dict[Any, Compiled] = {}
        self._derived: dict[Any, Staged] = {}

    def compiled(self, wrt: tuple[bool, ...], depth: int) -> Compiled:
        """With derivatives by the floating ones of these inputs."""
        if not any(wrt):
            depth = 0
        key = wrt if depth else (), depth
        found = self._compiled.get(key)
        if found is None:
            with self._lock:
                found = self._compiled.get(key)
                if found is None:
                    names = tuple(n for n, w in zip(self.names, wrt) if w)
                    found = self._compiled[key] = Compiled(self.program, names, depth)
        return found

    def derive(self, key: Any, make: Any) -> Staged:
        found = self._derived.get(key)
        if found is None:
            with self._lock:
                found = self._derived.get(key)
                if found is None:
                    found = self._derived[key] = make()
        return found

    def stage(self, k: int, wrt: tuple[bool, ...], absent: tuple[str, ...]) -> Staged:
        """Stage k as a program of its own, of all inputs up to it but the `absent` ones."""
        if k == 0:
            return self

        def make() -> Staged:
            program = self.compiled(wrt, k).program.join_stages(k, list(absent))
            return self._child(program, k)

        return self.derive(("stage", k, wrt, absent), make)

    def along(self, wrt: tuple[bool, ...]) -> Staged:
        """The derivative of the floating results along tangents of these inputs, which follow the
        inputs."""
        if self.order < 1:
            raise past_order(self)

        def make() -> Staged:
            names = [n for n, w in zip(self.names, wrt) if w]
            program = self.program.jvp(names)
            results = [n for n, _ in program.results()][len(self.results) :]
            return self._child(program.select_results(results), 1)

        return self.derive(("along", wrt), make)

    def _child(self, program: Program, spent: int) -> Staged:
        """With names that later derivatives of it do not want."""
        n = self.spent + spent
        inputs = [name for name, _ in program.inputs()]
        inputs = [name if name in self.names else f"{name}.{n}" for name in inputs]
        results = [f"{name}.{n}" for name, _ in program.results()]
        return Staged(program.rename(inputs, results), self.order - spent, n)

    def batched(self, batched: tuple[bool, ...], size: int) -> Staged:
        """For many of these inputs at once: a dimension in front of them and of all results."""

        def make(n: Any) -> Staged:
            names = [n for n, b in zip(self.names, batched) if b]
            return Staged(self.program.batch(names, n), self.order, self.spent)

        taken = str(self.program)
        name = next(n for n in (f"batch{i}" for i in range(1000)) if n not in taken)
        try:
            return self.derive(("batch", batched), lambda: make(name))
        except Error:  # an operator that is called once for each needs to know how many
            return self.derive(("batch", batched, size), lambda: make(size))


_floating = ("f64", "f32", "f16", "bf16")


def past_order(staged: Staged) -> Error:
    had = staged.order + staged.spent
    return Error(
        f"'{staged.program.name}' was made for derivatives to order {had}, and one of order "
        f"{had + 1} is asked for: give order={had + 1} (gradus.torch.function(…, order={had + 1}), "
        f'or torch.compile(…, options={{"order": {had + 1}}}))'
    )
