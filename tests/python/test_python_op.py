"""Python functions in programs."""
# SPEC W4, I9

import gc
import traceback
import weakref

import numpy as np
import pytest

import gradus
from gradus import ops


def scaled_sine(name, **options):
    """y = s sin(x) w, "tts"."""

    @gradus.python_op(name, convention="tts", **options)
    def op(ctx, x, w, s):
        ctx.save(x, w)
        return np.sin(x) * np.asarray(w) * s

    @op.backward
    def _(ctx, dy):
        x, w = ctx.saved
        (s,) = ctx.scalars
        return dy * ops.cos(x) * w * s, dy * ops.sin(x) * s

    return op


def program_of(name, scalars="[2.5]"):
    return gradus.parse(
        f"""
        graph g {{
          stage 0 (%x: f64[N], %w: f64[N]) {{
            %h = mul(%x, 1.5)
            %s = python_op(%h, %w) {{name = "{name}", convention = "tts", scalars = {scalars}}}
            %y = sum(%s)
            return %y, %s
          }}
        }}""",
        "op.ir",
    )


@pytest.mark.parametrize("n", [1, 3, 6])
def test_gradcheck_at_orders_1_and_2(n, rng, fresh):
    name = fresh()
    scaled_sine(name)
    x, w = rng.normal(size=n), rng.normal(size=n)
    program = program_of(name)
    y, s = gradus.State(program.compile()).run(x, w)
    np.testing.assert_allclose(s.numpy(), np.sin(1.5 * x) * w * 2.5, rtol=1e-14)
    for order in (1, 2, 3):
        report = gradus.gradcheck(program, order, inputs={"x": x, "w": w}, seed=n)
        assert {e.stage for e in report.entries} == set(range(1, order + 1))
    state = gradus.State(program.differentiate(2).compile())
    state.run(x, w)
    ct = rng.normal(size=n)
    d = state.run(None, ct)
    np.testing.assert_allclose(d.d1_x.numpy(), ct * 1.5 * np.cos(1.5 * x) * w * 2.5, rtol=1e-13)
    u, v = rng.normal(size=n), rng.normal(size=n)
    d2 = state.run(u, v)
    np.testing.assert_allclose(
        d2.d2_x.numpy(),
        2.5 * ct * (-(1.5**2) * np.sin(1.5 * x) * w * u + 1.5 * np.cos(1.5 * x) * v),
        rtol=1e-12,
    )


def test_wrong_backwards_are_found(fresh):
    name = fresh()

    @gradus.python_op(name)
    def op(ctx, x):
        ctx.save(x)
        return np.exp(x)

    @op.backward
    def _(ctx, dy):
        (x,) = ctx.saved
        return dy * np.exp(x.detach())  # the second derivative is lost

    program = gradus.trace(op, np.array([0.5, 0.25]))
    assert gradus.gradcheck(program, 1)
    with pytest.raises(gradus.Error, match="off"):
        gradus.gradcheck(program, 2)


def test_several_outputs_saved_results_and_integers(rng, fresh):
    name = fresh()

    def results(x, k):
        return x, gradus.Type("i64", ()), gradus.Type(x.dtype, (x.shape[0] + 1,))

    @gradus.python_op(name, convention="ts", results=results)
    def op(ctx, x, k):
        a = np.asarray(x)
        y = np.exp(a) * k
        ctx.save(x, y)
        return y, np.int64(a.size), np.concatenate([a * a, [1.0]])

    @op.backward
    def _(ctx, dy, dn, dz):
        x, y = ctx.saved
        assert ctx.needs_gradient(0)
        return dy * y + 2 * x * dz[:-1], None

    text = f"""
    graph g {{
      stage 0 (%x: f64[N]) {{
        %y, %n, %z = python_op(%x) {{name = "{name}", convention = "ts", scalars = [3]}}
        %s = sum(%z)
        return %y, %n, %s
      }}
    }}"""
    program = gradus.parse(text)
    x = rng.normal(size=4)
    y, n, s = gradus.State(program.compile()).run(x)
    assert n.item() == 4
    np.testing.assert_allclose(y.numpy(), 3 * np.exp(x), rtol=1e-14)
    assert gradus.gradcheck(program, 2, inputs={"x": x})


