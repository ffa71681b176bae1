"""Stages as functions of torch's autograd: the backward of each is the next."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, Sequence

import torch

from .. import State
from ._staged import Compiled, Staged, past_order

_transforms_active = torch._C._are_functorch_transforms_active
_saved_hooks = torch._C._autograd._top_saved_tensors_default_hooks
_is_batched = torch._C._functorch.is_legacy_batchedtensor
_keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph


class Call:
    """What a stage is run with beside tensors."""

    __slots__ = ("staged", "wrt", "compiled", "stage", "state")

    def __init__(
        self,
        staged: Staged,
        wrt: tuple[bool, ...],
        compiled: Compiled,
        stage: int,
        state: State | None,
    ) -> None:
        self.staged = staged
        self.wrt = wrt  # the inputs of stage 0 to differentiate by
        self.compiled = compiled
        self.stage = stage
        self.state = state  # before the stage; None: the stages before are run again

    def program(self, tensors: Sequence[Any]) -> tuple[Staged, list[Any]]:
        """The stage as a program of its own, and the tensors that are there as its inputs."""
        names = [n for own in self.compiled.inputs[: self.stage + 1] for n in own]
        absent = tuple(n for n, t in zip(names, tensors) if t is None)
        staged = self.staged.stage(self.stage, self.wrt, absent)
        return staged, [t for t in tensors if t is not None]


class Stage(torch.autograd.Function):
    """A stage: takes a call and the inputs of all stages up to it, gives its results and the state
    after it, which is None within a vmap."""

    @staticmethod
    def forward(call: Call, *tensors: Any) -> tuple[Any, ...]:  # type: ignore[override]
        results, state = call.compiled.run(call.stage, call.state, tensors)
        return (*results, state)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        call, *tensors = inputs
        _save(ctx, call, tensors, output)
        if _forward_mode():
            _save_for_forward(ctx, tensors, output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        call = ctx.call
        staged, compiled, stage = call.staged, call.compiled, call.stage + 1
        tensors, state = _saved(ctx, call)
        if stage > staged.order and not _is_linear(ctx, call):
            raise past_order(staged)
        again = torch.is_grad_enabled()
        depth = max(stage, min(stage + 1, staged.order)) if again else stage
        batched = any([c is not None and _is_batched(c) for c in grads])
        whole = batched or _forward_mode() or _saved_hooks(False) is not None
        if not whole and not staged.knows_wanted(call.wrt, stage):
            _note_wanted(ctx, call, compiled, tensors)
        if compiled.depth < depth:
            staged.depth = max(staged.depth, min(depth, staged.order))
            compiled = staged.compiled(call.wrt, depth, whole)
        elif whole and not compiled.is_whole:
            compiled = staged.compiled(call.wrt, compiled.depth, whole)
        if compiled.left_out[stage] and _lacks_wanted(ctx, call, compiled, tensors):
            _note_wanted(ctx, call, compiled, tensors)
            compiled = staged.compiled(call.wrt, compiled.depth, whole)
        if compiled is not call.compiled:
            state = None  # it was of the other program
        if state is None and ctx.left is not None:
            _check_versions(ctx)
        cotangents = [grads[i] for i in compiled.cotangents[call.stage]]
        following = Call(staged, call.wrt, compiled, stage, state)
        if batched:
            results = _call_batched(*following.program([*tensors, *cotangents]))
        else:
            results = apply(following, [*tensors, *cotangents])
        gradients = compiled.gradients[stage]
        wanted = ctx.needs_input_grad[1:]
        return (
            None,
            *[results[i] if w and i is not None else None for i, w in zip(gradients, wanted)],
        )

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: Any) -> tuple[Any, ...]:
        call = ctx.call
        tensors = ctx.saved_tensors
        staged, present = call.program(tensors)
        moved = tuple(t is not None for t, x in zip(tangents, tensors) if x is not None)
        along = staged.along(moved)
        given = [*present, *[t for t in tangents if t is not None]]
        batched = any([t is not None and _is_batched(t) for t in tangents])
        found = iter((_call_batched if batched else call_staged)(along, given))
        floating = call.compiled.floating[call.stage]
        slopes = [next(found) if f else None for f in floating]
        for i, like in enumerate(ctx.like):  # where no path leads
            if slopes[i] is None and like is not None:
                slopes[i] = torch.zeros(like[0], dtype=like[1], device=like[2])
        return (*slopes, None)

    @staticmethod
    def vmap(info: Any, in_dims: Any, call: Call, *tensors: Any) -> Any:
        dims = in_dims[1:]
        staged, present = call.program(tensors)
        there = [d for d, t in zip(dims, tensors) if t is not None]
        moved = [t if d is None else t.movedim(d, 0) for d, t in zip(there, present)]
        results = call_staged(
            staged.batched(tuple(d is not None for d in there), info.batch_size), moved
        )
        return (*results, None), (*[None if r is None else 0 for r in results], None)


class PlainStage(torch.autograd.Function):
    """The same where no transform of torch.func is at work, for which torch wants the two parts of
    forward in one function or takes ten microseconds more."""

    @staticmethod
    def forward(ctx: Any, call: Call, *tensors: Any) -> tuple[Any, ...]:  # type: ignore[override]
        results, state = call.compiled.run(call.stage, call.state, tensors)
        results.append(state)
        _save(ctx, call, tensors, results)
        if torch.autograd.forward_ad._current_level >= 0:
            _save_for_forward(ctx, tensors, results)
        return tuple(results)

    backward = Stage.backward
    jvp = Stage.jvp


def _save(ctx: Any, call: Call, tensors: Sequence[Any], output: Sequence[Any]) -> None:
    """Keeps what the next stage is run with."""
    compiled = call.compiled
    ctx.call = call
    ctx.set_materialize_grads(False)
    kept = compiled.kept[call.stage]
    saved = tensors
    if compiled.all_kept[call.stage]:
        ctx.left = None
    else:
        ctx.left = [None if k else t for k, t in zip(kept, tensors)]
        ctx.versions = [None if t is None else _version(t) for t in ctx.left]
        saved = [t for k, t in zip(kept, tensors) if k]
    if _saved_hooks(False) is None:
        ctx.state = output[-1]
        ctx.save_for_backward(*saved)
    else:
        # The state goes where saved tensors go, so that the hooks, as those of a checkpoint, decide
        # about both.
        token = torch.empty(0, device="cpu")
        token.gradus_state = output[-1]  # type: ignore[attr-defined]
        ctx.state = Stage
        ctx.save_for_backward(token, *saved)
    constant = [output[i] for i in compiled.constant[call.stage]]
    if constant:
        ctx.mark_non_differentiable(*[t for t in constant if t is not None])


def _save_for_forward(ctx: Any, tensors: Sequence[Any], output: Sequence[Any]) -> None:
    ctx.save_for_forward(*tensors)
    ctx.like = [
        None if t is None or not t.is_floating_point() else (t.shape, t.dtype, t.device)
        for t in output[:-1]
    ]


def _saved(ctx: Any, call: Call) -> tuple[Sequence[Any], State | None]:
    """What `_save` kept: the tensors, and the state, which is let go with them."""
    tensors, state = ctx.saved_tensors, ctx.state
    if state is Stage:
        token, *tensors = tensors
        state = getattr(token, "gradus_state", None)
    elif not _keeps_graph():
        ctx.state = None
    if ctx.left is not None:
        saved = iter(tensors)
        kept = call.compiled.kept[call.stage]
        tensors = [next(saved) if k else t for k, t in zip(kept, ctx.left)]
    return tensors, state


def _wanted_of(ctx: Any, tensors: Sequence[Any], places: Iterable[int]) -> Iterator[int]:
    """Which of a stage's inputs the backward that runs wants gradients of, among those at these
    places."""
    needs, nodes = ctx.needs_input_grad, ctx.next_functions  # of those that are there
    there = None if len(nodes) == len(tensors) else [t is not None for t in tensors]
    for i in places:
        if needs[i + 1] and _is_wanted(nodes[i if there is None else sum(there[:i])][0]):
            yield i


def _note_wanted(ctx: Any, call: Call, compiled: Compiled, tensors: Sequence[Any]) -> None:
    names = call.compiled.names[call.stage]
    wanted = set(_wanted_of(ctx, tensors, range(len(names))))
    given: Sequence[Any] = names
    if call.stage < compiled.depth:
        given = compiled.gradients[call.stage + 1]
    everything = all(i in wanted for i, g in enumerate(given) if g is not None)
    wants = None if everything else frozenset(names[i] for i in wanted)
    call.staged.note_wanted(call.wrt, call.stage + 1, wants)


def _lacks_wanted(ctx: Any, call: Call, compiled: Compiled, tensors: Sequence[Any]) -> bool:
    """Whether a gradient is wanted that the program leaves out."""
    places = compiled.left_out[call.stage + 1]
    return any(True for _ in _wanted_of(ctx, tensors, places))


def _version(t: torch.Tensor) -> int:
    return 0 if t.is_inference() else t._version


def _check_versions(ctx: Any) -> None:
    """Of what was not saved, since no later stage reads it, and is read again after all."""
    for t, version in zip(ctx.left, ctx.versions):
        if t is not None and _version(t) != version:
            raise RuntimeError(
                "one of the tensors that a stage runs again for has been modified by an inplace "
                f"operation: {list(t.shape)} is at version {_version(t)}, was at {version}"
            )


def _is_linear(ctx: Any, call: Call) -> bool:
    """Whether gradients of the last stage are wanted by cotangents alone. It is linear in those: no
    further order is asked for, but a product with its transpose, as torch.autograd.functional.hvp
    does."""
    own = len(call.compiled.inputs[0])
    if call.stage != call.staged.order or call.stage == 0:
        return False
    return not any(_is_wanted(node) for node, _ in ctx.next_functions[:own])


def _is_wanted(node: Any) -> bool:
    """Whether the backward that runs goes on to a node."""
    if node is None:
        return False
    try:
        return torch._C._will_engine_execute_node(node)
    except RuntimeError:  # of a leaf that a gradient is asked for, it does not say so
        return True


def _call_batched(staged: Staged, tensors: Sequence[Any]) -> Sequence[Any]:
    """Within torch's older vmap, that of torch.autograd.grad(…, is_grads_batched=True): its tensors
    have a dimension that does not show."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    batched = tuple([_is_batched(t) for t in tensors])
    whole = [torch._remove_batch_dim(t, level, 1, 0) if b else t for t, b in zip(tensors, batched)]
    size = next(t.shape[0] for t, b in zip(whole, batched) if b)
    results = call_staged(staged.batched(batched, size), whole)
    return [None if r is None else torch._add_batch_dim(r, 0, level) for r in results]


