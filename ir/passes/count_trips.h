// Loops whose end depends on data, for derivatives.
//
// What a backward pass reads of a loop's steps is kept for as many steps as there are. So a `while`
// that a gradient passes is counted first: a `while` that carries a number more says how many steps
// it takes, `range` gives that a name, and a `scan` takes them. Sweeps see the scan alone.
#pragma once

#include "ir/passes/backpropagate.h"

namespace gradus::ir {

// Given   nodes of `graph`, those of stage r in runs[r], and what derivatives are taken with
//         respect to, from these roots
// Execute each `while` among them that passes a gradient on becomes such a scan
void count_trips(Graph& graph, std::span<std::vector<Node>* const> runs,
                 std::span<const Root> roots, std::span<const ValueId> wrt);
// Of all stages, with respect to every input.
void count_trips(Graph& graph);

// The nodes of each run.
std::vector<std::span<Node>> spans_of(std::span<std::vector<Node>* const> runs);

}  // namespace gradus::ir
