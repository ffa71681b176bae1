// Kernels of convolutions: products whose columns are gathered as they are wanted.
#pragma once

#include "fusion/cuda/source.h"
#include "work/work.h"

namespace gradus::fusion::cuda {

// Both take one struct of 64-bit fields in this order; lists have three elements.
//
// gather    target [image, group and row, position] = the sum over channels and taps of a kernel's
//           element times what the position reads, of one phase (ops/conv_columns.h)
//           source, weights, target, batch, groups, rows, channels, source_batch, source_channel,
//           source_by[], target_batch, target_channel, target_by[], weight_group, weight_row,
//           weight_channel, weight_by[], then a phase
// weight    result [group and row, channel and tap] = the sum over images and positions
//           x, dy, result, batch, groups, rows, channels, parts, width, x_batch, x_channel, x_by[],
//           dy_batch, dy_channel, dy_by[], then a phase
// a phase   first[], step[], count[], tap_first[], tap_step[], taps[], offset[], move[],
//           tap_move[], source_size[]
Source gather_source(DType dtype);
Source weight_source(DType dtype);

}  // namespace gradus::fusion::cuda
