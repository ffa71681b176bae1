// Operators by the part that they play for others than rules.
#pragma once

#include "gradus/graph.h"
#include "gradus/value.h"

namespace gradus::ops {

// z = x + y: what adds contributions to a gradient up. Its call's kernel does no more than run the
// operator's loop.
const Operator& sum_operator();
// y = x, in memory of its own.
const Operator& copy_operator();
// to = from, as this dtype.
ir::Node cast_node(ir::ValueId from, ir::ValueId to, DType dtype, const SourceLocation& where);

}  // namespace gradus::ops
