"""From a module or function to a program: torch exports it, and the importer reads that."""

from __future__ import annotations

import contextlib
import io
import re
import threading
import warnings
from typing import Any, Callable, NamedTuple, Sequence

import torch
from torch import nn

from .. import Error, Program, _gradus
from ._derivatives import derivatives_inside
from ._modules import Traced
from ._refusals import NotExported, check_modules, gradients_refused, transforms_refused
from ._trees import Structure, flatten


class Stored(NamedTuple):
    """An input that the module brings: a parameter or buffer by its name, or else a value."""

    name: str
    value: torch.Tensor | None


class Imported(NamedTuple):
    """A program of one stage: it takes `names` user tensors, then `stored` ones, and gives the
    results' tensors, then new values of what it writes."""

    program: Program
    stored: list[Stored]
    outputs: Structure
    written: list[int]  # which of its inputs the further results are new values of
    fits: Callable[[Sequence[torch.Tensor]], bool]  # whether it is of tensors of these sizes
    named_sizes: bool
    complex_inputs: list[int]  # torch's complex tensors: programs have their parts, last
    complex_results: list[int]


class Exports:
    """One at a time: torch.export puts tensors of its own in the place of a module's."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.count = 0  # odd while one runs
        self._thread = 0

    def __enter__(self) -> None:
        self.lock.acquire()
        self._thread = threading.get_ident()
        self.count += 1

    def __exit__(self, *_: Any) -> None:
        self.count += 1
        self.lock.release()

    def run_elsewhere(self) -> bool:
        """Whether one runs, of another thread's."""
        return self.count % 2 == 1 and self._thread != threading.get_ident()

    def read(self, tensors: Callable[[], list[torch.Tensor]]) -> list[torch.Tensor]:
        """A module's own tensors."""
        before = self.count
        found = tensors()
        if before == self.count and not before % 2:
            return found
        with self.lock:
            return tensors()


exports = Exports()


def import_function(
    traced: Traced,
    call: Callable[..., Any],
    structure: Structure,
    names: list[str],
    tensors: Sequence[torch.Tensor],
    dynamic: Any,
    order: int,
) -> Imported:
    """`call(*args, **kwargs)` for arguments like these. `dynamic`: torch.export's specification of
    each tensor's sizes, in order, or None. `order`: how often it is to be differentiated."""
    check_modules(order, traced.named_modules())
    out: list[Structure] = []

    def run(*given: torch.Tensor) -> Any:
        args, kwargs = structure.fill(given)
        results, made = flatten(call(*args, **kwargs))
        if any(isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)) for x in made.rest):
            raise NotExported("a result is a size that has a name; give it as a tensor")
        out.append(made)
        return tuple(results)

    module = traced.named(names, run)
    sizes = None if dynamic is None else tuple(dynamic)

    def export() -> Any:
        # All of them require gradients, so that one that is taken inside stays connected. Where the
        # function does what that forbids (it writes to an argument, detaches in place, or takes
        # statistics of a norm): those that do in this call, or none.
        own = tuple([t.requires_grad for t in tensors])
        refused: Exception | None = None
        for require in dict.fromkeys([(True,) * len(own), own, (False,) * len(own)]):
            try:
                examples = tuple(_example(t, r) for t, r in zip(tensors, require))
                return torch.export.export(module, examples, dynamic_shapes=sizes, strict=False)
            except Exception as e:
                refused = refused or e
                if not isinstance(e, RuntimeError):
                    break
        assert refused is not None
        raise refused

    with exports, _plain_parameters(traced), _outside(), contextlib.ExitStack() as stack:
        stack.enter_context(derivatives_inside())
        stack.enter_context(transforms_refused())
        stack.enter_context(gradients_refused(order))
        try:
            exported = export()
        except Error:
            raise
        except Exception as e:
            raise NotExported(f"torch.export refuses it: {_first_lines(e)}") from e
        for t in exported.constants.values():
            if isinstance(t, torch.Tensor) and t.grad_fn is not None and t._base is None:
                t.detach_()  # the trace wrote to it
        if not exported.graph_signature.output_specs:
            raise NotExported("it gives no tensor, and writes to none")
        archive = _save(exported)
    try:
        program = _gradus.import_pt2(archive, "the exported program")
    except Error as e:
        raise NotExported(str(e)) from e
    stored = _stored(program, exported, len(tensors))
    _check_constants(stored, traced, call, structure, tensors)
    count = out[-1].count
    inputs = [n for n, _ in program.inputs()]
    written = [_input_of(n, inputs) for n, _ in program.results()[count:]]
    for i in written:
        # The trace has written to it, too: the first call would do so twice.
        if i >= len(tensors) and stored[i - len(tensors)].value is not None:
            raise NotExported(
                "the function writes to a tensor that it captures, which is no argument, parameter or "
                "buffer of the module: give it as an argument, or register it as a buffer"
            )
    given = [*tensors, *(_value_of(s, exported) for s in stored)]
    of_inputs = [i for i, t in enumerate(given) if t is not None and t.is_complex()]
    of_results = [i for i, t in enumerate(_outputs(exported)[:count]) if t.is_complex()]
    of_results += [count + i for i, at in enumerate(written) if at in of_inputs]
    fits = _fits(exported, names)
    named = dynamic is not None
    return Imported(program, stored, out[-1], written, fits, named, of_inputs, of_results)


