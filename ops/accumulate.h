// Adding elements up in a fixed order: what sums over indices and overlapping reads are made of.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace gradus::ops {

// What sums of a dtype are kept in: f32 for the 16-bit floats, the dtype itself for all others.
constexpr DType accumulation_dtype(DType d) {
  return d == DType::f16 || d == DType::bf16 ? DType::f32 : d;
}

// target[i * target_stride] += alpha * source[i * source_stride], i in order; the target is of
// accumulation_dtype(source's). Integers wrap, bools are or'ed (alpha has no say there).
void add_row(DType source_dtype, const std::byte* source, int64_t source_stride, std::byte* target,
             int64_t target_stride, int64_t n, double alpha = 1);
// target[offsets[i]] += source[i * source_stride], i in order.
void add_at(DType source_dtype, const std::byte* source, int64_t source_stride, std::byte* target,
            const int64_t* offsets, int64_t n);

}  // namespace gradus::ops
