// Products that oneDNN (f32, bf16) and OpenBLAS (f64) compute, from a size on.
#pragma once

#include <optional>

#include "kernels/make.h"

namespace gradus::kernels {

// Nothing where no library reads the operands where they lie. A product is cut into tiles that
// depend on the sizes alone, each computed by one worker: the result has the same bits whatever the
// number of workers, though not on every instruction set.
std::optional<Kernel> make_library(const Gemm& g);

}  // namespace gradus::kernels
