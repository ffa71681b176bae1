// Windows of an image as columns of a matrix: what makes a convolution a matrix product.
#pragma once

#include "kernels/make.h"

namespace gradus::kernels {

// columns[(c * taps + j) * n + q - first] = what position q reads with tap j of channel c, for
// q in [first, first + n), in row-major order of taps and positions. `source` is channel 0.
template <class T, class C>
void gather_columns(const Phase& p, const ConvTensor& layout, const T* source, int64_t channels,
                    int64_t first, int64_t n, C* columns);
// The other way: target position q of a channel = values[q - first].
template <class T, class C>
void scatter_positions(const Phase& p, const ConvTensor& layout, const C* values, int64_t first,
                       int64_t n, T* target);

}  // namespace gradus::kernels
