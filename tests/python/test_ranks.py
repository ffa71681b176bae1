"""Groups of ranks, here threads: programs that exchange, and their derivatives."""

import threading

import numpy as np
import pytest

import gradus

TEXT = """
graph shared {
  size R = ranks(data) from 1
  stage 0 (%w: f64[3], %x: f64[N, 3] varying(data)) {
    %a = matmul(%x, %w)
    %q = square(%a)
    %own = sum(%q)
    %loss = all_reduce(%own) {group = "data"}
    return %loss
  }
}
"""


def on_ranks(size, body):
    """What body(ranks) gives on each rank; raises what the first one that fails raises."""
    results, errors = [None] * size, []

    def run(ranks):
        try:
            with gradus.Context(workers=1):
                results[ranks.rank] = body(ranks)
        except Exception as error:  # noqa: BLE001
            errors.append(error)
            ranks.abandon(str(error))

    threads = [
        threading.Thread(target=run, args=(ranks,))
        for ranks in gradus.thread_ranks(size, time_limit=20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


@pytest.mark.parametrize("size", [1, 2, 3])
def test_gradients_are_those_of_all_ranks(size):
    code = gradus.parse(TEXT).differentiate(1).compile()
    rng = np.random.default_rng(0)
    w, rows = rng.normal(size=3), [rng.normal(size=(2 + r, 3)) for r in range(size)]

    def body(ranks):
        assert ranks.size == size
        gradus.bind_group("data", ranks)
        state = gradus.State(code)
        (loss,) = state.run(w, rows[ranks.rank])
        dw, dx = state.run(1.0)
        return loss.numpy(), dw.numpy(), dx.numpy()

    whole = np.concatenate(rows)
    for rank, (loss, dw, dx) in enumerate(on_ranks(size, body)):
        np.testing.assert_allclose(loss, np.sum((whole @ w) ** 2), rtol=1e-13)
        np.testing.assert_allclose(dw, 2 * whole.T @ (whole @ w), rtol=1e-12)
        np.testing.assert_allclose(dx, 2 * np.outer(rows[rank] @ w, w), rtol=1e-12)


def test_a_group_that_is_not_bound_is_named():
    with gradus.Context(), pytest.raises(gradus.Error, match='bound to the name "data"'):
        gradus.State(gradus.parse(TEXT).compile()).run(np.ones(3), np.ones((2, 3)))


def test_other_ranks_are_told_why_one_gave_up():
    def body(ranks):
        if ranks.rank == 1:
            raise ValueError("no data here")
        gradus.bind_group("data", ranks)
        gradus.State(gradus.parse(TEXT).compile()).run(np.ones(3), np.ones((2, 3)))

    seen = []

    def noted(ranks):
        try:
            return body(ranks)
        except gradus.Error as error:
            seen.append(str(error))
            raise

    with pytest.raises(Exception):  # noqa: B017
        on_ranks(2, noted)
    assert any("rank 1 has given up: no data here" in text for text in seen)


def test_what_is_no_communicator_is_refused():
    with pytest.raises(gradus.Error, match="mpi4py"):
        gradus.mpi_ranks(3)
    with pytest.raises(gradus.Error, match="time_limit"):
        gradus.thread_ranks(2, time_limit=-1)
