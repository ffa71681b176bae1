// Nodes that give what they are given.
#pragma once

#include "gradus/graph.h"

namespace gradus::ops {

// Whether a node's only result is its first operand, bit by bit and in the same order: a reshape to
// the shape that is there, a cast to the dtype that is there. `x` and `y` are their types.
bool changes_nothing(const ir::Node& node, const ir::Type& x, const ir::Type& y);

// Whether each element of a node's only result is 1, as far as constants and views say. `is_ones`
// says that of its operands.
bool gives_ones(const ir::Node& node, FunctionRef<bool(ir::ValueId)> is_ones);
// Result  what a `mul` multiplies by ones, bit by bit its result but for the shape; or no value
ir::ValueId multiplied_by_ones(const ir::Node& node, FunctionRef<bool(ir::ValueId)> is_ones);

// Given   a product of a column and a row, of which each element has one term
// Result  it is `mul` of the two: true. The bits stay, but for the sign of a zero. Other nodes stay
bool becomes_mul(ir::Node& node, const ir::Graph& graph);

}  // namespace gradus::ops
