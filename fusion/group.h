// Pointwise nodes -> one nest.
#pragma once

#include <optional>
#include <string>

#include "fusion/nest.h"
#include "ir/graph.h"

namespace gradus::fusion {

struct Group {
  Nest nest;
  Frame frame;
  std::vector<Layout> results;  // of the stores, as they are without the collapsing of dimensions
};

// Stage 0 of a graph as one nest, for inputs that lie so. Nothing where it is none, and then
// `why_not` (may be null) says why: a node that is not pointwise, one that may refuse its operands
// while running, a result smaller than the loops, or a size in a number's place. The graph is
// verified, and the inputs are of its types. Dimensions that all operands walk in one stride are
// one loop.
std::optional<Group> group_stage(const ir::Graph& graph, std::span<const Layout> inputs,
                                 std::string* why_not = nullptr);

}  // namespace gradus::fusion
