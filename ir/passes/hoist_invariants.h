// What steps of loops would compute again and again.
#pragma once

#include "gradus/graph.h"

namespace gradus::ir {

// Given   loops
// Execute functions, sums and products that a step computes of a loop's constants alone are
//         computed once, before the loop, which takes them as further constants; those of a loop
//         in a loop go as far out as they can
// Result  the same bits. What may refuse its operands or not end stays, loops and branches that
//         hold such too, for a loop may take no step; so do copies and views, which cost no more
//         than reading them
void hoist_invariants(Graph& graph);

}  // namespace gradus::ir
