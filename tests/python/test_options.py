"""What Python reaches of compiling, running, kernels and contexts."""
# SPEC W4, I15, I18

import gc
import sys
import threading

import numpy as np
import pytest

import gradus
from gradus import ops

LAYERS = """
graph layers {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %a = mul(%x, %w)
    %b = tanh(%a)
    %c = mul(%b, %w)
    %d = tanh(%c)
    %y = sum(%d)
    return %y, %d
  }
}
"""


@pytest.fixture
def program():
    return gradus.parse(LAYERS, "layers.ir").differentiate(1)


def run_both(state, x, w):
    y = state.run(x, w)
    return [np.asarray(t) for t in (*y, *state.run(1.0, np.ones_like(x)))]


def assert_same(a, b):
    assert len(a) == len(b)
    for p, q in zip(a, b):
        np.testing.assert_array_equal(p, q)


def test_memory_budget(program, rng):
    x, w = rng.normal(size=(2, 1000))
    plain = gradus.State(program.compile())
    held = plain.prepare({"N": 1000})[0].held
    expected = run_both(plain, x, w)
    assert held >= 8000
    tight = gradus.State(program.compile(memory_budget=0, sizes={"N": 1000}))
    assert tight.prepare({"N": 1000})[0].held == 0
    assert_same(run_both(tight, x, w), expected)
    with pytest.raises(gradus.Error, match="N"):
        program.compile(memory_budget=0)


def test_fast_functions(rng, tmp_path):
    x = rng.normal(size=4096).astype("f4")

    def energy(x):
        return (ops.tanh(x) * ops.sigmoid(x) + ops.silu(ops.exp(-x * x))).sum()

    exact = gradus.function(energy, order=2)
    fast = gradus.function(energy, order=2, fast_functions=True)

    def found(f):
        (d,) = gradus.gradients(f(t := gradus.tensor(x, requires_grad=True)), t, create_graph=True)
        (d2,) = gradus.gradients((d * d).sum(), t)
        return [np.asarray(r.detach()) for r in (f(t), d, d2, gradus.grad(f)(x), gradus.hvp(f, x, x))]

    path = str(tmp_path / "fast.json")
    gradus.save_function(fast, path, x)
    for a, b in zip(found(exact), found(fast), strict=True):
        assert not a.ndim or not np.array_equal(a, b)
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-6)
    assert_same([np.asarray(gradus.load_function(path)(x))], [np.asarray(fast(x))])
    wide = x.astype("f8")
    assert_same([np.asarray(fast(wide))], [np.asarray(exact(wide))])
    program = gradus.trace(ops.tanh, x)
    states = [gradus.State(program.compile(fast_functions=f)) for f in (False, True)]
    assert not np.array_equal(*(np.asarray(s.run(x)[0]) for s in states))


def test_dumps_and_passes(program, rng):
    seen = []
    program.compile(dump=lambda name, p: seen.append((name, str(p))))
    assert len(seen) > 3 and all("graph layers" in text for _, text in seen)

    def cubed(p):
        return gradus.parse(str(p).replace("= tanh(%a)", "= pow(%a, 3.0)"))

    one = gradus.parse(LAYERS)
    x, w = rng.normal(size=(2, 5))
    result = gradus.State(one.compile(passes=[("cube", cubed)])).run(x, w)
    np.testing.assert_allclose(result.d, np.tanh((x * w) ** 3 * w), rtol=1e-13)

    class Mine(Exception):
        pass

    def fails(p):
        raise Mine("no")

    with pytest.raises(Mine):
        one.compile(passes=[("fails", fails)])
    with pytest.raises(Mine):
        one.compile(dump=lambda name, p: fails(p))
    with pytest.raises(gradus.Error, match="nothing.*no Program"):
        one.compile(passes=[("nothing", lambda p: None)])


def test_prepared_states(program, rng):
    code = program.compile()
    state = gradus.State(code, fusion="first")
    memory = state.prepare({"N": 64})
    assert len(memory) == 2 and memory[0].results >= 8 * 65 and "held=" in repr(memory[0])
    x, w = rng.normal(size=(2, 64))
    assert_same(run_both(state, x, w), run_both(gradus.State(code, fusion="off"), x, w))
    with pytest.raises(gradus.Error, match="stage 0"):
        state.prepare({"N": 64})
    with pytest.raises(gradus.Error, match="M"):
        gradus.State(code).prepare({"M": 64})


