"""Programs from files."""

from __future__ import annotations

import os
from typing import Any, Mapping, Union

from . import _gradus
from ._gradus import Program, Tensor

Path = Union[str, "os.PathLike[str]"]


def load(
    path: Path,
    values: Mapping[str, Any] | None = None,
    lengths: Mapping[str, int] | None = None,
) -> Program:
    """The program of a file: a text (.ir), or a model with its weights: ONNX (.onnx), torch.export (.pt2).

    `values` gives inputs of a model whose values decide the program's structure (the shape of a
    Reshape, a trip count), `lengths` how many tensors its inputs hold that are sequences.
    """
    return _gradus.load_program(os.fspath(path), dict(values or {}), dict(lengths or {}))


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of an .npz or .safetensors file, by name."""
    return dict(_gradus.load_tensors(os.fspath(path)))
