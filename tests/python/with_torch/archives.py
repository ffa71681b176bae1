"""The archives of tests/pt2/data as modules of torch's, and what eager torch gave for them."""

import pathlib

import numpy as np
import torch

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "tests/pt2/data"
NAMES = sorted(p.stem for p in FOLDER.glob("*.pt2"))


class Archive:
    """An archive's module, and its references."""

    def __init__(self, name):
        self.reference = dict(np.load(FOLDER / f"{name}.npz"))
        program = torch.export.load(FOLDER / f"{name}.pt2")
        self.module = program.module()
        types = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
        # References have complex tensors as pairs of real numbers, along a last dimension.
        self.complex = {n for n, t in types.items() if torch.is_tensor(t) and t.is_complex()}
        self.parameters = dict(self.module.named_parameters())
        self._tie()
        single = any(v.dtype == np.float32 for v in self.reference.values())
        self.tolerance = 1e-4 if single else 1e-10
        inputs = [v.dtype for k, v in self.reference.items() if k.startswith("in.")]
        # Torch's default when it was made.
        self.dtype = torch.float32 if np.dtype("float32") in inputs else torch.float64
        self.is_energy = "forces" in self.reference

    def _tie(self):
        """A parameter of two names is two in the module. Its gradient stands under the first."""
        known = [n for n in self.parameters if f"g1.param.{n}" in self.reference]
        for name in [n for n in self.parameters if n not in known]:
            for other in known:
                if _equal(self.parameters[other], self.parameters[name]):
                    path, _, last = name.rpartition(".")
                    tied = self.parameters.pop(name)
                    self.module.get_submodule(path)._parameters[last] = self.parameters[other]
                    for module in self.module.modules():
                        for n, p in module._parameters.items():
                            if p is tied:
                                module._parameters[n] = self.parameters[other]
                    break

    def prefixes(self):
        """What stands in front of the keys of each combination of sizes."""
        return ["", "alt."] if any(k.startswith("alt.") for k in self.reference) else [""]

    def tensor(self, key):
        return torch.from_numpy(self.reference[key].copy())

    def inputs(self, prefix=""):
        found = {}
        for key in self.reference:
            if key.startswith(prefix + "in."):
                t = self.tensor(key)
                found[key[len(prefix) + 3 :]] = t.requires_grad_(t.is_floating_point())
        return found

    def check(self, f, prefix=""):
        """Runs f as the module, and compares everything that there is a reference for."""
        inputs = self.inputs(prefix)
        written = [k for k in self.reference if k.startswith("input_after.")]
        given = [t * 1 if written and t.is_floating_point() else t for t in inputs.values()]
        pairs = [n in self.complex for n in inputs]
        given = [torch.view_as_complex(t) if p else t for t, p in zip(given, pairs)]
        results = torch.utils._pytree.tree_leaves(f(*given))
        results = [_real(r) for r in results if isinstance(r, torch.Tensor)]
        found = {f"out.{i}": r for i, r in enumerate(results)}
        found.update({f"input_after.{n}": t for n, t in zip(inputs, given) if written})
        buffers = dict(self.module.named_buffers())
        found.update({f"buffer_after.{n}": b for n, b in buffers.items()})
        self.compare(found, prefix, ("out.", "buffer_after.", "input_after."))
        if self.is_energy:
            self._check_forces(results[0].sum(), inputs, prefix)
        else:
            self._check_penalty(results, inputs, prefix)

    def _check_penalty(self, results, inputs, prefix):
        wanted = {f"in.{n}": t for n, t in inputs.items() if t.requires_grad}
        wanted.update({f"param.{n}": p for n, p in self.parameters.items() if p.requires_grad})
        floating = [r for r in results if r.is_floating_point()]
        objective = sum(
            (r * self.tensor(f"{prefix}ct.{i}")).sum() for i, r in enumerate(floating)
        )
        if not wanted or not objective.requires_grad:
            assert not self._keys(prefix, "g1.")
            return
        again = bool(self._keys(prefix, "g2."))
        slopes = _gradients(objective, wanted, create_graph=again)
        self.compare({f"g1.{n}": g for n, g in slopes.items()}, prefix, ("g1.",))
        if again:
            penalty = sum((g * g).sum() for g in slopes.values() if g is not None)
            second = _gradients(penalty, wanted)
            self.compare({f"g2.{n}": g for n, g in second.items()}, prefix, ("g2.",))

    def _check_forces(self, energy, inputs, prefix):
        pos = inputs["pos"]
        wanted = {f"param.{n}": p for n, p in self.parameters.items() if p.requires_grad}
        (slope,) = torch.autograd.grad(energy, pos, create_graph=True)
        self.compare({"forces": -slope}, prefix, ("forces",))
        first = _gradients(energy, wanted, retain_graph=True)
        self.compare({f"g1.{n}": g for n, g in first.items()}, prefix, ("g1.",))
        loss = ((-slope - self.tensor(prefix + "fref")) ** 2).mean()
        of_loss = _gradients(loss, {**wanted, "in.pos": pos}, retain_graph=True)
        self.compare({f"gl.{n}": g for n, g in of_loss.items()}, prefix, ("gl.",))
        (product,) = torch.autograd.grad((slope * self.tensor(prefix + "v")).sum(), pos)
        self.compare({"hvp": product}, prefix, ("hvp",))

    def _keys(self, prefix, kind):
        return [k for k in self.reference if k.startswith(prefix + kind)]

    def compare(self, found, prefix, kinds):
        """Errors are relative to the greatest element of a kind. What has no reference is zero."""
        for kind in kinds:
            keys = self._keys(prefix, kind)
            values = [np.abs(self.reference[k]).max(initial=0.0) for k in keys]
            greatest = max([float(v) for v in values] + [1e-30])
            mine = {prefix + k: t for k, t in found.items() if k.startswith(kind)}
            missing = [k for k in keys if mine.get(k) is None and self.reference[k].any()]
            assert not missing, missing
            for key, t in mine.items():
                if t is None or (key not in self.reference and kind == "buffer_after."):
                    continue
                expected = self.tensor(key) if key in self.reference else torch.zeros_like(t)
                assert t.shape == expected.shape and t.dtype == expected.dtype, key
                off = (t.detach().double() - expected.double()).abs()
                same = (t == expected) | (t.isnan() & expected.isnan())
                off = off[~same]
                error = float(off.max()) / greatest if off.numel() else 0.0
                assert error <= self.tolerance, f"{key}: {error:.1e}"


def _equal(a, b):
    return a.shape == b.shape and torch.equal(a, b)


def _real(t):
    return torch.view_as_real(t.resolve_conj()) if t is not None and t.is_complex() else t


def _gradients(of, wanted, **options):
    found = torch.autograd.grad(of, list(wanted.values()), allow_unused=True, **options)
    return dict(zip(wanted, map(_real, found)))
