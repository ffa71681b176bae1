// What work means, in the plainest way: tests hold every backend's code against it.
#pragma once

#include "work/work.h"

namespace gradus::reference {

// Does the work on `args`, which are a kernel's: one element after the other, on this thread, each
// found by the shapes and strides alone. It follows the comments in work/ and shares nothing with
// the kernels but the scalar rules of operators. Slow.
//
// What it writes has the bits of every backend's code, but for
//   NaNs, of which sign and payload do not count;
//   large products and convolutions, where a library orders the sums;
//   inverse, det and cofactor of matrices, for which work/kinds.h specifies no order.
// Throws Error as a kernel does.
void evaluate(const work::Work& work, std::byte* const* args);
// A nest at a frame that fits it: what every kernel of it must give, bit by bit.
void evaluate(const work::Nest& nest, const work::Frame& frame, std::byte* const* args);

}  // namespace gradus::reference
