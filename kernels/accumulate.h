// Adding elements up in a fixed order: what sums over indices and overlapping reads are made of.
#pragma once

#include <cstddef>
#include <cstdint>

#include "work/index.h"

namespace gradus::kernels {

using work::accumulation_dtype;

// target[i * target_stride] += alpha * source[i * source_stride], i in order; the target is of
// work::accumulation_dtype(source's). Integers wrap, bools are or'ed (alpha has no say there).
void add_row(DType source_dtype, const std::byte* source, int64_t source_stride, std::byte* target,
             int64_t target_stride, int64_t n, double alpha = 1);
// target[offsets[i]] += source[i * source_stride], i in order.
void add_at(DType source_dtype, const std::byte* source, int64_t source_stride, std::byte* target,
            const int64_t* offsets, int64_t n);

// Whole rows of n elements, in order of i: target[offsets[i] + j] += source[i * source_row + j].
// Not for 16-bit floats, whose sums have another dtype.
void add_rows_at(DType dtype, const std::byte* source, int64_t source_row, std::byte* target,
                 const int64_t* offsets, int64_t count, int64_t n);

}  // namespace gradus::kernels
