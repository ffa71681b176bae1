"""x[...] by operators, so that it is recorded and differentiated like any other."""

from __future__ import annotations

from typing import Any

from . import _gradus
from .errors import Error


def _one(name: str, x: _gradus.Tensor, **attributes: Any) -> _gradus.Tensor:
    return _gradus.apply(name, [x], attributes)[0]


def get(x: _gradus.Tensor, key: Any) -> _gradus.Tensor:
    """Ints, slices with positive steps, None, `...`, and tensors or lists of indices or masks."""
    keys = list(key) if isinstance(key, tuple) else [key]
    taken = sum(1 for k in keys if k is not None and k is not Ellipsis)
    if sum(1 for k in keys if k is Ellipsis) > 1:
        raise Error("an index has at most one '...'")
    if taken > x.ndim and not _has_arrays(keys):
        raise Error(f"{taken} indices are given for a tensor of {x.ndim} dimensions")
    places = [i for i, k in enumerate(keys) if k is Ellipsis]
    if places:
        at = places[0]
        keys[at : at + 1] = [slice(None)] * max(0, x.ndim - taken)
    dim = 0
    arrays: list[Any] = []  # by dimension of what is left; None takes all of it
    for k in keys:
        if k is None:
            x = _one("unsqueeze", x, dim=dim)
            arrays.append(None)
            dim += 1
        elif isinstance(k, slice):
            if k.step is not None and k.step <= 0:
                raise Error("the step of a slice must be positive; use gradus.ops.flip")
            if k != slice(None):
                x = _one("slice", x, dim=dim, start=k.start, end=k.stop, step=k.step or 1)
            arrays.append(None)
            dim += 1
        elif _is_int(k):
            x = _one("select", x, dim=dim, index=int(k))
        else:
            index = _as_index(k)
            arrays.append(index)
            dim += index.ndim if index.dtype == _gradus.DType.boolean else 1
    if any(a is not None for a in arrays):
        return _gradus.apply("index", [x, *arrays], {})[0]
    return x


def parts(x: _gradus.Tensor) -> list[_gradus.Tensor]:
    """`list(x)`: what lies along the first dimension."""
    if x.ndim == 0:
        raise TypeError("a 0-d tensor has no parts to iterate over")
    return [_one("select", x, dim=0, index=i) for i in range(len(x))]


def _is_int(k: Any) -> bool:
    if isinstance(k, bool) or isinstance(k, _gradus.Tensor):
        return False
    return hasattr(k, "__index__") and getattr(k, "ndim", 0) == 0


def _has_arrays(keys: list[Any]) -> bool:
    return any(hasattr(k, "ndim") or isinstance(k, list) for k in keys)


def _as_index(k: Any) -> _gradus.Tensor:
    import numpy

    if isinstance(k, _gradus.Tensor):
        return k
    array = numpy.asarray(k)
    if isinstance(k, list) and not array.size:  # to NumPy, an array of floats
        array = array.astype("int64")
    if array.dtype.kind not in "iub" or array.dtype.kind == "b" and array.ndim == 0:
        raise Error(f"a {type(k).__name__} is no index; ints, slices, None, '...', arrays are")
    return _gradus.from_array(array if array.dtype == bool else array.astype("int64"))
