// Opaque functions that can be run, and calls of them.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "gradus/function.h"
#include "gradus/variable.h"

#pragma GCC visibility push(default)

// Opaque functions that can be run.

namespace gradus::autograd {

// What `cpp_op` calls. See gradus/function.h for its name, its types, and how it is registered.
class CppFunction : public ops::OpaqueFunction {
 public:
  // One variable per result, of the dtype, shape and device that `infer` says. In gradient mode the
  // floating results have gradient edges: write it with operators on variables, or as a
  // CustomFunction. It may return an operand, or a view of one. Its operands are read-only.
  // Whatever it throws fails the run.
  virtual Variables call(std::span<const Variable> operands) const = 0;
};

}  // namespace gradus::autograd

// Opaque functions called on variables.

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
