// What solves the equations of `root` and `linear_solve`, and their derivatives, as graphs.
#pragma once

#include "gradus/graph.h"

namespace gradus::ir {

// Given   a node of `graph`
// Result  whether it solves an equation without these graphs: its attributes have them now. Steps
//         are a `while`; a derivative is that of the equation at the solution, and no step's
bool settle_solver(const Graph& graph, Node& node);

}  // namespace gradus::ir
