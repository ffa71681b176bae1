"""Drives the tool of bench/gradbench by lines, and compares its numbers with others.

  check.py TOOL

The others are computed here: derivatives by complex steps, which have no error of differences.
"""

import cmath
import json
import math
import random
import subprocess
import sys

STEP = 1e-30  # of a derivative: the imaginary part of f(x + STEP i) / STEP


def derivatives(f, x):
    """Of a number f by each element of the list x."""
    return [
        f(x[:i] + [x[i] + STEP * 1j] + x[i + 1 :]).imag / STEP for i in range(len(x))
    ]


def ode(x, s):
    def slope(y):
        return [x[0]] + [x[i] * y[i - 1] for i in range(1, len(x))]

    def moved(y, k, t):
        return [a + t * b for a, b in zip(y, k)]

    h = 2.0 / s
    y = [0.0] * len(x)
    for _ in range(s):
        k1 = slope(y)
        k2 = slope(moved(y, k1, h / 2))
        k3 = slope(moved(y, k2, h / 2))
        k4 = slope(moved(y, k3, h))
        y = [v + h * (a + 2 * b + 2 * c + d) / 6 for v, a, b, c, d in zip(y, k1, k2, k3, k4)]
    return y


def sigmoid(x):
    return 1 / (1 + cmath.exp(-x))


