"""Initial value problems, as loops: their derivatives are those of the steps."""

from __future__ import annotations

from typing import Any, Callable

from . import _gradus, ops
from ._display import without_values
from ._gradus import Tensor
from ._loops import scan, type_of, while_loop
from ._tensors import tensor
from ._trees import is_leaf_tensor
from .errors import Error

Rates = Callable[[Tensor, Any], Tensor]


def _times(ts: Any) -> list[float]:
    if isinstance(ts, Tensor):
        if _gradus.is_tracing():
            raise Error("odeint: inside a recording `ts` has to be a sequence of numbers, and is a tensor")
        ts = ts.tolist()
    times = [float(t) for t in ts]
    if not times:
        raise Error("odeint: `ts` is empty; it needs the time of y0 at least")
    for a, b in zip(times, times[1:]):
        if not a < b:
            raise Error(f"odeint: `ts` has to ascend; {b} comes after {a}")
    return times


def _checked(f: Callable[..., Any], args: tuple[Any, ...], y0: Tensor) -> Rates:
    def rates(y: Tensor, t: Any) -> Tensor:
        dy = f(y, t, *args)
        if not is_leaf_tensor(dy):
            raise Error(f"odeint: the function gives {without_values(dy)}; it has to give a tensor, {type_of(y0)}")
        dy = dy if isinstance(dy, Tensor) else _gradus.as_tensor(dy)
        if type_of(dy) != type_of(y0):
            raise Error(f"odeint: y0 is {type_of(y0)}, and the function gives {type_of(dy)}")
        return dy

    return rates


def _rk4(f: Rates, y0: Tensor, times: list[float], steps: int) -> Tensor:
    starts, sizes = [], []
    for a, b in zip(times, times[1:]):
        h = (b - a) / steps
        starts.append([a + h * i for i in range(steps)])
        sizes.append([h] * steps)

    def step(y: Tensor, at: Any) -> tuple[Tensor, None]:
        t, h = at
        k1 = f(y, t)
        k2 = f(y + k1 * (h * 0.5), t + h * 0.5)
        k3 = f(y + k2 * (h * 0.5), t + h * 0.5)
        k4 = f(y + k3 * h, t + h)
        return y + (k1 + (k2 + k3) * 2.0 + k4) * (h / 6.0), None

    def interval(y: Tensor, at: Any) -> tuple[Tensor, Tensor]:
        y, _ = scan(step, y, at)
        return y, y

    grid = tensor(starts, dtype=y0.dtype), tensor(sizes, dtype=y0.dtype)
    _, ys = scan(interval, y0, grid)
    return ops.cat([y0.unsqueeze(0), ys], 0)


