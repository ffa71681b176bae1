// Opaque functions, and `eval` of what they leave, among values that are variables: in the graph of
// a loop that runs step by step.
#pragma once

#include "gradus/apply.h"

namespace gradus::autograd {

// What VariableWorld::emit_results gives for an opaque operator. A handle is a value whose payload
// is the graph that the function has recorded.
SmallVector<ops::Value, 2> emit_opaque(VariableWorld& world, const ir::Operator& op,
                                       const ir::Attributes& attributes,
                                       std::span<const ops::Value> operands, size_t results);

}  // namespace gradus::autograd
