"""A program, its derivatives, and what else derives from it, ready to be run on torch's tensors."""

from __future__ import annotations

import threading
from typing import Any, Optional, Sequence

import torch

from .. import Error, Program, State


# By derivative stage, names of the inputs whose gradients it gives; None: all.
Wanted = tuple[Optional[frozenset[str]], ...]


class Compiled:
    """A program with `depth` derivative stages by some of its inputs, and where each stage's
    inputs and results stand among those of torch's functions.

    A stage as a function takes the inputs of all stages up to it, in order. `wanted`: by derivative
    stage, the inputs whose gradients it gives; None: all of them.
    """

    def __init__(
        self, program: Program, wrt: tuple[str, ...], depth: int, wanted: Wanted = ()
    ) -> None:
        self.program = _differentiated(program, wrt, depth, wanted)
        self.code = self.program.compile()
        self.depth = depth
        self.inputs: list[list[str]] = []  # by stage: its own
        self.names: list[list[str]] = []  # by stage: those of all stages up to it
        self.results: list[list[str | None]] = []  # by stage; None: a structural zero
        self.floating: list[list[bool]] = []  # by stage: which results can have a derivative
        self.cotangents: list[list[int]] = []  # by stage: results that take one in the next
        self.gradients: list[list[int | None]] = []  # by stage, by input of the stage before
        self.kept: list[list[bool]] = []  # by stage, by input up to it: a later stage wants it
        # By stage, inputs of the stages before whose gradients are left out.
        self.left_out: list[list[int]] = [[] for _ in range(depth + 1)]
        self.is_whole = not any(names is not None for names in wanted)
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
            if k and k <= len(wanted) and (given := wanted[k - 1]) is not None:
                self.left_out[k] = [i for i, n in enumerate(taken) if n not in given]
            taken = taken + own
            self.names.append(taken)
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
        self.all_kept = [all(kept) for kept in self.kept]
        self.first = [len(names) - len(own) for names, own in zip(self.names, self.inputs)]

    def run(
        self, stage: int, state: State | None, tensors: Sequence[Any]
    ) -> tuple[list[Any], State]:
        """A stage's results and the state after it. `tensors`: the inputs of all stages so far.
        `state`: as it was before the stage; None: the stages before are run anew."""
        own = tensors[self.first[stage] :]
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
        self._wanted: dict[tuple[bool, ...], Wanted] = {}
        self._current: dict[Any, Compiled] = {}  # with the gradients that calls have wanted so far
        self._derived: dict[Any, Staged] = {}

    def compiled(self, wrt: tuple[bool, ...], depth: int, whole: bool = True) -> Compiled:
        """With derivatives by the floating ones of these inputs. Not `whole`: without gradients
        that no call has wanted since the first one whose gradients were asked for."""
        if not depth or not any(wrt):
            wrt, depth, whole = (), 0, True
        found = self._current.get((wrt, depth, whole))
        if found is None:
            with self._lock:
                wanted = () if whole else self._wanted.get(wrt, ())[:depth]
                key = wrt, depth, wanted if any(w is not None for w in wanted) else ()
                found = self._compiled.get(key)
                if found is None:
                    names = tuple(n for n, w in zip(self.names, wrt) if w)
                    found = Compiled(self.program, names, depth, wanted)
                    self._compiled[key] = found
                self._current[wrt, depth, whole] = found
        return found

    def knows_wanted(self, wrt: tuple[bool, ...], stage: int) -> bool:
        return len(self._wanted.get(wrt, ())) >= stage

    def note_wanted(
        self, wrt: tuple[bool, ...], stage: int, names: frozenset[str] | None
    ) -> None:
        """That a call has wanted gradients of these inputs in a derivative stage. None: of all."""
        with self._lock:
            wanted = list(self._wanted.get(wrt, ()))
            if len(wanted) < stage - 1:
                return  # the stage before comes first
            if len(wanted) < stage:
                wanted.append(names)
            else:
                before = wanted[stage - 1]
                both = before is not None and names is not None
                wanted[stage - 1] = before | names if both else None
            self._wanted[wrt] = tuple(wanted)
            for key in [k for k in self._current if k[0] == wrt and not k[2]]:
                del self._current[key]

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


def _differentiated(
    program: Program, wrt: tuple[str, ...], depth: int, wanted: Wanted
) -> Program:
    at = 0
    for k, names in enumerate(wanted[:depth], 1):
        if names is not None:
            program = program.differentiate(k, list(wrt))
            program = program.keep_results(k, [f"d{k}_{n}" for n in names])
            at = k
    return program.differentiate(depth, list(wrt)) if depth > at else program


def past_order(staged: Staged) -> Error:
    had = staged.order + staged.spent
    return Error(
        f"'{staged.program.name}' was made for derivatives to order {had}, and one of order "
        f"{had + 1} is asked for: give order={had + 1} (gradus.torch.function(…, order={had + 1}), "
        f'or torch.compile(…, options={{"order": {had + 1}}}))'
    )
