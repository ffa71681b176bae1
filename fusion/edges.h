// Instructions that only move elements, as loads of nests: at the edges of groups.
#pragma once

#include <optional>

#include "gradus/graph.h"
#include "gradus/operator.h"
#include "ops/edge.h"

namespace gradus::fusion {

// An instruction's result by where its elements are: `cat` and `constant_pad_nd` have several
// sources, each for a part; `gather` and `index_select` one, and an index.
struct Edge : ops::Sources {
  const ir::Node* node = nullptr;
  ir::ValueId result = ir::no_value;  // which value of the stage it is
  Layout layout;                      // of the result

  size_t operands() const { return sources.size() + (index ? 1 : 0); }
};

// What a node is to a kernel that reads its result where its operands are. `in` are their layouts,
// none of one that is absent. Nothing where it is no such node, has an absent operand, converts,
// has no elements, or leaves out some of a padded operand.
std::optional<Edge> edge_of(const ir::Node& node, std::span<const std::optional<Layout>> in,
                            const Layout& out, const ir::DimEnvironment& sizes);

// The same elements in the same order as a result of another shape; false where they do not lie so.
bool reshape(Edge& edge, const Sizes& shape);

}  // namespace gradus::fusion
