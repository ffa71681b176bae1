"""What docs/pytorch.md shows runs as it stands, from top to bottom."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

ROOT = pathlib.Path(__file__).resolve().parents[3]


def test_code_runs(tmp_path):
    page = (ROOT / "docs/pytorch.md").read_text()
    blocks = re.findall(r"^```python.*?\n(.*?)^```", page, re.M | re.S)
    assert blocks
    info = tmp_path / "gradus-0.dist-info"  # as installed: see test_backend.py
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gradus\nVersion: 0\n")
    (info / "entry_points.txt").write_text(
        "[torch_dynamo_backends]\ngradus = gradus.torch:backend\n"
    )
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks))
    path = os.pathsep.join([str(tmp_path)] + [p for p in sys.path if p])
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
