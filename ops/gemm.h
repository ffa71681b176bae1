// Matrix products: the one door to them.
//
// The order, which every element of a product keeps whatever the layout, the blocking, the
// instruction set and the number of threads: the sum over k is cut into blocks of gemm_block;
// within a block, an accumulator starts from +0 and takes acc = fma(a[i,k], b[k,j], acc), k
// ascending; the blocks' accumulators add up in order, c = ((s0 + s1) + s2) + …. Accumulators are
// f64 for f64, f32 for f32, f16 and bf16 (rounded once, at the end), and wrap for integers. A
// product over no k is 0.
#pragma once

#include <cstdint>

#include "base/small_vector.h"
#include "base/worker_pool.h"
#include "tensor/dtype.h"

namespace gradus::ops {

inline constexpr int64_t gemm_block = 256;

// c[batch, i, j] = sum over k of a[batch, i, k] * b[batch, k, j]; c lies without gaps, batch
// row-major. Strides are in elements, of any value from 0 up; all three have one dtype, not bool.
struct Gemm {
  struct Batch {
    int64_t size, a_stride, b_stride;
  };
  DType dtype = DType::f32;
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_column = 0;  // strides of a over i and k
  int64_t b_row = 0, b_column = 0;  // strides of b over k and j
  SmallVector<Batch, 3> batch;      // outermost first
};

// A product of one column is one of one row, b^T a^T: who computes in tiles has them wider than
// they are high. Operands change places then. Others stay as they are.
Gemm with_wide_result(const Gemm& g);

// Bytes of scratch memory that `gemm` wants for these sizes, on a pool of any size or (where it is
// not to be split) on a pool of one worker.
size_t gemm_scratch_bytes(const Gemm& g, bool split = true);
// `scratch` is 64-byte aligned. c must not overlap a, b or the scratch.
void gemm(const Gemm& g, const std::byte* a, const std::byte* b, std::byte* c, std::byte* scratch,
          WorkerPool& workers);

}  // namespace gradus::ops
