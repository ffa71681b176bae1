// Where the greatest or least element is, as a kernel.
#pragma once

#include "fusion/cuda/parameters.h"
#include "work/work.h"

namespace gradus::fusion::cuda {

// Sixteen outputs and sixteen lanes are a block; which of two elements comes first depends on
// nothing but them and their places.
StockKernel extremum_kernel(const work::Extremum& w);

}  // namespace gradus::fusion::cuda
