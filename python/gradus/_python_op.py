"""Python functions that programs call: `python_op`."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Sequence

from . import _gradus
from ._gradus import OpContext, Tensor, Type
from .errors import Error


class PythonOp:
    """A registered Python function: called, it runs (and is recorded); programs call it by name."""

    def __init__(
        self,
        name: str,
        forward: Callable[..., Any],
        backward: Callable[..., Any] | None,
        convention: str,
        results: Callable[..., Type | Sequence[Type]] | int,
        order: int | None,
        thread_safe: bool,
        replayable: bool,
    ) -> None:
        self.name = name
        self.convention = convention
        self._order = order
        self._callbacks = _Callbacks(name, forward, backward, results)
        self._registered = _gradus.register_python_op(
            name, self._callbacks, convention, self._declared(), thread_safe, replayable
        )
        self.__name__ = getattr(forward, "__name__", name)
        self.__doc__ = forward.__doc__
        try:  # a caller passes no context
            signature = inspect.signature(forward)
            self.__signature__ = signature.replace(
                parameters=list(signature.parameters.values())[1:]
            )
        except (TypeError, ValueError):
            pass

    def __call__(self, *args: Any) -> Tensor | tuple[Tensor, ...]:
        found = self._registered(*args)
        return found[0] if len(found) == 1 else tuple(found)

    def backward(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Decorates the function's backward: `backward(ctx, *cotangents)`. Once."""
        if self._callbacks.backward_function is not None:
            raise Error(f"'{self.name}' has a backward already")
        self._callbacks.backward_function = f
        self._registered.order = self._declared()
        return f

    def _declared(self) -> int:
        if self._callbacks.backward_function is None:
            return 0
        return _gradus.any_order if self._order is None else self._order

    def __repr__(self) -> str:
        return f"<python_op '{self.name}'>"


class _Callbacks:
    """What the library calls, and keeps for good. It does not refer to the PythonOp."""

    def __init__(
        self,
        name: str,
        forward: Callable[..., Any],
        backward: Callable[..., Any] | None,
        results: Callable[..., Type | Sequence[Type]] | int,
    ) -> None:
        self.name = name
        self.forward = forward
        self.backward_function = backward
        self.results = results

    def backward(self, ctx: OpContext, *cotangents: Tensor | None) -> Any:
        if self.backward_function is None:
            raise Error(f"python_op '{self.name}' has no backward")
        return self.backward_function(ctx, *cotangents)

    def infer(self, *arguments: Any) -> Any:
        if callable(self.results):
            return self.results(*arguments)
        first = next((a for a in arguments if isinstance(a, Type)), None)
        if first is None:
            raise Error("without a tensor among the arguments, `results` must say the results' types")
        return [first] * self.results


def python_op(
    name: str,
    forward: Callable[..., Any] | None = None,
    backward: Callable[..., Any] | None = None,
    *,
    convention: str = "",
    results: Callable[..., Type | Sequence[Type]] | int = 1,
    order: int | None = None,
    thread_safe: bool = False,
    replayable: bool = False,
) -> Any:
    """Registers a Python function for programs' `python_op`, under a name that is its own for good.

    `forward(ctx, *arguments)` gives a tensor (or array), or a tuple of them. `backward(ctx,
    *cotangents)` gives one gradient for each tensor argument, None where it is zero. Written with
    tensors and gradus.ops over `ctx.saved` it can be differentiated again; one that computes with
    NumPy cannot, and says so with `order=1`.

    `convention` has a letter for each argument: "tts" is tensor, tensor, scalar; empty is any number
    of tensors. `results` says the results' types: so many of the first tensor's type, or a function
    of the arguments, a Type in each tensor's place. `order` is how often the function can be
    differentiated; None: any number of times. `thread_safe` lets its backward run on the engine's
    own threads, beside others. `replayable` says that a call with the same arguments gives the same
    again, so that states which hold its handle can be saved.

    Without `forward` it is a decorator of it; `op.backward` then decorates the backward.
    """

    def make(f: Callable[..., Any]) -> PythonOp:
        return PythonOp(
            name, f, backward, convention, results, order, thread_safe, replayable
        )

    return make if forward is None else make(forward)
