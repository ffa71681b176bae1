// Programs some of whose nodes are hidden behind an opaque function.
#pragma once

#include "tests/corpus/subject.h"

namespace gradus::corpus {

struct Hidden {
  ir::Graph graph;   // stage 0 alone, with a `cpp_op` in the place of some nodes
  size_t nodes = 0;  // so many; 0: there are none that can be hidden
  // The stages that must give the same bits as without the function: in the others sums may
  // associate otherwise.
  size_t same_bits = 1;
};

// Hides the first nodes in a row of stage 0, up to 8, that a function can stand for: differentiable
// ones whose operands name every size that they need. The function is registered, for good.
Hidden hide_nodes(const ir::Graph& graph);

// The fixture's programs with hidden nodes, derived as the cases say: what comes out is what comes
// out without a function.
void opaque(const ir::Fixture& fixture);

}  // namespace gradus::corpus
