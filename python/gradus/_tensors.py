"""Tensors and NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _gradus
from ._gradus import DType, Tensor
from .errors import Error

if TYPE_CHECKING:
    import numpy


def tensor(data: Any, dtype: DType | str | None = None, requires_grad: bool = False) -> Tensor:
    """A tensor of these values, copied: of numbers, lists of them, or an array.

    Python's floats become f64, its ints i64, unless `dtype` says otherwise.
    """
    import numpy

    if isinstance(data, Tensor):
        made = data.detach() if dtype is None else _cast(data.detach(), dtype)
        made = made.copy()
    else:
        made = _gradus.from_array(numpy.array(data, order="C"))
        if dtype is not None:
            made = _cast(made, dtype)
    if requires_grad:
        made.requires_grad = True
    return made


def from_numpy(array: Any) -> Tensor:
    """A tensor that views the array's memory, which lives as long as the tensor.

    Nothing is copied: an array that is no tensor as it lies (of another byte order or dtype, with
    negative strides) is refused. A read-only array is taken; Gradus writes to nothing that it is
    given. What the array's owner writes later changes the tensor, and nobody notices.
    """
    return _gradus.from_array(array)


def zeros(shape: Any, dtype: DType | str = DType.f64) -> Tensor:
    """Zeros of this shape."""
    return _filled(shape, 0, dtype)


def ones(shape: Any, dtype: DType | str = DType.f64) -> Tensor:
    """Ones of this shape."""
    return _filled(shape, 1, dtype)


def _as_dtype(dtype: Any) -> DType:
    from ._dtypes import name_of

    if isinstance(dtype, DType):
        return dtype
    known = {str(d.name).replace("boolean", "bool"): d for d in DType}
    return known[dtype] if isinstance(dtype, str) and dtype in known else known[name_of(dtype)]


def _cast(x: Tensor, dtype: Any) -> Tensor:
    wanted = _as_dtype(dtype)
    if x.dtype == wanted:
        return x
    return _gradus.apply("cast", [x], {"dtype": wanted})[0]


def _filled(shape: Any, value: int, dtype: Any) -> Tensor:
    sizes = [shape] if isinstance(shape, int) else list(shape)
    wanted = _as_dtype(dtype)
    return _gradus.apply("full", [], {"shape": sizes, "value": value, "dtype": wanted})[0]


def as_numpy(x: Tensor) -> numpy.ndarray:
    """The tensor's memory as an array, read-only and without a copy."""
    import numpy

    try:
        return numpy.asarray(memoryview(x))  # type: ignore[arg-type]
    except BufferError as e:
        raise Error(str(e)) from None


def as_array(x: Tensor, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray:
    """NumPy's `__array__`."""
    import numpy

    array = as_numpy(x)
    if copy is False and dtype is not None and array.dtype != dtype:
        raise ValueError("another dtype needs a copy")
    if copy or dtype is not None:
        return numpy.array(array, dtype=dtype, copy=True if copy else None)
    return array
