// Parts of tensors among zeros, as gradients of selects and slices are.
#pragma once

#include <optional>
#include <vector>

#include "gradus/graph.h"
#include "gradus/value.h"

namespace gradus::ops {

// y is zero, but from `begin` to `end` along `dim`, where it is the node's operand.
struct PaddedPart {
  ir::ValueId part;
  int64_t dim, begin, end, size;
};
// None of a node that is anything else, or whose places only a run knows.
std::optional<PaddedPart> padded_part(const ir::Graph& graph, const ir::Node& node);

// Whether a node is z = x + y of two values of z's type.
bool adds_up(const ir::Graph& graph, const ir::Node& node);

// The sum of parts that do not overlap, in order of their begins, to the bit: an element is one
// part's and zeros, and that sum is never -0.
Value joined(World& world, std::span<const Value> parts, std::span<const PaddedPart> places);

}  // namespace gradus::ops
