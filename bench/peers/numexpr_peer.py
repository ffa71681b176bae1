"""NumExpr's turns of the pointwise chain, for bench/chain.h: numexpr_peer.py THREADS ELEMENTS.
For each line that comes in, one evaluation, whose seconds go out. The result is allocated anew, as
everybody else's is."""

import sys
import time

import numexpr
import numpy

threads, elements = int(sys.argv[1]), int(sys.argv[2])
numexpr.set_num_threads(threads)
random = numpy.random.default_rng(1)
a, b, c = (random.standard_normal(elements, dtype=numpy.float32) for _ in range(3))
half, one = numpy.float32(0.5), numpy.float32(1)  # Python's own would make it f64
for _ in sys.stdin:
    start = time.perf_counter()
    y = numexpr.evaluate("tanh(a * b + c) / (one + exp(-a)) - c * half")
    print(time.perf_counter() - start, flush=True)
    assert y.dtype == numpy.float32
    del y
