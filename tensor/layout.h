// How elements lie in memory: dtype, sizes, strides.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/small_vector.h"
#include "tensor/dtype.h"

#pragma GCC visibility push(default)

namespace gradus {

using Sizes = SmallVector<int64_t, 4>;  // numbers of elements, or strides

// Number of elements; nullopt if it (or a negative size) does not fit an int64.
std::optional<int64_t> checked_numel(std::span<const int64_t> shape);
// Number of elements of sizes known to be sane.
int64_t numel(std::span<const int64_t> shape);
Sizes contiguous_strides(std::span<const int64_t> shape);
// Drops dimensions of size 1 and joins neighbours that all walk in one stride; one is left.
void join_dimensions(Sizes& shape, std::span<Sizes* const> strides);
// "[2, 3]"
std::string to_string(std::span<const int64_t> shape);

// Strides are in elements and may be zero (expanded) or negative never.
struct Layout {
  DType dtype = DType::f32;
  Sizes shape;
  Sizes strides;

  Layout() = default;
  Layout(DType d, Sizes sizes)
      : dtype(d), shape(std::move(sizes)), strides(contiguous_strides(shape)) {}
  Layout(DType d, Sizes sizes, Sizes steps)
      : dtype(d), shape(std::move(sizes)), strides(std::move(steps)) {}

  int rank() const { return static_cast<int>(shape.size()); }
  int64_t numel() const { return gradus::numel(shape); }
  // Row-major without gaps; sizes 1 have no say, empty ones are contiguous.
  bool contiguous() const;
  // Elements between the first and one past the last one touched.
  int64_t extent() const;
  // The same for a layout from outside; nullopt where a size or stride is negative, or where the
  // number of elements or the extent does not fit an int64.
  std::optional<int64_t> checked_extent() const;
  friend bool operator==(const Layout&, const Layout&) = default;
};

// The strides under which `layout` can be seen with another shape of as many elements without a
// copy, if there are any.
std::optional<Sizes> view_strides(const Layout& layout, std::span<const int64_t> shape);

}  // namespace gradus

#pragma GCC visibility pop
