"""What the tests of the Python module share."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

_number = itertools.count()


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def fresh():
    """A name for a python_op: names are registered for good."""
    return lambda stem="f": f"test.{stem}.{next(_number)}"


@pytest.fixture
def run_script(tmp_path):
    """Runs a program in a process of its own; what it prints. Its end must be clean."""

    def run(text, expect=0):
        script = tmp_path / "script.py"
        script.write_text(text)
        done = subprocess.run(
            [sys.executable, script],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        assert done.returncode == expect, done.stdout + done.stderr
        run.stderr = done.stderr
        return done.stdout

    return run


def central_difference(f, x, h=1e-6):
    """The gradient of a number-valued f, by NumPy alone."""
    x = np.array(x, dtype=float)
    g = np.zeros_like(x)
    for i in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[i] += h
        down[i] -= h
        g[i] = (f(up) - f(down)) / (2 * h)
    return g
