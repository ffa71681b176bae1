// Convolutions: by a library where it has one (ops/conv_library.h), else as matrix products over
// columns (ops/conv_columns.h), tile by tile. Tiles, and the order in which partial sums add up,
// depend on sizes alone; sums of a product are in the order of ops/gemm.h over (channel, kernel
// element) or positions. 16-bit floats are worked on as f32.
#pragma once

#include "ir/operator.h"
#include "ops/conv_columns.h"

namespace gradus::ops {

// y = convolution of operand 0, x [N, C, ..], and 1, w [O, C / groups, ..].
void bind_convolution(ir::BindCall& call, const ConvAxes& axes, int64_t groups);
// dx, of operand 0, dy [N, O, ..], and 1, w.
void bind_convolution_input(ir::BindCall& call, const ConvAxes& axes, int64_t groups);
// dw, of operand 0, x, and 1, dy.
void bind_convolution_weight(ir::BindCall& call, const ConvAxes& axes, int64_t groups);

}  // namespace gradus::ops
