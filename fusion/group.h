// Pointwise nodes -> one nest.
#pragma once

#include <optional>
#include <string>

#include "fusion/edges.h"
#include "fusion/nest.h"

namespace gradus::fusion {

// Nodes of a stage that are to be one nest.
//
// Reductions may be among them where all reduce the same trailing dimensions: those are the rows.
// Others may reduce all the dimensions before those, the columns; no node may read what they give.
// A value of a row has one element where the loops have a row's. Its views that say the same for
// each element of the row need no node: they are aliases.
struct Selection {
  const ir::Graph& graph;
  std::span<const ir::Node* const> nodes;  // in the order of the stage
  std::span<const ir::ValueId> inputs;     // all that they read and none of them makes
  std::span<const Layout> layouts;         // of the inputs
  // What is stored of what they make or read: values of elements first, then those of rows, then
  // those of columns.
  std::span<const ir::ValueId> results;
  std::span<const std::pair<ir::ValueId, ir::ValueId>> aliases = {};  // views, and whose
  bool places = false;  // whether the steps say where their instructions stand
  // Results that are read where their operands are. They are inputs of the nodes, no results.
  std::span<const Edge> edges = {};
};

struct Group {
  // An operand of an edge, or elements of its number.
  struct Argument {
    size_t edge;
    std::optional<uint32_t> operand;
    int64_t filled = 0;  // without an operand: how many
  };
  Nest nest;
  Frame frame;
  std::vector<Argument> arguments;  // of the loads after those of the inputs
  std::vector<Layout> results;  // of the stores, as they are without the collapsing of dimensions
  // Sizes that stand as numbers: an i64 each, loaded after all others, so that a kernel does not
  // depend on them.
  std::vector<ir::Dim> sizes;
  std::vector<Edge> edges;  // what `arguments` are of
};

// Boxes of the loops that a group may fall into: each is a call.
inline constexpr int64_t most_cells = 128;
// Bytes of an edge's number that lie one after the other for a group's sake.
inline constexpr int64_t most_filled = 1 << 16;

// Whether a node can be part of a nest at all; if not, `why_not` (may be null) says why: it is not
// pointwise and reduces no trailing or leading dimensions, may refuse its operands while running,
// or has an operand that no nest takes.
bool belongs_into_nests(const ir::Graph& graph, const ir::Node& node,
                        std::string* why_not = nullptr);

// What a node that reduces trailing dimensions of such a shape gives.
struct RowResult {
  Sizes shape;  // with all dimensions
  bool drops;   // its type lacks some, so that it does not broadcast against what is reduced
};
// Nothing for other nodes.
std::optional<RowResult> row_result(const ir::Graph& graph, const ir::Node& node,
                                    const Sizes& shape);
// The same of one that reduces leading dimensions, but not all; no node of the group reads it.
std::optional<Sizes> column_result(const ir::Graph& graph, const ir::Node& node,
                                   const Sizes& shape);

// The nodes as one nest. Nothing where they are none, and then `why_not` (may be null) says why:
// one of them belongs into no nest, or a result is smaller than the loops. The graph is verified,
// and the layouts are of the inputs' types. Dimensions that all operands walk in one stride are
// one loop.
std::optional<Group> group_nodes(const Selection& selection, std::string* why_not = nullptr);

// The same of stage 0 of a graph, for inputs that lie so; nodes that only move inputs are edges.
// Sizes in a number's place are refused.
std::optional<Group> group_stage(const ir::Graph& graph, std::span<const Layout> inputs,
                                 std::string* why_not = nullptr);

}  // namespace gradus::fusion
