"""Writes tests/pt2/models: graphs of torch.export, without what the importer does not read, and
what eager torch gives. Run it with torch installed: python tests/pt2/write_models.py"""

import io
import json
import math
import pathlib
import zipfile

import torch
import torch.nn.functional as F
from torch.export import Dim

FOLDER = pathlib.Path(__file__).parent / "models"
torch.set_default_dtype(torch.float64)


def made_without_grad(x):
    with torch.no_grad():
        norm = x.norm().clamp_min_(1e-3)
        waves = x.sin()
        waves += 1
    return x * waves / norm


# Each with the sizes, or integers, that it is exported with and runs with.
MODELS = {
    "power": (lambda x: x * x.shape[0] ** -0.5, [[[6, 4]], [[9, 4]]]),
    "inverse": (lambda x: x * (1 / x.shape[0]), [[[6, 4]], [[9, 4]]]),
    "linear": (lambda x: x * (-(x.shape[0] * 0.5 - 8.25)), [[[6, 4]], [[9, 4]]]),
    "base": (lambda x: x * 1.5 ** x.shape[0], [[[6, 4]], [[9, 4]]]),
    "full": (lambda x: x + torch.full((x.shape[0], 1), 1 / x.shape[0]), [[[6, 4]], [[9, 4]]]),
    "new_full": (lambda x: x.new_full((2, x.shape[0]), x.shape[0] * 2.0), [[[6, 4]], [[9, 4]]]),
    "compared": (lambda x: torch.where(x < x.shape[0] / 8, x, 0.5), [[[6, 4]], [[9, 4]]]),
    "interpolated": (
        lambda x: F.interpolate(x, scale_factor=1.5, mode="linear"),
        [[[1, 2, 6]], [[1, 2, 9]]],
    ),
    "integer_input": (lambda x, n: x * n + n, [[[6], 5], [[6], 3]]),
    "no_grad_writes": (made_without_grad, [[[6, 4]], [[9, 4]]]),
}


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, n=None):
        return self.function(x) if n is None else self.function(x, n)


def argument(shape):
    if isinstance(shape, int):
        return shape
    return torch.arange(1.0, math.prod(shape) + 1).reshape(shape) / math.prod(shape)


def without(value, keys):
    if isinstance(value, dict):
        return {k: without(v, keys) for k, v in value.items() if k not in keys}
    return [without(v, keys) for v in value] if isinstance(value, list) else value


for name, (function, runs) in MODELS.items():
    args = [argument(a) for a in runs[0]]
    sizes = [
        {a.ndim - 1 if a.ndim == 3 else 0: Dim.AUTO} if torch.is_tensor(a) else Dim.DYNAMIC
        for a in args
    ]
    module = Function(function)
    exported = torch.export.export(module, tuple(args), dynamic_shapes=tuple(sizes), strict=False)
    file = io.BytesIO()
    torch.export.save(exported, file)
    with zipfile.ZipFile(file) as archive:
        (member,) = [n for n in archive.namelist() if n.endswith("models/model.json")]
        model = json.loads(archive.read(member))
    unread = {"metadata", "hint", "device", "layout", "opset_version", "torch_version", "out_spec"}
    model = without(model, unread)
    model["runs"] = []
    for run in runs:
        args = [argument(a) for a in run]
        result = module(*args)
        model["runs"].append({"arguments": run, "result": result.flatten().tolist()})
    (FOLDER / f"{name}.json").write_text(json.dumps(model) + "\n")
