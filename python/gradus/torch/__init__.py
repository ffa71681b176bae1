"""PyTorch's modules and functions as Gradus' programs, with derivatives of any order.

f = gradus.torch.function(model, order=2)                # torch tensors in and out
compiled = torch.compile(model, backend="gradus")        # the same through torch.compile
print(gradus.torch.verify(model, (x,), order=2))         # against eager torch, order by order
"""

from __future__ import annotations

from ._backend import backend
from ._function import Function, Module, function
from ._physics import Energies, energy_forces
from ._refusals import NotExported
from ._verify import Report, verify

__all__ = [
    "Energies",
    "Function",
    "Module",
    "NotExported",
    "Report",
    "backend",
    "energy_forces",
    "function",
    "verify",
]
