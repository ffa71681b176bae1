"""Ranks of communicators that the host program has: mpi4py's, whole and split."""

import sys

import numpy as np
from mpi4py import MPI

import gradus

TEXT = """
graph shared {
  size R = ranks(data) from 1
  stage 0 (%w: f64[3], %x: f64[3] varying(data)) {
    %a = mul(%x, %w)
    %q = square(%a)
    %own = sum(%q)
    %loss = all_reduce(%own) {group = "data"}
    return %loss
  }
}
"""


def check(communicator):
    ranks = gradus.mpi_ranks(communicator, time_limit=20)
    assert (ranks.rank, ranks.size) == (communicator.rank, communicator.size)
    x = np.random.default_rng(MPI.COMM_WORLD.rank).normal(size=3)
    w = np.array([1.0, 2.0, 3.0])
    with gradus.Context(workers=1):
        gradus.bind_group("data", ranks)
        state = gradus.State(gradus.parse(TEXT).differentiate(1).compile())
        (loss,) = state.run(w, x)
        slope, _ = state.run(1.0)
    expected = communicator.allreduce(((w * x) ** 2).sum())
    np.testing.assert_allclose(float(loss), expected, rtol=1e-13)
    np.testing.assert_allclose(np.array(slope), communicator.allreduce(2 * w * x * x), rtol=1e-13)


world = MPI.COMM_WORLD
assert world.size == int(sys.argv[1]), f"{world.size} ranks"
check(world)
check(world.Split(world.rank % 2, world.rank))
# Both go on: what is mpi4py's stays as it was.
assert world.allreduce(1) == world.size
if world.rank == 0:
    print(MPI.Get_library_version().split("\n")[0])
