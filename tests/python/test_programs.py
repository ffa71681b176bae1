"""Programs, stage by stage."""
# SPEC W4, P4

import threading

import numpy as np
import pytest

import gradus
from conftest import central_difference

SWING = """
graph swing {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %h = mul(%x, %w)
    %s = tanh(%h)
    %y = sum(%s)
    return %y
  }
}
"""


def test_stage_by_stage(rng):
    program = gradus.parse(SWING, "swing.ir").differentiate(2)
    assert program.name == "swing" and program.stages == 3
    assert [(n, str(t)) for n, t in program.inputs()] == [("x", "f64[N]"), ("w", "f64[N]")]
    assert [n for n, _ in program.results(2)] == ["d2_x", "d2_w", "d2_ct1_y"]
    code = program.compile()
    assert code.stages == 3 and "tanh" in code.disassemble()
    for n in (1, 4, 7):
        x, w = rng.normal(size=n), rng.normal(size=n)
        state = gradus.State(code)
        (y,) = state.run(x, w)
        np.testing.assert_allclose(y.item(), np.tanh(x * w).sum(), rtol=1e-14)
        assert state.dimension("N") == n and state.next_stage == 1
        kept = state.clone()
        ct = rng.normal()
        d = state.run(ct)
        slope = 1 - np.tanh(x * w) ** 2
        np.testing.assert_allclose(d.d1_x.numpy(), ct * slope * w, rtol=1e-13)
        np.testing.assert_allclose(d["d1_w"].numpy(), ct * slope * x, rtol=1e-13)
        u, v = rng.normal(size=n), rng.normal(size=n)

        def first(a):
            s = 1 - np.tanh(a * w) ** 2
            return (ct * s * w * u + ct * s * a * v).sum()

        d2 = state.run(ct2_d1_x=u, ct2_d1_w=v)
        np.testing.assert_allclose(d2.d2_x.numpy(), central_difference(first, x), atol=1e-8)
        assert state.finished
        again = kept.run(ct)
        np.testing.assert_array_equal(again.d1_x, d.d1_x)
        state.restart()
        assert state.next_stage == 0


def test_results_by_name_and_place():
    state = gradus.State(gradus.parse(SWING).differentiate(1).compile())
    r = state.run(np.array([1.0, 2.0]), np.ones(2))
    assert r.names == ("y",) and r.y is r[0] and r["y"] is r[0] and list(r.asdict()) == ["y"]
    with pytest.raises(AttributeError, match="there are y"):
        r.z
    with pytest.raises(KeyError):
        r["z"]


def test_absent_cotangents_and_structural_zeros():
    program = gradus.parse(
        """
        graph g {
          stage 0 (%x: f64[N], %n: i64[N]) {
            %a = exp(%x)
            %b = add(%n, 1)
            %c = add(%x, 2.0)
            return %a, %b, %c
          }
        }"""
    ).differentiate(1)
    state = gradus.State(program.compile())
    state.run(np.zeros(2), np.arange(2))
    twin = state.clone()
    np.testing.assert_array_equal(state.run(None, np.ones(2)).d1_x, [1, 1])
    np.testing.assert_array_equal(twin.run(None, None).d1_x, [0, 0])
    program = gradus.parse(
        "graph g { stage 0 (%x: f64[N], %w: f64[N]) { %y = add(%x, 1) %z = sign(%w) return %y, %z } }"
    ).differentiate(1)
    assert program.results(1)[1] == ("d1_w", None)  # structurally zero
    state = gradus.State(program.compile())
    state.run(np.zeros(2), np.zeros(2))
    assert state.run(None, None) == (None, None)


def test_errors_name_the_programs_line():
    with pytest.raises(gradus.Error) as e:
        gradus.parse("graph g {\n  stage 0 (%x: f64[N]) {\n    %y = tanhh(%x)\n    return %y\n  }\n}", "a.ir")
    assert (e.value.file, e.value.line, e.value.column) == ("a.ir", 3, 10)
    assert "did you mean 'tanh'" in e.value.message
    assert str(e.value).startswith("a.ir:3:10: error: there is no operator")
    assert e.value.excerpt == "    %y = tanhh(%x)\n         ^"
    bad = gradus.parse(
        "graph g {\n  stage 0 (%x: f64[N, N]) {\n    %y = inverse(%x)\n    return %y\n  }\n}", "b.ir"
    )
    state = gradus.State(bad.compile())
    with pytest.raises(gradus.Error) as e:
        state.run(np.zeros((2, 2)))
    assert e.value.line == 3 and e.value.file == "b.ir" and "singular" in e.value.message
    assert state.poisoned
    with pytest.raises(gradus.Error):
        state.run(np.eye(2))
    state.restart()
    np.testing.assert_array_equal(state.run(np.eye(2) * 2)[0], np.eye(2) / 2)


def test_wrong_inputs():
    state = gradus.State(gradus.parse(SWING).differentiate(1).compile())
    ones = np.ones(3)
    for arguments, named, match in [
        ((ones,), {}, "2 inputs|input 'w'"),
        ((ones, ones.astype("f4")), {}, "f64"),
        ((ones, np.ones(4)), {}, "4"),
        ((ones, ones, ones), {}, "3"),
        ((ones,), {"x": ones}, "twice"),
        ((ones,), {"z": ones}, "no input 'z'"),
        ((ones, {}), {}, "not dict"),
        ((ones, None), {}, "w"),
    ]:
        with pytest.raises(gradus.Error, match=match):
            state.run(*arguments, **named)
    assert not state.poisoned and state.next_stage == 0
    state.run(w=ones, x=ones)


