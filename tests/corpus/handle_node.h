// What leaves a handle, among variables: one node, so that its function is a graph of its own.
#pragma once

#include "autograd/variable.h"
#include "interpreter/handle.h"

namespace gradus::corpus {

// Results of an opaque instruction, and what an `eval` of its handle needs. `inputs`: where the
// gradients go that the handle yields, in its order.
struct OpaqueVariables {
  autograd::Variables results;
  Ref<const interpreter::Handle> handle;
  SmallVector<autograd::Edge, 2> inputs;
};

// The function on variables as a program's `cpp_op` runs it: what it contributes to an operand is
// added up within the function before it meets what others contribute. `marks`, by operand: whether
// its gradient may be asked for. There is a handle where a gradient may flow, or `leaves_handle`.
OpaqueVariables call_opaque(const autograd::CppFunction& function,
                            std::span<const autograd::Variable> operands,
                            std::span<const bool> marks, bool leaves_handle);
// `eval`: undefined cotangents are absent; they are zeros if the result is recorded.
OpaqueVariables evaluate_opaque(const OpaqueVariables& of,
                                std::span<const autograd::Variable> cotangents, bool leaves_handle);

}  // namespace gradus::corpus
