"""What the documentation shows runs as it stands."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["docs/python.md", "README.md"])
def test_code_runs(name, run_script):
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(), re.M | re.S)
    assert blocks
    run_script("\n".join(blocks) + "\nprint('end')\n")