def test_results_into_arrays(program, rng):
    code = program.compile()
    x, w = rng.normal(size=(2, 6))
    expected = run_both(gradus.State(code), x, w)
    state = gradus.State(code)
    y, d, dw = np.full((), np.nan), np.full(6, np.nan), np.full(6, np.nan)
    for _ in range(3):
        first = state.run(x, w, into=[y, d])
        assert np.shares_memory(np.asarray(first.d), d)
        second = state.run(1.0, np.ones(6), into={"d1_w": dw})
        assert not np.shares_memory(np.asarray(second.d1_x), dw)
        assert_same([y, d, np.asarray(second.d1_x), dw], expected)
        for a in (y, d, dw):
            a[...] = np.nan
        state.restart()
    frozen = np.zeros(6)
    frozen.flags.writeable = False
    for into, says in [
        ([y], "has 2 results, `into` has 1"),
        ({"z": d}, "no result 'z'"),
        ({"d": gradus.zeros(6)}, "memory is never written to"),
        ({"d": 3.0}, "goes into an array"),
        ({"d": frozen}, "result 'd': the array is read-only"),
        ({"d": np.zeros(6, np.float32)}, r"is f32\[6\], the result f64"),
        ({"d": np.zeros(12)[::2]}, "is not contiguous"),
        ({"d": x}, "lies in the memory of input 'x'"),
    ]:
        with pytest.raises(gradus.Error, match=says):
            state.run(x, w, into=into)
    with pytest.raises(gradus.Error, match=r"is f64\[5\], the result f64\[6\]"):
        state.clone().run(x, w, into={"d": np.zeros(5)})
    assert not state.poisoned
    assert_same(run_both(state, x, w), expected)


def test_cancelling(program, rng):
    x, w = rng.normal(size=(2, 6))
    token = gradus.CancelToken()
    state = gradus.State(program.compile(), fusion="off")
    kept = state.clone()
    state.run(x, w, cancel=token)
    threading.Thread(target=token.cancel).run()
    assert token.cancelled
    with pytest.raises(gradus.Error, match="cancel"):
        state.run(1.0, None, cancel=token)
    assert state.poisoned
    kept.run(x, w)


def test_observers(program, rng):
    x, w = rng.normal(size=(2, 6))

    class Watch:
        def __init__(self):
            self.told = []

        def before(self, stage, instruction):
            self.told.append(("before", stage, instruction))

        def after(self, stage, instruction):
            self.told.append(("after", stage, instruction))

        def group(self, stage, instructions):
            self.told.append(("group", stage, list(instructions)))

    state, watch = gradus.State(program.compile(), fusion="off"), Watch()
    state.run(x, w, observer=watch)
    assert watch.told[:3] == [("before", 0, 0), ("after", 0, 0), ("before", 0, 1)]
    assert {stage for _, stage, _ in watch.told} == {0}
    assert not any(kind == "group" for kind, _, _ in watch.told)

    class Stops:
        def after(self, stage, instruction):
            if instruction == 1:
                raise KeyError("enough")

    state.restart()
    with pytest.raises(KeyError, match="enough"):
        state.run(x, w, observer=Stops())
    assert state.poisoned
    with pytest.raises(gradus.Error, match="methods before, after, group, host, before_in_step"):
        state.run(x, w, observer=object())


def test_observers_of_steps(rng):
    told = []

    class Watch:
        def before_in_step(self, graph, step, instruction):
            told.append(("before", step, instruction))

        def after_in_step(self, graph, step, instruction):
            told.append(("after", step, instruction))
            assert graph == "cell"

    def cell(h, x):
        return gradus.ops.tanh(h * x), None

    arguments = np.array(0.5), rng.normal(size=3)
    loop = gradus.trace(lambda h, xs: gradus.scan(cell, h, xs, reverse=True)[0], *arguments)
    gradus.State(loop.compile(), fusion="off").run(*arguments, observer=Watch())
    steps = [step for kind, step, instruction in told if (kind, instruction) == ("before", 0)]
    assert steps == [2, 1, 0]
    assert told[:4] == [("before", 2, 0), ("after", 2, 0), ("before", 2, 1), ("after", 2, 1)]


def test_an_input_may_be_called_like_an_option():
    text = "graph g { stage 0 (%into: f64[], %x: f64[]) { %y = sub(%into, %x) return %y } }"
    state = gradus.State(gradus.parse(text).compile())
    assert state.run(into=3.0, x=1.0).y.item() == 2