def lstm(main, extra, state, sequence):
    width = len(extra[0])
    state = [list(row) for row in state]
    total = 0
    for x, gold in zip(sequence, sequence[1:]):
        u = [a * b for a, b in zip(x, extra[0])]
        for layer in range(len(main) // 2):
            weights, biases = main[2 * layer], main[2 * layer + 1]
            hidden, cell = state[2 * layer], state[2 * layer + 1]
            for b in range(width):

                def gate(k, v):
                    return v * weights[k * width + b] + biases[k * width + b]

                change = cmath.tanh(gate(3, hidden[b]))
                kept = cell[b] * sigmoid(gate(0, u[b]))
                out = sigmoid(gate(2, u[b]))
                cell[b] = kept + sigmoid(gate(1, hidden[b])) * change
                hidden[b] = out * cmath.tanh(cell[b])
            u = hidden
        y = [a * b + c for a, b, c in zip(u, extra[1], extra[2])]
        normalizer = cmath.log(sum(cmath.exp(v) for v in y) + 2)
        total += sum(g * (v - normalizer) for g, v in zip(gold, y))
    return -total / (width * (len(sequence) - 1))


def rows(flat, width):
    return [flat[i : i + width] for i in range(0, len(flat), width)]


def lstm_jacobian(main, extra, state, sequence):
    count = sum(len(row) for row in main)

    def loss(flat):
        return lstm(rows(flat[:count], len(main[0])), rows(flat[count:], len(extra[0])), state, sequence)

    return derivatives(loss, [v for row in main + extra for v in row])


def miss(w):
    charges = [(10.0, 10.0 - w), (10.0, 0.0)]
    x, v = [0.0, 8.0], [0.75, 0.0]
    while (x[1] + 0.1 * v[1]).real > 0:
        force = [0.0, 0.0]
        for charge in charges:
            d = [a - b for a, b in zip(x, charge)]
            cube = cmath.sqrt(d[0] * d[0] + d[1] * d[1]) ** 3
            force = [f + e / cube for f, e in zip(force, d)]
        x, v = [a + 0.1 * b for a, b in zip(x, v)], [a + 0.1 * f for a, f in zip(v, force)]
    crossing = x[0] - x[1] / v[1] * v[0]
    return crossing * crossing


def argmin(f, gradient, x):
    value, g, rate, i = f(x), gradient(x), 1e-5, 0
    while math.hypot(*g) > 1e-5:
        if i == 10:
            rate, i = 2 * rate, 0
            continue
        moved = [a - rate * b for a, b in zip(x, g)]
        if math.dist(x, moved) <= 1e-5:
            break
        if f(moved) < value:
            x, value, g, i = moved, f(moved), gradient(moved), i + 1
        else:
            rate, i = rate / 2, 0
    return x


def particle(w):
    return argmin(lambda x: complex(miss(x[0])).real, lambda x: derivatives(lambda v: miss(v[0]), x), [w])[0]


def saddle(start):
    def value(x, y):
        return sum(v * v for v in x) - sum(v * v for v in y)

    def highest(x):
        return argmin(lambda y: -value(x, y), lambda y: [2 * v for v in y], start)

    x = argmin(lambda x: value(x, highest(x)), lambda x: [2 * v for v in x], start)
    return x + highest(x)


class Tool:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.id = 0

    def line(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the tool ended at: {text[:200]}"
        return json.loads(answer)

    def ask(self, **message):
        self.id += 1
        answer = self.line(json.dumps({"id": self.id, **message}))
        assert answer["id"] == self.id, answer
        return answer

    def evaluate(self, module, function, **given):
        return self.ask(kind="evaluate", module=module, function=function, input=given, description="d")


def flat(value):
    return [v for row in value for v in flat(row)] if isinstance(value, list) else [value]


def expect_near(got, want, tolerance=1e-12):
    got, want = flat(got), flat(want)
    assert len(got) == len(want), (len(got), len(want))
    for a, b in zip(got, want):
        assert isinstance(a, float) and abs(a - b) <= tolerance * max(1, abs(b)), (a, b)


def expect_refused(answer, *parts):
    assert answer["success"] is False, answer
    for part in parts:
        assert part in answer["error"], answer


def check_refusals(tool):
    expect_refused(tool.evaluate("ode", "primal", x=[1.0], s=1), "'ode' is not defined")
    expect_refused(tool.ask(kind="define", module="gmm"), "'gmm' is not implemented")
    expect_refused(tool.ask(kind="define", module="../ode"), "not implemented")
    assert tool.ask(kind="define", module="ode")["success"]
    expect_refused(tool.evaluate("ode", "hessian", x=[1.0], s=1), "no function 'hessian'")
    expect_refused(tool.evaluate("ode", "primal", s=1), "'x' is missing")
    expect_refused(tool.evaluate("ode", "primal", x=[[1.0]], s=1), "number")
    expect_refused(tool.evaluate("ode", "primal", x=3.0, s=1), "array")
    expect_refused(tool.evaluate("ode", "primal", x=[1.0], s=1.5), "whole number")
    expect_refused(tool.evaluate("ode", "primal", x=[1.0], s=-1), "negative")
    expect_refused(tool.evaluate("ode", "primal", x=[1.0], s=1, min_runs=0), "min_runs")
    expect_refused(tool.evaluate("ode", "primal", x=[1.0], s=1, min_seconds="1"), "min_seconds")
    expect_refused(tool.ask(kind="evaluate", module="ode", function="primal", input=[]), "object")
    expect_refused(tool.ask(kind="nothing"), "'nothing'")
    expect_refused(tool.ask(), "'kind' is missing")
    for text in ("", "{", "[1]", "null", "7", '{"id": 1, "kind": 2}', "[" * 100000, '{"id":"\\ud800"}'):
        expect_refused(tool.line(text))
    assert tool.line('{"kind": "end"}') == {"id": None}


def check_protocol(tool):
    start = tool.ask(kind="start", eval="ode", config={"a": 1})
    assert start["tool"] == "gradus" and start["config"] == {"a": 1}, start
    answer = tool.ask(kind="define", module="ode")
    assert answer["success"] and answer["timings"][0]["nanoseconds"] > 0, answer
    answer = tool.evaluate("ode", "primal", x=[0.5], s=1, min_runs=4, min_seconds=0)
    names = [t["name"] for t in answer["timings"]]
    assert names == ["prepare"] + 4 * ["evaluate"], names
    answer = tool.evaluate("ode", "primal", x=[0.5], s=1, min_runs=1, min_seconds=0.02)
    runs = [t["nanoseconds"] for t in answer["timings"] if t["name"] == "evaluate"]
    assert sum(runs) >= 0.02e9 and sum(runs[:-1]) < 0.02e9, len(runs)
    for kind in ("analysis", "end"):
        assert tool.ask(kind=kind) == {"id": tool.id}


def check_ode(tool, numbers):
    assert tool.ask(kind="define", module="ode")["success"]
    for n, s in ((1, 1), (2, 3), (7, 5), (40, 12)):
        x = [numbers.uniform(0, 1) for _ in range(n)]
        expect_near(tool.evaluate("ode", "primal", x=x, s=s)["output"], ode(x, s))
        want = derivatives(lambda v: ode(v, s)[-1], x)
        expect_near(tool.evaluate("ode", "gradient", x=x, s=s)["output"], want)


def check_lstm(tool, numbers):
    assert tool.ask(kind="define", module="lstm")["success"]
    for layers, width, count in ((1, 1, 2), (2, 3, 5), (3, 2, 4)):

        def matrix(n, m):
            return [[numbers.uniform(-1, 1) for _ in range(m)] for _ in range(n)]

        given = {
            "main_params": matrix(2 * layers, 4 * width),
            "extra_params": matrix(3, width),
            "state": matrix(2 * layers, width),
            "sequence": matrix(count, width),
        }
        loss = tool.evaluate("lstm", "objective", **given)["output"]
        assert isinstance(loss, float)
        expect_near(loss, lstm(*given.values()).real)
        jacobian = tool.evaluate("lstm", "jacobian", **given)["output"]
        expect_near(jacobian, lstm_jacobian(*given.values()))
    given["state"] = matrix(2, 1)
    expect_refused(tool.evaluate("lstm", "objective", **given), "state")
    given["state"] = [[1.0, 2.0], [1.0]]
    expect_refused(tool.evaluate("lstm", "objective", **given), "rows of different lengths")


def check_descents(tool):
    for module in ("particle", "saddle"):
        answer = tool.ask(kind="define", module=module)
        assert answer["success"], answer
    assert abs(particle(0.0) - 0.2071918746486116) < 1e-9  # GradBench's own number
    for w in (0.0, 0.3):
        want = particle(w)
        for function in ("rr", "rf", "fr", "ff"):
            expect_near(tool.evaluate("particle", function, w=w)["output"], want, 1e-9)
    for start in ([1.0, 1.0], [0.5, -2.0]):
        want = saddle(start)
        for function in ("rr", "rf", "fr", "ff"):
            expect_near(tool.evaluate("saddle", function, start=start)["output"], want, 1e-9)
    expect_refused(tool.evaluate("saddle", "rr", start=[1.0, 2.0, 3.0]), "start")


def main():
    numbers = random.Random(7)
    tool = Tool(sys.argv[1])
    check_refusals(tool)
    check_protocol(tool)
    check_ode(tool, numbers)
    check_lstm(tool, numbers)
    check_descents(tool)
    tool.process.stdin.close()
    assert tool.process.wait() == 0


main()
