"""Writes the .npz and .npy files of this folder as NumPy does. Needs numpy and ml_dtypes."""
import os

import ml_dtypes
import numpy as np

os.chdir(os.path.dirname(os.path.abspath(__file__)))

arrays = {
    "f8": np.arange(6.0).reshape(2, 3) / 4,
    "f4": np.float32([1.5, -2.25, np.inf]),
    "f2": np.float16([1.5, -2.25, 65504]),
    "bf": np.array([1.5, -2.25, 3e38]).astype(ml_dtypes.bfloat16),
    "i8": np.int64([-(2**63), 2**63 - 1]),
    "i4": np.int32([-(2**31), 2**31 - 1]),
    "i2": np.int16([-32768, 32767]),
    "i1": np.int8([-128, 127]),
    "u8": np.uint64([0, 2**63 - 1]),
    "u4": np.uint32([0, 2**32 - 1]),
    "u2": np.uint16([0, 65535]),
    "u1": np.uint8([0, 255]),
    "b1": np.array([True, False, True]),
    "big/f8": np.array([1.5, -2.25], ">f8"),
    "big/f4": np.array([1.5, -2.25], ">f4"),
    "big/f2": np.array([1.5, -2.25], ">f2"),
    "big/i8": np.array([1, -2], ">i8"),
    "big/i4": np.array([1, -2], ">i4"),
    "big/i2": np.array([1, -2], ">i2"),
    "big/u4": np.array([1, 2**32 - 2], ">u4"),
    "big/u8": np.array([1, 2], ">u8"),
    "fortran": np.asfortranarray(np.arange(24, dtype="f4").reshape(2, 3, 4)),
    "fortran_i2": np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3)),
    "scalar": np.float64(2.5),
    "empty": np.zeros((3, 0, 2), "f4"),
    "0/in.x0": np.arange(3.0),
}
np.savez("stored.npz", **arrays)
np.savez_compressed("deflated.npz", **arrays)
np.savez_compressed("large.npz", x=np.arange(40000) % 7)
np.savez("none.npz")
np.savez(
    "refused.npz",
    objects=np.array([1, "x"], object),
    complex=np.zeros(3, "c16"),
    structured=np.zeros(3, [("a", "f4"), ("b", "i4")]),
    text=np.array(["ab", "c"]),
    bytes=np.array([b"ab", b"c"]),
    dates=np.array(["2020-01-01"], "datetime64[D]"),
    long_double=np.zeros(2, np.longdouble),
    unsigned=np.uint64([1, 2**63]),
    float8=np.zeros(2).astype(ml_dtypes.float8_e4m3fn),
)
for version in (1, 2, 3):
    with open(f"version{version}.npy", "wb") as file:
        np.lib.format.write_array(file, np.arange(4, dtype="i4"), version=(version, 0))
