// The inner loops of reductions, by accumulator type and instruction set. See work/reduce.h for the
// order that they keep.
#pragma once

#include <cstdint>

#include "work/reduce.h"

namespace gradus::kernels {

using work::reduce_chunk;
using work::reduce_lanes;
using work::Reducer;

// Pointers are to elements of the accumulator's type (bool for `all` and `any`).
struct ReduceLoops {
  size_t size;  // bytes of an accumulator
  // partial[j] = the chunk x[j * stride] .. x[j * stride + n), for j < rows; n <= reduce_chunk.
  void (*rows)(const void* x, int64_t stride, int64_t rows, int64_t n, void* partial);
  // lane[(first + i) mod 16][t] = combine(…, x[i * stride + t]) for i < rows, t < n, where lane is
  // [16][n] and `first` < 16.
  void (*columns)(const void* x, int64_t stride, int64_t rows, int64_t n, int64_t first,
                  void* lanes);
  // lanes[0 .. n) = the fold of the first `lanes_used` (a power of two) of [16][n].
  void (*fold)(void* lanes, int64_t lanes_used, int64_t n);
  // into[i] = combine(into[i], other[i])
  void (*combine)(void* into, const void* other, int64_t n);
  void (*fill)(void* into, int64_t n);  // with the identity
};

const ReduceLoops& reduce_loops(Reducer reducer, Compute compute);

}  // namespace gradus::kernels
