// One reverse sweep over a graph: the core of `differentiate` and of `grad`.
#pragma once

#include "ir/passes/graph_world.h"

namespace gradus::ir {

struct Root {
  ValueId value;
  ValueId cotangent;
};

// Given   y0 .. yn with cotangents, and values x0 .. xm
// Execute each node between them, last first: its derivative rule is emitted into `world`
// Result  for each x the value d(sum <ct_i, y_i>)/dx, or no_value where no differentiable path
//         leads from a root to it. `runs` are the nodes to walk, in program order: those of stage
//         r in runs[r]. An opaque node on the way is given a handle as its last result if it has
//         none; a `while` on the way becomes a `scan` (count_trips.h).
// Contributions to one value are added in the order in which the sweep finds them. `sums`, where it
// is given, is told by x whether there was more than one.
// Throws Error, at the node's place, for an operator on such a path that has no derivative.
std::vector<ValueId> backpropagate(Graph& graph, GraphWorld& world,
                                   std::span<std::vector<Node>* const> runs,
                                   std::span<const Root> roots, std::span<const ValueId> wrt,
                                   std::vector<bool>* sums = nullptr);

// By value, whether it depends on one of `wrt` through differentiable rules.
std::vector<bool> find_dependent(Graph& graph, std::span<const std::span<Node>> runs,
                                 std::span<const ValueId> wrt);

}  // namespace gradus::ir
