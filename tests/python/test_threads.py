"""python_op on threads that Python knows nothing of, and at the interpreter's end."""
# SPEC W4

import os
import sys
import threading
import time

import numpy as np
import pytest

import gradus
from gradus import ops

native = pytest.importorskip("gradus_native", reason="the tests' own module is not built")


def cubed(name, **options):
    """y = x^3, with a backward that can be differentiated."""
    threads = set()

    def backward(ctx, dy):
        threads.add(threading.get_ident())
        (x,) = ctx.saved
        return dy * x * x * 3

    op = gradus.python_op(
        name, lambda ctx, x: (ctx.save(x), np.asarray(x) ** 3)[1], backward, **options
    )
    return op, threads


def program_text(name, order=0):
    program = gradus.parse(
        f"""
        graph g {{
          stage 0 (%x: f64[N]) {{
            %h = sin(%x)
            %a = python_op(%h) {{name = "{name}"}}
            %b = python_op(%a) {{name = "{name}"}}
            %y = sum(%b)
            return %y, %a
          }}
        }}"""
    )
    return str(program.differentiate(order) if order else program)


@pytest.mark.parametrize("threads", [1, 4])
def test_gradcheck_at_order_2_on_cpp_threads(threads, fresh):
    name = fresh()
    _, seen = cubed(name)
    assert native.gradcheck_on_threads(program_text(name), 2, threads)
    assert seen and threading.get_ident() not in seen


def test_states_run_on_cpp_threads(fresh):
    name = fresh()
    cubed(name)
    assert native.run_on_threads(program_text(name, 2), 4, 20)


@pytest.mark.parametrize("thread_safe", [False, True])
def test_engine_workers(thread_safe, fresh):
    name = fresh()
    main, seen = threading.get_ident(), set()

    def backward(ctx, dy):
        seen.add(threading.get_ident())
        time.sleep(1e-3)
        (x,) = ctx.saved
        return dy * x * x * 3

    gradus.python_op(
        name, lambda ctx, x: (ctx.save(x), np.asarray(x) ** 3)[1], backward,
        thread_safe=thread_safe,
    )
    got = native.second_derivatives(name, 20, 4)
    np.testing.assert_allclose(got, [6 * 0.1 * i for i in range(20)], rtol=1e-12)
    if not thread_safe:
        assert seen == {main}


def test_an_engine_thread_runs_backward(fresh):
    op, seen = cubed(fresh())
    x = gradus.tensor(np.array([1.0, 2.0]), requires_grad=True)
    future = gradus.gradients_async(op(x), x, np.ones(2), create_graph=True)
    (d,) = future.get()
    assert future.done() and threading.get_ident() not in seen
    np.testing.assert_array_equal(d.detach().numpy(), [3, 12])
    (d2,) = gradus.gradients_async(d, x, np.ones(2)).get()
    np.testing.assert_array_equal(d2.numpy(), [6, 12])


def test_exceptions_come_from_engine_threads(fresh):
    def backward(ctx, dy):
        raise LookupError("on a thread of the engine's")

    op = gradus.python_op(fresh(), lambda ctx, x: np.array(x), backward)
    x = gradus.tensor(np.ones(2), requires_grad=True)
    future = gradus.gradients_async(op(x), x, np.ones(2))
    for _ in range(2):
        with pytest.raises(LookupError, match="engine's") as e:
            future.get()
        assert e.traceback[-1].name == "backward"


def test_the_lock_is_free_while_the_library_runs():
    program = gradus.parse("graph g { stage 0 (%x: f32[N, N]) { %y = matmul(%x, %x) return %y } }")
    state = gradus.State(program.compile(), fusion="off")
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.wait(1e-3):
            ticks.append(1)

    thread = threading.Thread(target=tick)
    thread.start()
    x = np.ones((2000, 2000), "f4")
    begin = len(ticks)
    state.run(x)
    during = len(ticks) - begin
    stop.set()
    thread.join()
    assert during >= 3


