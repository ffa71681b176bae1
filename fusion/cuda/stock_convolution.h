// Kernels of convolutions: products whose columns are gathered as they are wanted.
#pragma once

#include "fusion/cuda/parameters.h"
#include "work/work.h"

namespace gradus::fusion::cuda {

// gather    target [image, group and row, position] = the sum over channels and taps of a kernel's
//           element times what the position reads, of one phase
// weight    result [group and row, channel and tap] = the sum over images and positions
std::vector<StockKernel> convolution_kernels(const work::Convolution& w);

}  // namespace gradus::fusion::cuda
