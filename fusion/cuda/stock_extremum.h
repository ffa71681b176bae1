// Where the greatest or least element is, as a kernel.
#pragma once

#include "fusion/cuda/source.h"
#include "work/work.h"

namespace gradus::fusion::cuda {

// Sixteen outputs and sixteen lanes are a block; which of two elements comes first depends on
// nothing but them and their places.
//           x, values (or 0), places, outputs, count, kept_size[kept], kept_by[kept],
//           reduced_size[reduced], reduced_by[reduced]
Source extremum_source(const work::Extremum& w);

}  // namespace gradus::fusion::cuda