def _value_of(stored: Stored, exported: Any) -> torch.Tensor | None:
    if stored.value is not None:
        return stored.value
    tensor = exported.state_dict.get(stored.name)
    if tensor is None:
        tensor = exported.state_dict.get(re.sub(r"_\d+$", "", stored.name))
    return tensor


def _outputs(exported: Any) -> list[torch.Tensor]:
    places = {n.name: n.meta["val"] for n in exported.graph.nodes if "val" in n.meta}
    names = exported.graph_signature.user_outputs
    return [places[n] for n in names if isinstance(n, str) and n in places]


def _example(t: torch.Tensor, requires_grad: bool = True) -> torch.Tensor:
    inside = torch._C._are_functorch_transforms_active()
    with _outside():
        if inside:
            made = torch.empty(t.shape, dtype=t.dtype, device=t.device)
        else:
            made = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)
        return made.requires_grad_(requires_grad and (t.is_floating_point() or t.is_complex()))


def _plain_parameters(traced: Traced) -> Any:
    """Within a transform, torch.func.functional_call may have put its tensors in their places."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    named = [*traced.named_parameters(), *traced.named_buffers()]
    if not any(wrapped(t) for _, t in named):
        return contextlib.nullcontext()
    from torch.nn.utils.stateless import _reparametrize_module

    with _outside():
        plain: dict[str, torch.Tensor] = {}
        for name, t in traced.named_buffers():
            plain[name] = torch.empty(t.shape, dtype=t.dtype, device=t.device)
        for name, t in traced.named_parameters():
            plain[name] = nn.Parameter(torch.empty(t.shape, dtype=t.dtype, device=t.device))
    return _reparametrize_module(traced, plain)


@contextlib.contextmanager
def _outside() -> Any:
    """Outside of torch.func's transforms, with gradients on and without torch.export's warnings."""
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    with contextlib.ExitStack() as stack:
        if torch._C._are_functorch_transforms_active():
            stack.enter_context(temporarily_clear_interpreter_stack())
        stack.enter_context(torch.enable_grad())
        if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
            # A checkpoint counts what is saved.
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield


def _save(exported: Any) -> bytes:
    exported._example_inputs = None  # else they are pickled into the archive
    _part(exported.state_dict)
    buffer = io.BytesIO()
    torch.export.save(exported, buffer)
    return buffer.getvalue()


def _part(tensors: dict[str, torch.Tensor]) -> None:
    """Gives memory of their own to parameters that share it and are not one: what shares memory in
    an archive is tied, and has one gradient."""
    owners: dict[int, torch.Tensor] = {}
    for name, t in list(tensors.items()):
        if owners.setdefault(t.untyped_storage().data_ptr(), t) is not t:
            copy = t.detach().clone()
            tensors[name] = nn.Parameter(copy) if isinstance(t, nn.Parameter) else copy


def _first_lines(e: Exception) -> str:
    text = str(e).strip() or type(e).__name__
    lines = text.splitlines()
    shown = lines[:12]
    return "\n".join(shown) + ("\n…" if len(lines) > len(shown) else "")


def _stored(program: Program, exported: Any, user: int) -> list[Stored]:
    known = {*exported.state_dict, *exported.constants}
    found = []
    for name, _ in program.inputs()[user:]:
        if name not in known:  # it has a number behind it, for an input has its name
            name = re.sub(r"_\d+$", "", name)
        value = exported.constants.get(name)
        found.append(Stored(name, value if isinstance(value, torch.Tensor) else None))
    return found


def _check_constants(
    stored: list[Stored],
    traced: Traced,
    call: Callable[..., Any],
    structure: Structure,
    tensors: Sequence[torch.Tensor],
) -> None:
    """Refuses tensors that require gradients and are known to no module: torch.export makes
    constants of them."""
    if not any(
        "lifted_tensor" in s.name and (s.value.is_floating_point() or s.value.is_complex())
        for s in stored
        if s.value is not None
    ):
        return
    from torch.nn.utils.stateless import _reparametrize_module

    own = {n: p.detach() for n, p in traced.named_parameters()}
    own.update({n: b.detach().clone() for n, b in traced.named_buffers()})
    with _outside(), _reparametrize_module(traced, own):
        args, kwargs = structure.fill([torch.ones_like(_example(t)) for t in tensors])
        try:
            with _unwritten([s.value for s in stored if s.value is not None]):
                results, _ = flatten(call(*args, **kwargs))
        except Exception:
            return  # values of no meaning
    if any(r.requires_grad for r in results):
        raise Error(
            "the function reads a tensor that requires a gradient and is no argument, parameter or "
            "buffer: it would be a constant. Give it as an argument, or register it as a parameter"
        )


@contextlib.contextmanager
def _unwritten(tensors: Sequence[torch.Tensor]) -> Any:
    """Takes back what is written to them."""
    before = [(t, t._version, t.detach().clone()) for t in tensors]
    try:
        yield
    finally:
        for t, version, value in before:
            if t._version != version:
                t.detach_().copy_(value)


def _input_of(result: str, inputs: list[str]) -> int:
    for name in (result, re.sub(r"_\d+$", "", result)):
        if name in inputs:
            return inputs.index(name)
    raise Error(f"the result '{result}' of the exported program is none of its inputs")


def _fits(exported: Any, names: list[str]) -> Callable[[Sequence[torch.Tensor]], bool]:
    """Sizes that are constants in the program, and what the trace went by."""
    fixed: list[tuple[int, int, int]] = []
    places = {n.name: n for n in exported.graph.nodes if n.op == "placeholder"}
    ranks = []
    for i, name in enumerate(exported.graph_signature.user_inputs):
        shape = places[name].meta["val"].shape
        ranks.append(len(shape))
        for d, n in enumerate(shape):
            if isinstance(n, int):
                fixed.append((i, d, n))
            elif n.node.expr.is_number:
                fixed.append((i, d, int(n.node.expr)))
    guards = [g for g in getattr(exported, "_guards_code", None) or [] if "L[" in g]
    text = " and ".join(f"({g})" for g in guards) or "True"
    code = compile(text, "<guards>", "eval")
    scope = {"math": __import__("math"), "torch": torch}

    def fits(tensors: Sequence[torch.Tensor]) -> bool:
        if [t.dim() for t in tensors] != ranks:
            return False
        if any(tensors[i].shape[d] != n for i, d, n in fixed):
            return False
        return bool(eval(code, scope, {"L": dict(zip(names, tensors))}))

    return fits
