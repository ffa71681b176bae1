"""bench/python/every_float.py: the errors that docs/math-functions.md publishes."""

import importlib.util
import os
import pathlib
import sys

import numpy as np
import pytest


@pytest.fixture(scope="module")
def every_float():
    root = pathlib.Path(os.environ.get("GRADUS_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
    spec = importlib.util.spec_from_file_location("every_float", root / "bench/python/every_float.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["every_float"] = module
    spec.loader.exec_module(module)
    return module


def test_errors_are_in_units_of_the_last_place(every_float):
    got = np.array([1, 1, 0.5, 2.0**-149, 3.0e38, np.inf], np.float32)
    want = np.array([1, 1 + 2.0**-24, 0.5 + 2.0**-26, 2.5 * 2.0**-149, 3.0e38, np.inf])
    assert list(every_float.ulps(got, want)[[0, 1, 2, 3, 5]]) == [0, 0.5, 0.25, 1.5, 0]
    assert every_float.ulps(got, want)[4] <= 0.5


def test_what_is_wrong_counts(every_float):
    got = np.array([0.0, np.nan, 1, np.inf, -np.inf, 0.0, np.nan, 1], np.float32)
    want = np.array([-0.0, 1, np.nan, 1, np.inf, 0.0, np.nan, 1e300])
    assert list(every_float.ulps(got, want)) == [1e30, 1e30, 1e30, 1e30, 1e30, 0, 0, 1e30]


def test_infinity_is_next_to_the_largest_float(every_float):
    largest = np.finfo(np.float32).max
    got = np.array([largest, np.inf, -largest, -np.inf, largest, 2.0**100], np.float32)
    want = np.array([2.0**128, 2.0**128 - 2.0**104, -(2.0**128), -(2.0**128) + 2.0**104, np.inf, 2.0**128])
    assert list(every_float.ulps(got, want)) == [1, 1, 1, 1, 1e30, 1e30]


def test_functions_are_within_what_is_published(every_float):
    published = {"exp": 0.97, "sin": 0.76, "erf": 1.48, "lgamma": 1.5, "digamma": 1.5, "fast_exp": 1.06}
    every = 104729
    for name, bound in published.items():
        error, _ = every_float.worst_of(every_float.functions()[name], 0, (1 << 32) // every, every)
        assert 0.4 < error <= bound, name


def test_errors_near_zeros_are_absolute(every_float):
    digamma = every_float.functions()["digamma"]
    bits = int(np.array(1.4616321, np.float32).view(np.uint32))
    near, _ = every_float.worst_of(digamma, bits - 100, 200, 1)
    digamma.away = 0
    assert near <= 1.5 < every_float.worst_of(digamma, bits - 100, 200, 1)[0]
