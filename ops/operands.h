// What compositions and type rules ask of their operands, with the messages that users see.
#pragma once

#include "gradus/value.h"

namespace gradus::ops {

// Operand i, which must be given as a tensor.
const Value& tensor_operand(const ComposeCall& c, size_t i);
// Likewise, of a floating dtype.
const Value& floating_operand(const ComposeCall& c, size_t i);
// Refuses sizes that the types know to differ; `what` completes "sizes 2 and 3 differ: {what}".
// A 1 is no other size, so that broadcasting cannot hide it.
void same_size(const ComposeCall& c, const Dim& a, const Dim& b, std::string_view what);

// `promote`; where there is no common dtype, an Error with the operator's name.
DType common_dtype(const ir::InferCall& call, DType a, DType b);

// Operand i, which holds one number per channel of x, [C] -> [C, 1, ..], so that it broadcasts
// against x [N, C, ..]. Undefined where it is not given.
Value per_channel(const ComposeCall& c, size_t i, const Value& x);

}  // namespace gradus::ops