def test_called_eagerly_and_traced(rng, fresh):
    name = fresh()
    op = scaled_sine(name)
    x, w = rng.normal(size=3), rng.normal(size=3)
    X, W = gradus.tensor(x, requires_grad=True), gradus.tensor(w, requires_grad=True)
    (g,) = gradus.gradients(op(X, W, 2.0).sum(), X, create_graph=True)
    np.testing.assert_allclose(g.detach().numpy(), 2 * np.cos(x) * w, rtol=1e-13)
    (h,) = gradus.gradients(g.sum(), W)
    np.testing.assert_allclose(h.numpy(), 2 * np.cos(x), rtol=1e-13)
    f = gradus.function(lambda x, w: (op(x, w, 2.0) * x).sum(), order=2)
    assert f'python_op(%x, %w) {{name = "{name}"' in str(f.program(x, w))
    (d,) = gradus.gradients(f(X, W), X, create_graph=True)
    (d2,) = gradus.gradients(d.sum(), X)
    np.testing.assert_allclose(
        d2.numpy(), 2 * w * (2 * np.cos(x) - x * np.sin(x)), rtol=1e-12
    )
    traced = gradus.parse(str(f.program(x, w)))  # text goes round
    assert traced.stages == 3
    assert gradus.gradcheck(gradus.trace(f, x, w), 2)
    # grad of a function that holds it, within a program.
    force = gradus.function(gradus.grad(lambda x: op(x, w, 2.0).sum()), order=1)
    y = force(X)
    (d,) = gradus.gradients(y.sum(), X)
    np.testing.assert_allclose(d.numpy(), -2 * w * np.sin(x), rtol=1e-12)


def test_orders(fresh):
    once, never = fresh(), fresh()

    @gradus.python_op(once, order=1)
    def op(ctx, x):
        ctx.save(x)
        return np.exp(x)

    op.backward(lambda ctx, dy: np.asarray(dy) * np.exp(ctx.saved[0]))
    program = gradus.trace(op, np.ones(2))
    assert gradus.gradcheck(program, 1)
    with pytest.raises(gradus.Error, match=f"'{once}' can be differentiated 1 time"):
        program.differentiate(2)
    x = gradus.tensor(np.ones(2), requires_grad=True)
    with pytest.raises(gradus.Error):
        (d,) = gradus.gradients(op(x).sum(), x, create_graph=True)
        gradus.gradients(d.sum(), x)
    bare = gradus.python_op(never, lambda ctx, x: np.exp(x))
    program = gradus.trace(lambda x: bare(x), np.ones(2))
    with pytest.raises(gradus.Error, match="can be differentiated 0 times"):
        program.differentiate(1)
    with pytest.raises(gradus.Error, match="has a backward already"):
        op.backward(lambda ctx, dy: dy)


def test_numpy_under_create_graph_is_refused(fresh):
    # A backward that claims to be differentiable and computes with NumPy.
    op = gradus.python_op(
        fresh(), lambda ctx, x: (ctx.save(x), np.exp(x))[1],
        lambda ctx, dy: np.asarray(dy) * np.exp(ctx.saved[0]),
    )
    x = gradus.tensor(np.ones(2), requires_grad=True)
    assert gradus.gradients(op(x).sum(), x)[0] is not None
    with pytest.raises(gradus.Error, match="detach"):
        gradus.gradients(op(x).sum(), x, create_graph=True)


class Mine(Exception):
    pass


def test_exceptions_arrive_with_their_traceback(fresh):
    fail = {"forward": None, "backward": None}

    def explode_deep_inside(kind):
        if fail[kind]:
            raise fail[kind]

    def forward(ctx, x, w, s):
        explode_deep_inside("forward")
        return np.array(x)

    def backward(ctx, dy):
        explode_deep_inside("backward")
        return dy, None

    name = fresh()
    gradus.python_op(name, forward, backward, convention="tts")
    code = program_of(name).differentiate(2).compile()
    for error in (Mine("it is enough"), ValueError("no"), KeyboardInterrupt()):
        for kind in fail:
            state = gradus.State(code)
            fail.update({"forward": None, "backward": None, kind: error})
            with pytest.raises(type(error)) as e:
                state.run(np.ones(2), np.ones(2))
                kept = state.clone()
                state.run(1.0, None)
            assert e.value is error
            text = "".join(traceback.format_exception(e.value))
            assert "explode_deep_inside" in text
            if hasattr(error, "add_note"):
                assert "op.ir:5:" in text and f"'{name}'" in text  # the program's line
            assert state.poisoned
            with pytest.raises(gradus.Error, match="op.ir:5"):
                state.run(1.0, None)
            error.__traceback__ = None
            if hasattr(error, "__notes__"):
                error.__notes__.clear()
            if kind == "backward":  # the clone is well
                fail["backward"] = None
                kept.run(1.0, None)
    fail.update(forward=Mine("eager"), backward=None)
    with pytest.raises(gradus.Error, match="takes 2 tensors"):
        gradus.call(name, np.ones(2))
    with pytest.raises(gradus.Error, match="takes 1 scalars"):
        gradus.call(name, np.ones(2), np.ones(2))
    other = fresh()
    gradus.python_op(other, lambda ctx, x: explode_deep_inside("forward"))
    with pytest.raises(Mine):
        gradus.call(other, np.ones(2))
    wrong = gradus.python_op(fresh(), lambda ctx, x, y: x)
    with pytest.raises(TypeError, match="missing 1 required"):
        wrong(np.ones(2))


