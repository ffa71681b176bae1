// Windows of an image as columns of a matrix: what makes a convolution a matrix product.
#pragma once

#include "gradus/dtype.h"
#include "kernels/make.h"

namespace gradus::kernels {

// columns[(c * taps + j) * pitch + q - first] = what position q reads with tap j of channel c, for
// q in [first, first + n), in row-major order of taps and positions. `source` is channel 0.
template <class T, class C>
void gather_columns(const Phase& p, const ConvTensor& layout, const T* source, int64_t channels,
                    int64_t first, int64_t n, C* columns, int64_t pitch);
// The other way: target position q of a channel = values[q - first]; `gap` further values lie
// between those of rows of positions.
template <class T, class C>
void scatter_positions(const Phase& p, const ConvTensor& layout, const C* values, int64_t first,
                       int64_t n, T* target, int64_t gap);

// Parts of scratch memory, of 64-byte lines each.
struct Region {
  size_t bytes = 0;
  size_t take(int64_t elements, DType dtype) {
    const size_t at = bytes;
    bytes += (static_cast<size_t>(elements) * size_of(dtype) + 63) / 64 * 64;
    return at;
  }
};

// Calls f with the tags of a floating dtype and of the type that its sums are in.
template <class F>
void visit_work(DType dtype, F f) {
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_integral_v<T>)
      f(tag, TypeTag<std::conditional_t<std::is_same_v<T, double>, double, float>>{});
  });
}

}  // namespace gradus::kernels
