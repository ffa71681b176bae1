"""NumPy's dtypes by Gradus' names."""

from __future__ import annotations

from typing import Any

from .errors import Error

_names = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint64": "u64",
    "uint32": "u32",
    "uint16": "u16",
    "uint8": "u8",
    "bool": "bool",
}


def name_of(dtype: Any) -> str:
    """Of a NumPy dtype, scalar type or name, or of Python's float, int or bool."""
    import numpy

    try:
        name = numpy.dtype(dtype).name
    except TypeError:
        name = None
    if name is None or name not in _names:
        raise Error(
            f"{dtype!r} is no dtype; the dtypes are f64, f32, f16, bf16, i64, i32, i16, i8, u64, "
            "u32, u16, u8, bool, and NumPy's of those"
        )
    return _names[name]
