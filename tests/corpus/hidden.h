// Programs some of whose nodes are hidden behind an opaque function.
#pragma once

#include <functional>

#include "tests/corpus/subject.h"

namespace gradus::corpus {

struct Hidden {
  std::string function;  // that stands for the nodes; empty: there are none that can be hidden
  ir::Graph graph;       // stage 0 alone, with a `cpp_op` in their place
};

// Hides nodes of stage 0, in which `grad`s and compositions without a rule are taken apart. The
// functions are registered, for good.
//
// All nodes.
Hidden hide_all(const ir::Graph& stage);
// Nodes in a row that a function can stand for: differentiable ones whose operands name every size
// that they need. Of those that `accept` takes the longest, up to 8; not all nodes there are.
Hidden hide_some(const ir::Graph& stage, const std::function<bool(const Hidden&)>& accept);
// Stage 0 as the above take it.
ir::Graph stage_to_hide(const Subject& subject);

// The subject with nodes hidden: all of stage 0; the longest part of which sums are known to
// associate as without; and the longest part of all.
struct Opaque {
  const char* way;
  Subject subject;
  size_t same_bits;  // so many stages, from the first on; see association.h
};
std::vector<Opaque> with_functions(const Subject& subject);

// The fixture's programs with hidden nodes, derived as the cases say: what comes out is what comes
// out without a function.
void opaque(const ir::Fixture& fixture);

}  // namespace gradus::corpus
