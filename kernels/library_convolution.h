// Convolutions that oneDNN computes: f32 and bf16, from a size on.
#pragma once

#include <optional>

#include "kernels/make.h"

namespace gradus::kernels {

// Nothing where the library has nothing for it. A batch is worked on in parts that depend on the
// sizes alone; parts of dw are added up in order, in f32.
std::optional<Kernel> make_library(const Convolution& w);

}  // namespace gradus::kernels
