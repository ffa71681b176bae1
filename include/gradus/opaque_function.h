// Opaque functions that can be called, and their calls on variables.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "gradus/function.h"
#include "gradus/variable.h"

#pragma GCC visibility push(default)

// Functions of the user.

namespace gradus::autograd {

// The function that `cpp_op` calls. gradus/function.h describes its name, its types and its
// registration.
class CppFunction : public ops::OpaqueFunction {
 public:
  // Returns one variable per result, with the dtype, shape and device that `infer` states. In
  // gradient mode the floating results need gradient edges, so write the function with operators on
  // variables or as a CustomFunction. It may return an operand or a view of one. It must not write
  // its operands. An exception fails the run.
  virtual Variables call(std::span<const Variable> operands) const = 0;
};

}  // namespace gradus::autograd

// Calls.

namespace gradus {

// Calls a registered function: y… = f(x…). The graph of the variables has one node for the call.
// The function's own graph is behind a handle, which that node evaluates. Contributions to an
// operand are added within the node, as in the `eval` of a program, and a backward pass through the
// node can be captured. With create_graph, the gradients have such a node, too.
//
// Throws Error for a name that is not registered and for an undefined operand. Exceptions of the
// function are passed on.
autograd::Variables call_function(std::string_view name,
                                  std::span<const autograd::Variable> operands);
// The same for a function object of a registered name, which may have scalars. Throws Error for an
// object that is no CppFunction.
autograd::Variables call_function(const std::shared_ptr<const ops::OpaqueFunction>& function,
                                  std::span<const autograd::Variable> operands);

}  // namespace gradus

#pragma GCC visibility pop