def test_derivative_options(program):
    one = gradus.parse(LAYERS)
    both = one.differentiate(2)
    assert [n for n, _ in both.results(2)] == ["d2_x", "d2_w", "d2_ct1_y", "d2_ct1_d"]
    assert [n for n, _ in one.differentiate(2, cotangents=False).results(2)] == ["d2_x", "d2_w"]


def test_gradcheck_options():
    told = []
    report = gradus.parse(LAYERS).gradcheck(
        sizes={"N": 40}, max_elements=3, directions=2, tries=1,
        progress=lambda stage, fraction: told.append((stage, fraction)))
    assert report and told and all(s == 1 and 0 <= f <= 1 for s, f in told)
    full = gradus.parse(LAYERS).gradcheck(sizes={"N": 40}, max_elements=40)
    assert full
    with pytest.raises(ZeroDivisionError):
        gradus.parse(LAYERS).gradcheck(sizes={"N": 4}, progress=lambda s, f: 1 / 0)


def compiled(context):
    return context.kernel_statistics()["misses"]


def test_kernels_and_contexts(program, rng, tmp_path):
    code = program.compile()
    x, w = rng.normal(size=(2, 512))
    expected = run_both(gradus.State(code, fusion="off"), x, w)
    folder = str(tmp_path / "kernels")
    options = gradus.KernelOptions(folder=folder, most_folder_bytes=1 << 20, most_kernels=10,
                                   always=True, whole_stages="off")
    first = gradus.Context(workers=2, kernels=options)
    assert first.workers == 2 and compiled(first) == 0
    state = gradus.State(code, "first", first)
    assert_same(run_both(state, x, w), expected)
    first.wait_for_kernels()
    statistics = first.kernel_statistics()
    assert statistics["failed"] == 0
    if not statistics["misses"]:
        pytest.skip("no kernels here")
    assert "nest" in state.describe_kernels() and "stage 0" in state.describe_memory()
    assert state.held_bytes == 0 and state.whole_stages == []
    # What one has compiled another one loads; one of its own makes all anew.
    second = gradus.Context(1, gradus.KernelOptions(folder=folder, always=True))
    assert_same(run_both(gradus.State(code, "first", context=second), x, w), expected)
    assert compiled(second) == 0 and second.kernel_statistics()["loaded"] > 0
    second.set_kernels(gradus.KernelOptions(always=True))
    assert_same(run_both(gradus.State(code, "first", context=second), x, w), expected)
    assert compiled(second) > 0
    with pytest.raises(gradus.Error, match="'off', 'small' or 'always'"):
        gradus.KernelOptions(whole_stages="some")
    with pytest.raises(TypeError):
        gradus.KernelOptions("folder")


def test_whole_stages(rng):
    known = gradus.parse(LAYERS.replace("N]", "8]")).differentiate(1).compile()
    x, w = rng.normal(size=(2, 8))
    expected = run_both(gradus.State(known, "off"), x, w)
    for mode, stages in [("off", []), ("always", [0, 1])]:
        context = gradus.Context(1, gradus.KernelOptions(whole_stages=mode, always=mode == "off"))
        state = gradus.State(known, "first", context)
        assert_same(run_both(state, x, w), expected)
        if compiled(context):
            assert state.whole_stages == stages, mode


def test_the_current_context(program, rng):
    default = gradus.current_context()
    context = gradus.Context(workers=1)
    assert context != default and hash(default) == hash(gradus.current_context())
    with context as entered:
        assert entered is context and gradus.current_context() == context
        with default:
            assert gradus.current_context() == default
        assert gradus.current_context() == context
        others = []
        thread = threading.Thread(target=lambda: others.append(gradus.current_context()))
        thread.start()
        thread.join()
        assert others == [default]
        x = gradus.tensor([1.0, 2.0], requires_grad=True)
        (g,) = gradus.gradients((x * x).sum(), x)
        assert g.tolist() == [2, 4]
    assert gradus.current_context() == default
    with pytest.raises(gradus.Error, match="not this thread's current one"):
        context.__exit__(None, None, None)
    for wrong in ({"workers": -1}, {"engine_workers": -1}, {"depth_limit": -1}):
        with pytest.raises(gradus.Error):
            gradus.Context(**wrong)