def test_errors_of_gradus_inside_have_places(fresh):
    name = fresh()
    gradus.python_op(name, lambda ctx, x, w, s: ops.inverse(x), convention="tts")
    with pytest.raises(gradus.Error) as e:
        gradus.State(program_of(name).compile()).run(np.ones(2), np.ones(2))
    assert "inverse" in e.value.message
    if hasattr(e.value, "__notes__"):
        assert "op.ir:5:" in e.value.__notes__[0] and name in e.value.__notes__[0]


def test_infer_and_its_faults(fresh):
    name = fresh()

    def results(x, w, s):
        if s < 0:
            raise Mine("s must not be negative")
        return "x" if s == 7 else x

    gradus.python_op(name, lambda ctx, x, w, s: x, convention="tts", results=results)
    program_of(name, "[1]")
    with pytest.raises(gradus.Error, match="Mine: s must not be negative") as e:
        program_of(name, "[-1]")
    assert e.value.line == 5 and isinstance(e.value.__cause__, Mine)
    assert "results" in "".join(traceback.format_exception(e.value))
    with pytest.raises(gradus.Error, match="gradus.Type") as e:
        program_of(name, "[7]")
    assert e.value.__cause__ is None


@pytest.mark.parametrize(
    "scalars, match",
    [("[]", "takes 1 scalars"), ("[1, 2]", "2 are given"), ('["a"]', "numbers and bools")],
)
def test_scalars_that_do_not_fit(scalars, match, fresh):
    name = fresh()
    scaled_sine(name)
    with pytest.raises(gradus.Error, match=match):
        program_of(name, scalars)


def test_conventions_are_held(fresh):
    name = fresh()
    op = scaled_sine(name)
    with pytest.raises(gradus.Error, match='convention is "tts", not "stt"'):
        gradus.parse(
            f'graph g {{ stage 0 (%x: f64[N]) {{ %y = python_op(%x, %x) {{name = "{name}", '
            'convention = "stt", scalars = [1]} return %y } }'
        )
    with pytest.raises(gradus.Error, match="takes 2 tensors"):
        gradus.parse(
            f'graph g {{ stage 0 (%x: f64[N]) {{ %y = python_op(%x) {{name = "{name}", '
            "scalars = [1]} return %y } }"
        )
    x = np.ones(2)
    with pytest.raises(gradus.Error, match="3 arguments"):
        op(x, x)
    with pytest.raises(gradus.Error, match="must be a number"):
        op(x, x, x)
    with pytest.raises(gradus.Error, match="must be a tensor"):
        op(x, 1.0, 2.0)
    with pytest.raises(gradus.Error, match="letter for each"):
        gradus.python_op(fresh(), lambda ctx: None, convention="txs")
    with pytest.raises(gradus.Error, match="registered already"):
        gradus.python_op(name, lambda ctx, x: x)
    with pytest.raises(gradus.Error, match="no Python function named 'test.nobody'"):
        gradus.parse('graph g { stage 0 (%x: f64[N]) { %y = python_op(%x) {name = "test.nobody"} return %y } }')
    with pytest.raises(gradus.Error, match="called by 'python_op'"):
        gradus.parse(f'graph g {{ stage 0 (%x: f64[N]) {{ %y = cpp_op(%x) {{name = "{name}"}} return %y }} }}')


def test_scalar_kinds(fresh):
    seen = []
    name = fresh()
    op = gradus.python_op(
        name, lambda ctx, a, x, b, c: (seen.append((a, b, c)), x)[1], convention="stss"
    )
    op(3, np.ones(1), True, 1e-300)
    program = gradus.parse(
        f'graph g {{ stage 0 (%x: f64[N]) {{ %y = python_op(%x) {{name = "{name}", '
        "scalars = [-4, false, inf]} return %y } }"
    )
    gradus.State(program.compile()).run(np.ones(1))
    assert seen == [(3, True, 1e-300), (-4, False, float("inf"))]
    assert [type(v) for v in seen[1]] == [int, bool, float]


def test_results_that_are_wrong(fresh):
    for given, match in [
        (None, "None"),
        (np.ones(3), "must be"),
        (np.ones(2, "f4"), "f64"),
        ((np.ones(2), np.ones(2)), "2 results"),
        ({}, "not dict"),
    ]:
        name = fresh()
        gradus.python_op(name, lambda ctx, x, w, s: given, convention="tts")
        with pytest.raises(gradus.Error, match=match) as e:
            gradus.State(program_of(name).compile()).run(np.ones(2), np.ones(2))
        assert e.value.line == 5
    for given, match in [((None,), "2|gradients"), (np.ones(3), None), ("x", "not str")]:
        name = fresh()
        gradus.python_op(name, lambda ctx, x, w, s: np.array(x), lambda ctx, dy: given, convention="tts")
        state = gradus.State(program_of(name).differentiate(1).compile())
        state.run(np.ones(2), np.ones(2))
        with pytest.raises(gradus.Error, match=match):
            state.run(1.0, None)