def test_python_threads_call_each_others_ops(fresh):
    op, _ = cubed(fresh())
    faults = []

    def work(seed):
        try:
            x = gradus.tensor(np.random.default_rng(seed).normal(size=10), requires_grad=True)
            for _ in range(30):
                (d,) = gradus.gradients(op(op(x)).sum(), x, create_graph=True)
                (d2,) = gradus.gradients(d.sum(), x)
                a = x.detach().numpy()
                np.testing.assert_allclose(d2.numpy(), 72 * a**7, rtol=1e-10)
        except BaseException as e:  # noqa: BLE001
            faults.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not faults


EXIT = """
import numpy as np, gradus, threading, time, sys, os
op = gradus.python_op("f", lambda ctx, x: (ctx.save(x), np.asarray(x) ** 3)[1],
                      lambda ctx, dy: dy * ctx.saved[0] ** 2 * 3)
x = gradus.tensor(np.ones(3), requires_grad=True)
y = op(x).sum()
"""


@pytest.mark.parametrize(
    "rest",
    [
        # A graph, a state with a live handle, a program.
        """
code = gradus.trace(op, np.ones(3), order=1).compile()
state = gradus.State(code); state.run(np.ones(3))
""",
        # Somebody holds it from the very end of the interpreter.
        "sys.modules['keep'] = (x, y, op)\nimport builtins; builtins.keep = (x, y, op)",
        # A backward on a thread of the engine's, whose result nobody takes.
        "f = gradus.gradients_async(y, x, 1.0)",
        """
slow = gradus.python_op("slow", lambda ctx, x: np.array(x), lambda ctx, dy: (time.sleep(.3), dy)[1])
f = gradus.gradients_async(slow(x).sum(), x, 1.0); time.sleep(.05)
""",
        # A daemon thread is in the library, or in a function, when the interpreter ends.
        """
def work():
    while True: gradus.gradients(op(x).sum(), x)
for _ in range(3): threading.Thread(target=work, daemon=True).start()
time.sleep(.1)
""",
        """
sys.setswitchinterval(1e-6)
def work():
    p = gradus.parse("graph g { stage 0 (%x: f32[N, N]) { %y = exp(%x) return %y } }").compile()
    while True: gradus.State(p).run(np.ones((5, 5), "f4")).y.sum().tolist()
for _ in range(3): threading.Thread(target=work, daemon=True).start()
time.sleep(.1)
""",
        # Threads of C++ go on calling.
        "import gradus_native; [gradus_native.call_for_ever('f') for _ in range(3)]; time.sleep(.1)",
        # Another exit handler, and a destructor, use the library after its own handler ran.
        """
class Late:
    def __del__(self):
        try: gradus.gradients(op(x).sum(), x)
        except gradus.Error as e: print("Error")
import builtins; builtins.late = Late()
""",
    ],
)
def test_exit_is_clean(rest, run_script):
    begin = time.monotonic()
    for _ in range(1 if "GRADUS_SANITIZED" in os.environ else 3):
        out = run_script(EXIT + rest + "\nprint('end')\n")
        assert out.startswith("end")
        # A daemon thread may be told before it is stopped.
        told = "the Python interpreter has ended" in run_script.stderr and "daemon" in rest
        assert told or "Traceback" not in run_script.stderr
    assert time.monotonic() - begin < 60


def test_sys_exit_within_an_op(run_script):
    assert run_script(
        "import gradus, numpy as np, sys\n"
        "op = gradus.python_op('f', lambda ctx, x: sys.exit(3))\n"
        "gradus.State(gradus.parse('graph g { stage 0 (%x: f64[N]) { %y = python_op(%x) "
        "{name = \"f\"} return %y } }').compile()).run(np.ones(2))\n",
        expect=3,
    ) == ""


@pytest.mark.skipif(sys.platform != "linux", reason="fork")
def test_a_forked_child_ends(run_script):
    out = run_script(
        EXIT
        + """
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    try: gradus.gradients(op(x).sum(), x)
    except gradus.Error: pass
    os._exit(0)
print(os.waitpid(pid, 0)[1])
"""
    )
    assert out.strip() == "0"