# The nodes, the stages' weights, and the difference of the two solutions' weights.
_NODES = (0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_STAGES: tuple[tuple[float, ...], ...] = (
    (),
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def _combined(ks: list[Tensor], weights: tuple[float, ...]) -> Tensor:
    terms = [k * w for k, w in zip(ks, weights) if w != 0.0]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _stages(f: Rates, k: Tensor, y: Tensor, t: Tensor, size: Tensor) -> tuple[list[Tensor], Tensor]:
    """The stages of a step from y, where f is k, and where the step comes to."""
    ks, new = [k], y
    for node, weights in zip(_NODES[1:], _STAGES[1:]):
        new = y + _combined(ks, weights) * size
        ks.append(f(new, t + size * node))
    return ks, new


def _dopri5_interval(
    f: Rates, y: Tensor, h: Tensor, start: float, end: float, rtol: float, atol: float, max_steps: int
) -> tuple[Tensor, Tensor]:
    """y at the end, and the size of the next step."""
    dtype = y.dtype
    last = tensor(end, dtype=dtype)

    def more(at: Any) -> Tensor:
        return ops.logical_and(at[0] < last, at[3] < max_steps)

    def step(at: Any) -> Any:
        t, y, h, n = at
        left = last - t
        now = ops.minimum(h, left)
        k = f(y, t)
        ks, new = _stages(f, k, y, t, now)
        scale = ops.maximum(ops.abs(y), ops.abs(new)) * rtol + atol
        ratio = _combined(ks, _ERROR) * now / scale
        # The size of a step is no function of what is differentiated: a derivative is that of the
        # steps taken.
        error = ops.sqrt((ratio * ratio).mean()).detach()
        good = error <= 1.0
        factor = ops.clamp(ops.pow(ops.maximum(error, 1e-10), -0.2) * 0.9, min=0.2, max=10.0)
        shrunk = ops.where(error == error, factor, 0.2)
        # A step that was cut to the end says nothing about the next one's size, unless it failed.
        following = ops.where(ops.logical_and(good, left < h), h, now * shrunk).detach()
        reached = ops.where(left <= h, last, t + now)
        # Nothing is differentiated through a trial: one that fails may have left where f has
        # derivatives. The step is taken by itself, and is none then.
        taken = ops.where(good, now, 0.0)
        _, new = _stages(f, k, y, t, taken)
        return ops.where(good, reached, t), ops.where(good, new, y), following, n + 1

    begin = tensor(start, dtype=dtype)
    t, y, h, n = while_loop(more, step, (begin, y, h, tensor(0, dtype=_gradus.DType.i64)))
    if not _gradus.is_tracing():
        if t.item() < last.item():
            raise Error(
                f"odeint: {max_steps} steps of dopri5 from {start} came to {t.item()}, not to {end}; "
                "the equation may be stiff: allow more steps, or a larger rtol or atol"
            )
        return y, h
    return ops.where(t < last, float("nan"), y), h


def _dopri5(
    f: Rates, y0: Tensor, times: list[float], rtol: float, atol: float, max_steps: int
) -> Tensor:
    ys, y = [y0], y0
    h = tensor(1e-3 * (times[-1] - times[0]), dtype=y0.dtype)
    for a, b in zip(times, times[1:]):
        y, h = _dopri5_interval(f, y, h, a, b, rtol, atol, max_steps)
        ys.append(y)
    return ops.stack(ys, 0)


def odeint(
    f: Callable[..., Any],
    y0: Any,
    ts: Any,
    *args: Any,
    method: str = "rk4",
    rtol: float = 1e-6,
    atol: float = 1e-8,
    steps: int = 10,
    max_steps: int = 1000,
) -> Tensor:
    """y at the times `ts`, numbers that ascend, along a new first dimension, where dy/dt = `f(y, t,
    *args)` and y is `y0` at ts[0]. y is a floating tensor of any shape, and f gives one of its type.

    `method="rk4"` takes `steps` steps of the classical Runge-Kutta method between two times: a scan,
    with derivatives of every order (E. Hairer, S. P. Norsett and G. Wanner, Solving Ordinary
    Differential Equations I, 1993, section II.1).

    `method="dopri5"` takes steps of the method of order 5(4) of J. R. Dormand and P. J. Prince, A
    family of embedded Runge-Kutta formulae (1980), whose sizes hold the error of each step below
    `atol + rtol |y|`, in the root of the mean square: a while_loop for each interval. Derivatives are
    those of the steps taken, with their sizes as constants; a step calls f once at y, six times to find
    its size, and six times to be taken. More than `max_steps` steps in an interval
    are an Error; in what is recorded, which cannot throw, the rest of the result is NaN.
    """
    y = y0 if isinstance(y0, Tensor) else _gradus.as_tensor(y0)
    if not type_of(y).is_floating:
        raise Error(f"odeint: y0 is {type_of(y)}; it has to be floating")
    times, rates = _times(ts), _checked(f, args, y)
    if method not in ("rk4", "dopri5"):
        raise Error(f"odeint: the method is {method!r}; there are 'rk4' and 'dopri5'")
    if steps < 1 or max_steps < 1:
        raise Error(f"odeint: steps is {steps} and max_steps {max_steps}; both have to be 1 at least")
    if len(times) == 1 or 0 in y.shape:
        return ops.stack([y] * len(times), 0)
    if method == "rk4":
        return _rk4(rates, y, times, steps)
    return _dopri5(rates, y, times, rtol, atol, max_steps)
