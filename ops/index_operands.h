// What the operators that take index tensors ask of their operands.
#pragma once

#include "gradus/rules.h"

namespace gradus::ops {

// The type of operand i, which has to be i64 or i32.
const Type& index_tensor(const InferCall& call, size_t i);
// Operand i, where it is a tensor, has to be of the dtype of x.
void same_dtype(const InferCall& call, const Type& x, size_t i);

}  // namespace gradus::ops
