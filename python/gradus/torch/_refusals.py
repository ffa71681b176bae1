"""What torch.export would drop, or writes as steps that no program has: refused while a function is
exported."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import re
import sys
import threading
import traceback
from typing import Any, Callable, Iterable, Iterator

import torch
import torch.utils.checkpoint
from torch import fx, nn

from .. import Unsupported


class NotExported(Unsupported):
    """torch.export or the importer refuses the function."""


_packages = tuple(str(pathlib.Path(m).parent) for m in (torch.__file__, __file__))
_exported = threading.local()  # .dropped: what the export drops, in order


def line_of(stack: str) -> str:
    """The innermost line outside of torch, as the start of a message."""
    found = re.findall(r'File "(.+)", line (\d+), in .*\n *(.*)', stack)
    for file, line, code in reversed(found):
        if not file.startswith(_packages):
            return f"{file}:{line}: {code.strip().rstrip(':')}: "
    return ""


def _line() -> str:
    """Of the node that torch.fx interprets, or else of the call."""
    return line_of(fx.traceback.get_current_meta().get("stack_trace") or "") or line_of(
        "".join(traceback.format_stack())
    )


def _refuse_unless_order_0(order: int, what: str, instead: str) -> None:
    refused = NotExported(
        f"{_line()}{what}, which torch.export drops. {instead}. A function that is not differentiated "
        "has order=0, which accepts it"
    )
    _exported.dropped.append(refused)
    if order > 0:
        raise refused


def check_derivative() -> None:
    """That nothing was dropped before."""
    for refused in getattr(_exported, "dropped", []):
        raise refused


def _start(order: int, _: Any) -> Any:
    def start(node: Any) -> None:
        """Called by each Function.apply, also by one that was bound before."""
        cls = type(node)._forward_cls
        module, name = cls.__module__, cls.__qualname__.rpartition("<locals>.")[2]
        # Of these, the importer reads the operator itself.
        operators = module.startswith(("torch._higher_order_ops.", "torch._library."))
        if operators or not torch.is_grad_enabled():
            return
        if (module, name) == ("torch._functorch.autograd_function", "ApplyTemplate"):
            named = "a torch.autograd.Function"  # of a graph of dynamo's
        else:
            name = f"{module}.{name}" if module.startswith("torch.") else name
            named = f"torch.autograd.Function '{name}'"
        _refuse_unless_order_0(
            order,
            f"{named} has a backward of its own",
            "Write it with operators that have the derivative: x + (x.round() - x).detach() is "
            "x.round() with the derivative of x. Or call it outside of the compiled function",
        )

    return start


def _without_checkpoint(call: Callable[..., Any], _: bool, *given: Any) -> Any:
    """Its backward is the derivative of what it calls."""
    return call(*given)


def _register(order: int, name: str, theirs: Any) -> Any:
    def register(self: torch.Tensor, hook: Callable[..., Any]) -> Any:
        _refuse_unless_order_0(
            order,
            f"Tensor.{name} adds a hook to the backward",
            "Register it outside of the compiled function, on an argument or a result, or write what "
            "it changes with operators",
        )
        return theirs(self, hook)

    return register


def check_modules(order: int, modules: Iterable[tuple[str, nn.Module]]) -> None:
    """Refuses hooks that modules have for their backward."""
    if order == 0:
        return
    for name, module in modules:
        if module._backward_hooks or module._backward_pre_hooks:
            raise NotExported(
                f"the module '{name or type(module).__name__}' has a backward hook, which torch.export "
                "drops. Register it on the compiled module. A function that is not differentiated has "
                "order=0, which accepts it"
            )


@contextlib.contextmanager
def replaced(places: Iterable[tuple[Any, str, Callable[[Any], Any]]]) -> Iterator[None]:
    """Puts a function in the place of each attribute, for this thread: a function of the old one."""
    thread = threading.get_ident()

    def of_thread(ours: Any, theirs: Any) -> Any:
        def either(*args: Any, **kwargs: Any) -> Any:
            return (ours if threading.get_ident() == thread else theirs)(*args, **kwargs)

        return either

    old = []
    try:
        for owner, name, ours in places:
            theirs = getattr(owner, name)
            old.append((owner, name, vars(owner).get(name)))
            setattr(owner, name, of_thread(ours(theirs), theirs))
        yield
    finally:
        for owner, name, theirs in reversed(old):
            if theirs is None:
                delattr(owner, name)  # it was inherited
            else:
                setattr(owner, name, theirs)


@contextlib.contextmanager
def gradients_refused(order: int) -> Iterator[None]:
    """Refuses what defines gradients of its own. With order 0, it is refused only where a derivative
    is taken after it."""
    before = getattr(_exported, "dropped", [])
    _exported.dropped = []
    places: list[tuple[Any, str, Callable[[Any], Any]]] = [
        (torch.autograd.function.BackwardCFunction, "__init__", functools.partial(_start, order)),
        (torch.utils.checkpoint.CheckpointFunction, "apply", lambda _: _without_checkpoint),
    ]
    for name in ("register_hook", "register_post_accumulate_grad_hook"):
        places.append((torch.Tensor, name, functools.partial(_register, order, name)))
    try:
        with replaced(places):
            yield
    finally:
        dropped, _exported.dropped = _exported.dropped, before
        if order > 0 and dropped:  # dynamo, which traces branches, passes over errors
            dropped[0].args = (dropped[0].message,)  # torch.fx adds its own lines
            raise dropped[0]


_wrappers: dict[Any, str] = {}  # the code that runs a transform: the transform's name


def _read_wrappers() -> None:
    from torch._functorch import eager_transforms as functorch

    for name in ("jacrev", "jacfwd", "linearize"):
        own = getattr(functorch, name).__code__
        for code in (own, *own.co_consts):
            if isinstance(code, type(own)):
                _wrappers[code] = name


def _transform(step: str) -> str:
    """The one that was called, of which this is a step."""
    if not _wrappers:
        _read_wrappers()
    frame = sys._getframe()
    while frame is not None:
        file = frame.f_code.co_filename
        if file != __file__ and file.startswith(_packages[1]):
            break  # what is beyond called us
        name = _wrappers.get(frame.f_code)
        if name is not None:
            inner = getattr(frame.f_locals.get("func"), "__code__", None)
            both = name == "jacfwd" and _wrappers.get(inner) == "jacrev"
            return f"torch.func.{'hessian' if both else name}"
        frame = frame.f_back
    return step


def _refuse_transform(step: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        name = _transform(step)
        raise NotExported(
            f"{_line()}{name} is not supported inside a function that is exported. Supported there are "
            "torch.autograd.grad, torch.func.grad, grad_and_value and vjp, and "
            "torch.autograd.functional.jacobian and hessian. Or apply a transform of torch.func to the "
            "compiled function"
        )

    return refuse


def transforms_refused() -> Any:
    """Refuses those that torch.export writes step by step, or not at all."""
    from torch import _vmap_internals
    from torch._functorch import apis, eager_transforms
    from torch.autograd import forward_ad, functional

    steps = [
        (apis, "vmap_impl", "torch.vmap"),
        (eager_transforms, "_jvp_with_argnums", "torch.func.jvp"),
        (forward_ad, "enter_dual_level", "torch.autograd.forward_ad"),
        (_vmap_internals, "_vmap", "torch.autograd.grad with is_grads_batched"),
        (functional, "_vmap", "torch.autograd.functional with vectorize"),
    ]
    return replaced([(m, name, lambda _, s=s: _refuse_transform(s)) for m, name, s in steps])


_steps = {
    "_vmap_increment_nesting": "vmap",
    "_jvp_increment_nesting": "jvp",
    "_grad_increment_nesting": "grad or vjp",
}


def check_graph(graph: fx.GraphModule) -> None:
    """Refuses transforms, which dynamo's graphs have as their steps."""
    parts = [m.graph for m in graph.modules() if isinstance(m, fx.GraphModule)]
    nodes = [n for part in parts for n in part.nodes if n.op == "call_function"]
    first, steps = -1, set()
    for i, node in enumerate(nodes):
        step = _steps.get(getattr(node.target, "__name__", ""))
        if step:
            first = i if first < 0 else first
            steps.add(step)
    if steps:
        lines = [line_of(n.meta.get("stack_trace") or "") for n in nodes[first:]]
        raise NotExported(
            f"{next(filter(None, lines), '')}a transform of torch.func ({', '.join(sorted(steps))}) is "
            "not supported inside torch.compile. Inside a function of gradus.torch.function, grad, "
            "grad_and_value and vjp are, and each can be applied to such a function"
        )
