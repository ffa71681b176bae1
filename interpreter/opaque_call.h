// Opaque instructions on variables: what a program's `cpp_op` and `eval` do, as nodes of a graph.
#pragma once

#include "autograd/saved_variable.h"
#include "gradus/opaque_function.h"
#include "interpreter/handle.h"

namespace gradus {

namespace interpreter {

// What left a handle: a function called, or an eval of another's handle. Never changes.
struct HandleOrigin final : RefCounted {
  std::shared_ptr<const autograd::CppFunction> function;  // null: an eval
  SmallVector<bool, 4> marks;         // by operand of the function: is it differentiable
  Ref<const HandleOrigin> evaluated;  // by an eval
  // Of the function; of an eval its cotangents, undefined where absent.
  std::vector<autograd::SavedVariable> operands;
  size_t results = 0;
  Ref<const Handle> handle;
};

struct OpaqueVariables {
  autograd::Variables results;
  Ref<const HandleOrigin> instruction;  // null where no handle was left
  // Where the gradients go that its handle yields, in its order.
  SmallVector<autograd::Edge, 2> inputs;
};

// A handle is left where a gradient may flow, or if `leaves_handle`.
OpaqueVariables call_opaque(std::shared_ptr<const autograd::CppFunction> function,
                            std::span<const autograd::Variable> operands,
                            std::span<const bool> marks, bool leaves_handle);
// `eval`: undefined cotangents are absent.
OpaqueVariables evaluate_opaque(const OpaqueVariables& of,
                                std::span<const autograd::Variable> cotangents, bool leaves_handle);

// The node of such an instruction's results.
class OpaqueNode final : public autograd::Node {
 public:
  OpaqueNode(Ref<const HandleOrigin> instruction, SmallVector<autograd::Edge, 2> edges);
  std::string name() const override;
  void release_variables() override;

  // Throws Error if it was let go.
  Ref<const HandleOrigin> instruction() const;
  // Whether result i takes a cotangent of the handle.
  bool takes(size_t i) const { return takes_[i]; }
  // Adds an input for the next result; `takes`: among those that take cotangents.
  autograd::Variable add_result(Tensor t, bool takes);

 private:
  autograd::Variables apply(autograd::Variables&& cotangents) override;
  Ref<const HandleOrigin> instruction_;
  SmallVector<bool, 2> takes_;
};

}  // namespace interpreter

}  // namespace gradus
