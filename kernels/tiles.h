// Tiles: short contiguous runs of elements, converted between dtypes at a kernel's edges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gradus/dtype.h"

namespace gradus::kernels {

// tile[i] = convert(source[i * stride]), i < n. `tile_dtype`: f64, f32, i64, u64, bool. `stride` in
// elements, may be 0.
void load_tile(DType source_dtype, DType tile_dtype, const std::byte* source, int64_t stride,
               int64_t n, void* tile);
// tile[0 .. n) = the elements from `index` on of an array of that shape and strides, row-major.
// `index` is moved on by n. For arrays whose rows are short. The tile has room for `tile_slack`
// elements more, which are overwritten.
inline constexpr int64_t tile_slack = 8;
void load_tile(DType source_dtype, DType tile_dtype, const std::byte* source,
               std::span<const int64_t> shape, std::span<const int64_t> strides,
               std::span<int64_t> index, int64_t n, void* tile);
// target[i] = convert(tile[i]), contiguous.
void store_tile(DType tile_dtype, DType target_dtype, const void* tile, int64_t n,
                std::byte* target);

}  // namespace gradus::kernels
