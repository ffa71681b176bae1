// Matrix products by our own loops.
#pragma once

#include "kernels/make.h"

namespace gradus::kernels {

// Bytes of scratch memory that `gemm` wants for these sizes, on a pool of any size or (where it is
// not to be split) on a pool of one worker.
size_t gemm_scratch_bytes(const Gemm& g, bool split = true);
// `scratch` is 64-byte aligned. c must not overlap a, b or the scratch.
void gemm(const Gemm& g, const std::byte* a, const std::byte* b, std::byte* c, std::byte* scratch,
          WorkerPool& workers);

}  // namespace gradus::kernels
