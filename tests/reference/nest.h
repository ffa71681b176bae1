// What a nest means: tests hold every backend's kernels against it.
#pragma once

#include "fusion/nest.h"

namespace gradus::fusion {

// Runs a nest by the operators' reference loops, on the calling thread: what every kernel must
// give, bit by bit. `args` are the first elements of the loads' operands, stores, row stores and
// column stores. The frame fits.
void evaluate(const Nest& nest, const Frame& frame, std::byte* const* args);

}  // namespace gradus::fusion