def _forward_mode() -> bool:
    return _transforms_active() or torch.autograd.forward_ad._current_level >= 0


def apply(call: Call, tensors: Sequence[Any]) -> Sequence[Any]:
    """A stage's results."""
    if _transforms_active():
        return Stage.apply(call, *tensors)[:-1]
    if torch.is_grad_enabled() or torch.autograd.forward_ad._current_level >= 0:
        return PlainStage.apply(call, *tensors)[:-1]
    return call.compiled.run(call.stage, call.state, tensors)[0]


def call_staged(staged: Staged, tensors: Sequence[Any]) -> Sequence[Any]:
    """Stage 0 on these tensors, differentiable by those that require it."""
    whole = True
    if _transforms_active():
        # What a transform differentiates by does not show from here.
        wrt, depth = tuple(staged.floating), staged.order
    elif torch.autograd.forward_ad._current_level >= 0:
        wrt, depth = tuple(staged.floating), staged.order
    elif torch.is_grad_enabled():
        wrt = tuple([f and t.requires_grad for f, t in zip(staged.floating, tensors)])
        # What a checkpoint saves has to be the same when it runs the function again.
        whole = _saved_hooks(False) is not None
        depth = staged.order if whole else staged.depth
    else:
        wrt, depth = (), 0
    compiled = staged.compiled(wrt, depth, whole)
    if not any(wrt) and not _transforms_active():
        return compiled.run(0, None, tensors)[0]
    return apply(Call(staged, wrt, compiled, 0, None), tensors)
