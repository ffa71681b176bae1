"""Parts of staged programs as programs of their own."""

import numpy as np
import pytest

import gradus

TEXT = """
graph swing {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %h = mul(%x, %w)
    %s = tanh(%h)
    %y = sum(%s)
    return %y, %s
  }
}"""


@pytest.fixture
def staged():
    return gradus.parse(TEXT).differentiate(2)


def run(program, *inputs):
    return gradus.State(program.compile()).run(*inputs)


def stages(program, *inputs):
    """The results of all stages; `inputs` has those of each."""
    state = gradus.State(program.compile())
    return [state.run(*own) for own in inputs]


def test_join_stages(staged, rng):
    x, w, ct_s, t_x, t_w = (rng.standard_normal(3) for _ in range(5))
    results = stages(staged, (x, w), (2.0, ct_s), (t_x, t_w))
    for first in range(3):
        joined = staged.join_stages(first)
        assert joined.stages == 1
        found = run(joined, x, w, 2.0, ct_s, t_x, t_w)
        expected = [r for stage in results[first:] for r in stage]
        assert len(found) == len(expected)
        for a, b in zip(found, expected):
            assert np.array_equal(a, b)
    with pytest.raises(gradus.Error, match="no stage 3"):
        staged.join_stages(3)


def test_absent_inputs_are_zeros(staged, rng):
    x, w, t_x, t_w = (rng.standard_normal(3) for _ in range(4))
    joined = staged.join_stages(2, ["ct1_s"])
    assert [n for n, _ in joined.inputs()] == ["x", "w", "ct1_y", "ct2_d1_x", "ct2_d1_w"]
    expected = stages(staged, (x, w), (2.0, None), (t_x, t_w))[2]
    for a, b in zip(run(joined, x, w, 2.0, t_x, t_w), expected):
        assert np.allclose(a, b, atol=1e-14)
    with pytest.raises(gradus.Error, match="no input 'ct9'"):
        staged.join_stages(2, ["ct9"])


def test_a_joined_program_has_derivatives(staged):
    joined = staged.join_stages(1)
    counts = len(joined.inputs()), len(joined.results())
    joined = joined.rename(*[[f"{kind}{i}" for i in range(n)] for kind, n in zip("ir", counts)])
    assert gradus.gradcheck(joined, order=2, sizes={"N": 3})


def test_select_and_rename(staged, rng):
    x, w = rng.standard_normal(3), rng.standard_normal(3)
    one = gradus.parse(TEXT).select_results(["s"])
    assert [n for n, _ in one.results()] == ["s"] and "sum" not in str(one)
    renamed = one.rename(["a.1", "b"], ["result"])
    assert [n for n, _ in renamed.inputs()] == ["a.1", "b"]
    assert np.array_equal(run(renamed, x, w).result, np.tanh(x * w))
    gradus.parse(str(renamed))
    with pytest.raises(gradus.Error, match="no result 'z'"):
        one.select_results(["z"])
    with pytest.raises(gradus.Error, match="a name for each"):
        one.rename(["a"], ["result"])


@pytest.mark.parametrize("size", ["B", 4])
@pytest.mark.parametrize("which", [["x"], ["w"], ["x", "w"]])
def test_batch(size, which, rng):
    program = gradus.parse(TEXT)
    given = {n: rng.standard_normal((4, 3) if n in which else 3) for n in ("x", "w")}
    batched = program.batch(which, size)
    y, s = run(batched, given["x"], given["w"])
    assert y.shape == (4,) and s.shape == (4, 3)
    for i in range(4):
        row = [v[i] if n in which else v for n, v in given.items()]
        for a, b in zip((y, s), run(program, *row)):
            assert np.allclose(np.asarray(a)[i], b, atol=1e-14)
    assert gradus.gradcheck(batched, order=2, sizes={"N": 3} | ({"B": 2} if size == "B" else {}))
    with pytest.raises(gradus.Error, match="no input 'z'"):
        program.batch(["z"], size)
    with pytest.raises(gradus.Error, match="0 or more, not -4"):
        program.batch(which, -4)


def test_points_are_given_with_the_inputs_that_differ():
    program = gradus.parse(TEXT)
    for given in ({"mapped": ["x"]}, {"points": 3}):
        with pytest.raises(gradus.Error, match="given together"):
            program.jacobian(["x"], **given)
    with pytest.raises(gradus.Error, match="no input 'z'"):
        program.jacobian(["x"], ["z"], 3)
    at_points = program.jacobian(["x"], ["x"], 4)
    assert dict(at_points.results()).keys() == dict(program.jacobian(["x"]).results()).keys()
    assert all(type.shape[0] == 4 for _, type in at_points.results())
