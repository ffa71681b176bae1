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

// x + 0, which is never -0. If x is a reshape of another value, `reshaped`, the zero is added to
// that: there the sum is one step more of what computes it.
Value without_minus_zero(const Value& x, const Value* reshaped);
bool is_reshape(const ir::Node& node);

// The sum of parts that do not overlap and have no -0, in order of their begins, to the bit: an
// element is one part's and zeros. With `order` (of a permute), the sum's dimensions are in this
// order.
Value joined(World& world, std::span<const Value> parts, std::span<const PaddedPart> places,
             const Ints* order = nullptr);

// The order in which the node permutes its operand's dimensions, counted from the front; none of
// other nodes.
std::optional<Ints> permuted_order(const ir::Graph& graph, const ir::Node& node);

}  // namespace gradus::ops
