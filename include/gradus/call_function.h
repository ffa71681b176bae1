// Opaque functions called on variables.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "autograd/variable.h"
#include "ops/function.h"

#pragma GCC visibility push(default)

namespace gradus {

// y… = f(x…), f a registered function. The variables' graph has one node for it, whatever the
// function does: its own graph stays behind a handle, which that node evaluates. What the function
// contributes to an operand is added up within it, as by a program's `eval`; and a backward through
// the node can be captured. With create_graph the gradients have such a node in
// turn.
// Throws Error for a name that is not registered; whatever the function throws goes through.
autograd::Variables call_function(std::string_view name,
                                  std::span<const autograd::Variable> operands);
// The same of a function at hand (of a registered name), which may bring scalars. Throws Error for
// one that cannot be run.
autograd::Variables call_function(const std::shared_ptr<const ops::OpaqueFunction>& function,
                                  std::span<const autograd::Variable> operands);

}  // namespace gradus

#pragma GCC visibility pop
