// Where the greatest or least element is.
#pragma once

#include <span>

#include "ir/operator.h"

namespace gradus::ops {

// Of the elements of the first operand over `dims` (ascending; not of size 0): the first NaN, else
// the first of the greatest (least) ones. Result `index` (i64) is its number in row-major order of
// the reduced dimensions, result `value` (unless -1) the element itself. Sets call's kernel.
void bind_arg_reduction(ir::BindCall& call, bool greatest, std::span<const int64_t> dims, int value,
                        int index);

}  // namespace gradus::ops
