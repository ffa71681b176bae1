// Opaque functions that can be run.
#pragma once

#include "autograd/variable.h"
#include "ops/function.h"

#pragma GCC visibility push(default)

namespace gradus::autograd {

// What `cpp_op` calls. See ops/function.h for its name, its types, and how it is registered.
class CppFunction : public ops::OpaqueFunction {
 public:
  // One variable per result, of the dtype, shape and device that `infer` says. In gradient mode the
  // floating results have gradient edges: write it with operators on variables, or as a
  // CustomFunction. It may return an operand, or a view of one. Its operands are read-only.
  // Whatever it throws fails the run.
  virtual Variables call(std::span<const Variable> operands) const = 0;
};

}  // namespace gradus::autograd

#pragma GCC visibility pop
