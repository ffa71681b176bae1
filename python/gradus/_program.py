"""Programs from files."""

from __future__ import annotations

import os
from typing import Union

from . import _gradus
from ._gradus import Program, Tensor

Path = Union[str, "os.PathLike[str]"]


def load(path: Path) -> Program:
    """The program of a file: a text (.ir), or an ONNX model (.onnx) with its weights."""
    return _gradus.load_program(os.fspath(path))


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of an .npz or .safetensors file, by name."""
    return dict(_gradus.load_tensors(os.fspath(path)))