def test_functions_run_in_the_context_they_are_called_in(rng):
    f = gradus.function(lambda x: (ops.tanh(x) * x).sum(), order=1)
    x = gradus.tensor(rng.normal(size=300), requires_grad=True)
    (expected,) = gradus.gradients(f(x), x)
    context = gradus.Context(1, gradus.KernelOptions(always=True, whole_stages="off"))
    for _ in range(2):
        with context:
            (found,) = gradus.gradients(f(x), x)
            context.wait_for_kernels()
        np.testing.assert_array_equal(found, expected)
    made = context.kernel_statistics()
    assert made["misses"] > 0 or made["kernels"] == 0


def test_engine_options(rng):
    x = gradus.tensor(rng.normal(size=5), requires_grad=True)
    expected = gradus.gradients((ops.exp(x) * x).sum(), x)[0]
    for options in ({"multithreading": False}, {"engine_workers": 3}, {"depth_limit": 1}):
        with gradus.Context(workers=2, **options):
            threads = set()

            def noted(g):
                threads.add(threading.get_ident())

            y = (ops.exp(x) * x).sum()
            y.register_hook(noted)
            np.testing.assert_array_equal(gradus.gradients(y, x)[0], expected)
            assert threads == {threading.get_ident()}
            future = gradus.gradients_async(
                [(x * x).sum()], [x], [1.0], allow_unused=False, exit_on_error=True)
            np.testing.assert_array_equal(future.get()[0], 2 * np.asarray(x.detach()))
    other = gradus.tensor([1.0], requires_grad=True)
    with pytest.raises(gradus.Error):
        gradus.gradients_async([(x * x).sum()], [other], [1.0], allow_unused=False).get()


def test_the_log():
    told = []
    context = gradus.Context(workers=1, log=lambda level, text: told.append((level, text)))
    with context:
        x = gradus.tensor([1.0], requires_grad=True)
        (x * x).sum().backward(create_graph=True)
        for _ in range(1000):  # until the interpreter has looked
            if told:
                break
    assert told and told[0][0] == "warning" and "create_graph" in told[0][1]
    del context
    gc.collect()


def test_what_fails_in_the_log_is_told_and_no_more(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: told.append(str(args.exc_value)))

    def fails(level, text):
        raise ValueError("nobody listens")

    with gradus.Context(workers=1, log=fails):
        x = gradus.tensor([1.0], requires_grad=True)
        (x * x).sum().backward(create_graph=True)
        for _ in range(1000):
            if told:
                break
    assert told == ["nobody listens"]


def test_values_are_for_models(tmp_path):
    path = tmp_path / "layers.ir"
    path.write_text(LAYERS)
    assert gradus.load(path).name == "layers"
    with pytest.raises(gradus.Error, match="for models"):
        gradus.load(path, values={"x": 1.0})
    with pytest.raises(gradus.Error, match="for models"):
        gradus.load(path, lengths={"x": 1})


def test_bound_runs(rng):
    program = gradus.parse(LAYERS, "layers.ir")
    state = gradus.State(program.compile(), fusion="first")
    state.prepare({"N": 5})
    x, w = rng.normal(size=(2, 5))
    d = np.zeros(5)
    bound = state.bind(x, w=w, into={"d": d})
    y = bound.results.y
    for _ in range(4):
        x[:] = rng.normal(size=5)
        w[2] += 1
        bound.run()
        expected = gradus.State(program.compile()).run(x, w)
        np.testing.assert_array_equal(d, np.asarray(expected.d))
        np.testing.assert_array_equal(y, np.asarray(expected.y))
        assert np.shares_memory(bound.results["d"], d)
    # The state is as it was.
    assert_same([np.asarray(t) for t in state.run(x, w)], [np.asarray(t) for t in expected])
    with pytest.raises(gradus.Error, match="has not run|all stages"):
        state.bind(x, w)
    with pytest.raises(gradus.Error, match="one stage"):
        gradus.State(program.differentiate(1).compile()).bind(x, w)
    with pytest.raises(gradus.Error, match="no input 'z'"):
        gradus.State(program.compile()).bind(x, z=w)
    with pytest.raises(gradus.Error, match="byte order"):
        gradus.State(program.compile()).bind(x.astype(">f8"), w)
    for copied, why in [
        (x[::-1], "negative strides.*ascontiguousarray"),
        (np.frombuffer(b" " + x.tobytes(), dtype="u1")[1:].view("f8"), "not aligned.*copy of it"),
    ]:
        with pytest.raises(gradus.Error, match=why):
            gradus.State(program.compile()).bind(copied, w)