def test_saving_what_is_no_argument_is_refused(fresh):
    op = gradus.python_op(fresh(), lambda ctx, x: (ctx.save(np.cos(x)), np.sin(x))[1])
    with pytest.raises(gradus.Error, match="arguments and results"):
        op(gradus.tensor(np.ones(2), requires_grad=True))


def test_the_context_is_for_its_runs(fresh):
    kept = []

    def forward(ctx, x):
        kept.append(ctx)
        ctx.note = "mine"
        ctx.save(x)
        return np.exp(x)

    def backward(ctx, dy):
        assert ctx.note == "mine" and ctx is kept[0]
        return dy * ops.exp(ctx.saved[0])

    op = gradus.python_op(fresh(), forward, backward)
    x = gradus.tensor(np.ones(2), requires_grad=True)
    y = op(x).sum()
    for _ in range(2):
        gradus.gradients(y, x, keep_graph=True)
    with pytest.raises(gradus.Error, match="while they run"):
        kept[0].saved
    with pytest.raises(gradus.Error, match="while they run"):
        kept[0].save(x)


def test_graphs_let_their_objects_go(fresh):
    class Big:
        pass

    alive = []

    def forward(ctx, x):
        ctx.big = Big()
        alive.append(weakref.ref(ctx.big))
        ctx.save(x)
        return np.exp(x)

    op = gradus.python_op(fresh(), forward, lambda ctx, dy: dy * ops.exp(ctx.saved[0]))
    x = gradus.tensor(np.ones(2), requires_grad=True)
    y = op(x).sum()
    gc.collect()
    assert alive[0]() is not None
    y.backward()  # lets its graph go
    gc.collect()
    assert alive[0]() is None
    z = op(x)
    del z
    gc.collect()
    assert alive[1]() is None


def test_aliases(fresh):
    """A result that is an argument is that argument."""
    op = gradus.python_op(fresh(), lambda ctx, x: x, lambda ctx, dy: dy)
    program = gradus.trace(lambda x: op(x) * x, np.array([0.5, 2.0]))
    assert gradus.gradcheck(program, 2)


def test_a_backward_may_be_a_python_op(fresh):
    cosine = gradus.python_op(
        fresh("cos"), lambda ctx, x: (ctx.save(x), np.cos(x))[1],
        lambda ctx, dy: dy * -ops.sin(ctx.saved[0]),
    )
    sine = gradus.python_op(
        fresh("sin"), lambda ctx, x: (ctx.save(x), np.sin(x))[1],
        lambda ctx, dy: dy * cosine(ctx.saved[0]),
    )
    program = gradus.trace(lambda x: sine(x).sum(), np.array([0.5, -1.0, 2.0]))
    assert gradus.gradcheck(program, 3)


def test_save_and_resume(tmp_path, fresh):
    name = fresh()

    def backward(ctx, dy):
        return dy * ops.exp(ctx.saved[0])

    for replayable in (False, True):
        name = fresh()
        gradus.python_op(
            name, lambda ctx, x: (ctx.save(x), np.exp(x))[1], backward, replayable=replayable
        )
        program = gradus.parse(
            f'graph g {{ stage 0 (%x: f64[N]) {{ %y = python_op(%x) {{name = "{name}"}} return %y }} }}'
        )
        code = program.differentiate(1).compile()
        state = gradus.State(code)
        x = np.array([1.0, 2.0])
        state.run(x)
        path = str(tmp_path / "state")
        if not replayable:
            with pytest.raises(gradus.Error, match="replayable"):
                state.save(path)
            continue
        state.save(path)
        again = gradus.State.resume(code, path)
        np.testing.assert_allclose(again.run(np.ones(2)).d1_x.numpy(), np.exp(x), rtol=1e-14)


def test_results_without_a_derivative(fresh):
    def forward(ctx, x):
        ctx.mark_not_differentiable(1, 2)
        ctx.save(x)
        a = np.asarray(x)
        return a * a, np.sign(a), np.floor(a)

    op = gradus.python_op(
        fresh(), forward, lambda ctx, dy, ds, df: dy * ctx.saved[0] * 2, results=3
    )
    x = gradus.tensor(np.array([1.5, -2.5]), requires_grad=True)
    y, s, f = op(x)
    assert y.requires_grad
    (d,) = gradus.gradients((y + s + f).sum(), x)
    assert d.tolist() == [3, -5]
