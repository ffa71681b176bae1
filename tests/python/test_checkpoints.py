"""Loops whose derivatives keep the carries before segments alone."""

import numpy as np
import pytest

import gradus
from gradus import ops


def pendulum(theta, steps, **said):
    def step(i, carry):
        v, x = carry
        v = v - 0.01 * theta * ops.sin(x)
        return v, x + 0.01 * v

    v, x = gradus.fori_loop(0, steps, step, (np.array(0.1), np.array(1.0)), **said)
    return x * x + v


def recurrent(w, h, xs, **said):
    def step(h, x):
        h = ops.tanh(w @ h + x)
        return h, (h * h).sum()

    last, ys = gradus.scan(step, h, xs, **said)
    return (last * last).sum() + (ys * ys).sum()


def growing(k, **said):
    return gradus.while_loop(lambda x: x < 50.0, lambda x: x * k + ops.sin(x), np.array(1.5), **said)


def same_bits(f, *args, segments):
    second = lambda **said: gradus.grad(  # noqa: E731
        lambda *a: (gradus.grad(lambda *b: f(*b, **said))(*a) * np.arange(1.0, 1 + np.size(args[0])).reshape(
            np.shape(args[0]))).sum())
    for order in (lambda **said: gradus.grad(lambda *a: f(*a, **said)), second):
        every = order()(*args)
        for checkpoint in segments:
            np.testing.assert_array_equal(every, order(checkpoint=checkpoint)(*args))


def test_bits_do_not_depend_on_checkpoints(rng):
    same_bits(lambda theta, **said: pendulum(theta, 57, **said), np.array(0.7), segments=(1, 8, [20, 4]))
    w, h, xs = rng.standard_normal((3, 3)), rng.standard_normal(3), rng.standard_normal((11, 3))
    same_bits(lambda w, **said: recurrent(w, h, xs, **said), w, segments=(3, [5, 2, 1]))
    same_bits(lambda w, **said: recurrent(w, h, xs, reverse=True, **said), w, segments=(4,))


def test_as_many_steps_as_data_say():
    every = gradus.trace(growing, np.array(1.3), order=1)
    some = gradus.trace(lambda k: growing(k, checkpoint=2), np.array(1.3), order=1)
    assert "checkpoint = [2]" in str(some)
    results = []
    for program in (every, some):
        state = gradus.State(program.compile())
        state.run(np.array(1.3))
        results.append(state.run(np.array(1.0))[0].item())
    assert results[0] == results[1]


@pytest.mark.parametrize(
    "checkpoint, said",
    [(0, "lengths are positive"), ([4, 4], "each less than before"), (1.5, "has to be an integer"),
     ("ab", "has to be an integer")],
)
def test_lengths_that_are_none(checkpoint, said):
    with pytest.raises(gradus.Error, match=said):
        pendulum(np.array(0.7), 5, checkpoint=checkpoint)
    with pytest.raises(gradus.Error, match="while_loop: .*" + said):
        growing(np.array(1.3), checkpoint=checkpoint)
