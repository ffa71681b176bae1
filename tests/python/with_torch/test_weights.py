"""Weights that a C++ program trained, in eager torch again. SPEC T6"""

import os
import pathlib
import re
import subprocess

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")

import gradus

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "examples/pt2_training"
# The build's programs lie beside the folder of the module.
PROGRAM = pathlib.Path(gradus.__file__).parents[2] / "bin/example_pt2_training"


@pytest.mark.skipif(not PROGRAM.exists(), reason="the examples are not built")
@pytest.mark.parametrize("steps", [3, 10])
def test_trained_weights_go_home(steps, tmp_path):
    run = subprocess.run(
        [PROGRAM, "--steps", str(steps)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    (path,) = tmp_path.glob("*.safetensors")
    losses = [float(x) for x in re.findall(r"loss (\S+)", run.stdout)]
    assert len(losses) == steps + 1
    module = torch.export.load(FOLDER / "schnet.pt2").module()
    before = {n: p.clone() for n, p in module.state_dict().items()}
    module.load_state_dict(safetensors.load_file(path), strict=True)
    assert not torch.equal(module.state_dict()["emb.weight"], before["emb.weight"])
    data = np.load(FOLDER / "training.npz")

    # The program prints the loss before each step, and goes one step past the last that it prints.
    inputs = [torch.from_numpy(data[n]) for n in ("pos", "z", "edge_index")]
    inputs[0].requires_grad_()
    (slope,) = torch.autograd.grad(module(*inputs).sum(), inputs[0])
    loss = float((-slope - torch.from_numpy(data["fref"])).square().mean())
    further = subprocess.run(
        [PROGRAM, "--steps", str(steps + 1)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    expected = [float(x) for x in re.findall(r"loss (\S+)", further.stdout)][-1]
    assert loss == pytest.approx(expected, rel=1e-9)
    if steps + 1 < len(data["losses"]):
        assert loss == pytest.approx(data["losses"][steps + 1], rel=1e-8)