def test_inputs_are_not_copied_unless_asked():
    program = gradus.parse("graph g { stage 0 (%x: f64[N]) { %y = square(%x) return %y } }")
    code = program.differentiate(1).compile()
    for copied, want in [(False, 20), (True, 2)]:
        x = np.ones(1)
        state = gradus.State(code)
        state.run(x, copy_inputs=copied)
        x[0] = 10  # the owner writes: documented not to be seen
        assert state.run(np.ones(1)).d1_x.tolist() == [want]


def test_save_and_resume(tmp_path, run_script, rng):
    program = gradus.parse(SWING).differentiate(2)
    path, text = str(tmp_path / "state"), tmp_path / "swing.ir"
    text.write_text(SWING)
    x, w = rng.normal(size=3), rng.normal(size=3)
    state = gradus.State(program.compile())
    state.run(x, w)
    state.save(path)
    want = state.run(1.0).d1_x.numpy()
    got = run_script(
        f"import gradus; code = gradus.load({str(text)!r}).differentiate(2).compile()\n"
        f"s = gradus.State.resume(code, {path!r}); print(s.run(1.0).d1_x.numpy().tobytes().hex())"
    )
    assert got.strip() == want.tobytes().hex()


def test_weights_and_files(tmp_path):
    np.savez(tmp_path / "w.npz", a=np.arange(3.0), b=np.ones((2, 2), "f4"))
    tensors = gradus.load_tensors(tmp_path / "w.npz")
    assert tensors["a"].tolist() == [0, 1, 2] and tensors["b"].dtype == gradus.f32
    with pytest.raises(gradus.Error, match="nowhere.ir"):
        gradus.load(tmp_path / "nowhere.ir")


def test_directions_and_gradcheck(rng):
    program = gradus.parse(SWING)
    x, w = rng.normal(size=3), rng.normal(size=3)
    report = gradus.gradcheck(program, 2, inputs={"x": x, "w": w})
    assert report and len(report.entries) == 5
    assert gradus.gradcheck(program, 1, sizes={"N": 4}, seed=3, wrt=["x"])
    r = gradus.State(program.hessian(["x"]).compile()).run(x, w)
    t = np.tanh(x * w)
    np.testing.assert_allclose(
        r.hessian_x_x.numpy(), np.diag(-2 * t * (1 - t**2) * w * w), rtol=1e-12, atol=1e-14
    )
    j = gradus.State(program.jvp().compile()).run(x, w, t_x=w, t_w=x)
    np.testing.assert_allclose(j.t_y.item(), ((1 - t**2) * (w * w + x * x)).sum(), rtol=1e-13)
    lap = gradus.State(program.laplacian(["w"]).compile()).run(x, w)
    np.testing.assert_allclose(
        lap.laplacian_w.item(), (-2 * t * (1 - t**2) * x * x).sum(), rtol=1e-12
    )


def test_wrong_derivatives_are_found():
    program = gradus.parse(
        """
        graph g {
          stage 0 (%x: f64[N]) { %y = square(%x) return %y }
          stage 1 (%ct1_y: f64[N]) { %d = mul(%ct1_y, %x) return d1_x = %d }
        }"""
    )
    assert not program.gradcheck(1, sizes={"N": 2})
    with pytest.raises(gradus.Error, match="off"):
        gradus.gradcheck(program, 1, sizes={"N": 2})


def test_deadline():
    lines = "\n".join(f"%v{i + 1} = matmul(%v{i}, %v{i})" for i in range(200))
    program = gradus.parse(f"graph g {{ stage 0 (%v0: f32[N, N]) {{ {lines} return %v200 }} }}")
    state = gradus.State(program.compile(), fusion="off")
    with pytest.raises(gradus.Error, match="deadline|time"):
        state.run(np.zeros((300, 300), "f4"), timeout=1e-3)
    assert state.poisoned


def test_gradcheck_outside_of_a_domain():
    """Where no difference is finite, nothing is wrong, and nothing was compared."""
    program = gradus.parse(
        "graph g { stage 0 (%x: f64[2]) { %s = square(%x) %n = neg(%s) %m = sub(%n, 1)"
        " %y = log(%m) return %y } }"
    )
    with pytest.raises(gradus.Error, match="x: UNCHECKED: the differences are not finite") as error:
        gradus.gradcheck(program)
    assert "WRONG" not in str(error.value) and "are off" not in str(error.value)


def test_threads_share_code(rng):
    code = gradus.parse(SWING).differentiate(1).compile()
    x, w = rng.normal(size=50), rng.normal(size=50)
    want = gradus.State(code).run(x, w).y.item()
    found = []

    def work():
        for _ in range(50):
            state = gradus.State(code)
            state.run(x, w)
            state.run(1.0)
        found.append(gradus.State(code).run(x, w).y.item())

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert found == [want] * 4


def test_two_threads_on_one_state():
    program = gradus.parse("graph g { stage 0 (%x: f32[N, N]) { %y = matmul(%x, %x) return %y } }")
    state = gradus.State(program.compile(), fusion="off")
    x = np.ones((1500, 1500), "f4")
    faults = []

    def work():
        try:
            state.run(x)
        except gradus.Error as e:
            faults.append(e)

    threads = [threading.Thread(target=work) for _ in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(faults) == 1  # in use, or no stage left


def test_a_fusion_mode_that_is_none():
    with pytest.raises(gradus.Error, match="'behind', 'first' and 'off'"):
        gradus.State(gradus.parse(SWING).compile(), fusion="full")
