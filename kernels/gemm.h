// Matrix products by our own loops.
#pragma once

#include "kernels/make.h"

namespace gradus::kernels {

// Bytes of scratch memory that `gemm` wants for these sizes, on a pool of any size or (where it is
// not to be split) on a pool of one worker.
size_t gemm_scratch_bytes(const Gemm& g, bool split = true);
// The pieces that `gemm` gives to a pool of so many workers: about two for each, and one at least
// where the result has as many tiles and is worth it.
int64_t gemm_items(const Gemm& g, int workers);
// `scratch` is 64-byte aligned. c must not overlap a, b or the scratch.
void gemm(const Gemm& g, const std::byte* a, const std::byte* b, std::byte* c, std::byte* scratch,
          WorkerPool& workers);

}  // namespace gradus::kernels
