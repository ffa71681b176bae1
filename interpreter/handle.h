// Handles, and running what is opaque: the door from a state to the autograd engine.
#pragma once

#include "gradus/opaque_function.h"

namespace gradus::interpreter {

// What an opaque instruction leaves for `eval`: where the cotangents of its floating results enter
// the autograd graph, and the sinks at which the gradients of its differentiable inputs arrive: a
// node each, since the engine leaves out what leads to no node that is asked for. Never changes;
// evaluating one leaves the graph whole, so that clones and threads may share it.
class Handle final : public RefCounted {
 public:
  // How to make it anew, where the function is replayable.
  struct Recipe {
    Ref<const Handle> evaluated;   // by an eval; null: the function was called
    SmallVector<bool, 4> marks;    // by operand of the function: is it differentiable; of an eval,
                                   // by result: is it wanted
    std::vector<Tensor> operands;  // of an eval the cotangents, undefined where absent
    std::vector<uint64_t> versions;  // of their memory then
  };
  Handle(std::vector<autograd::Edge> roots, std::vector<autograd::Edge> sinks,
         Ref<const Handle> parent, std::string function, std::unique_ptr<const Recipe> recipe);

  // One per floating result; empty where no gradient flows.
  std::span<const autograd::Edge> roots() const { return roots_; }
  // One per differentiable input: the instruction's own, then those that its own handle stood for.
  std::vector<autograd::Edge> inputs() const;
  // Whose derivatives they are.
  const std::string& function() const { return function_; }
  // Null if the function is not replayable.
  const Recipe* recipe() const { return recipe_.get(); }

 private:
  std::vector<autograd::Edge> roots_;
  std::vector<autograd::Edge> sinks_;  // of the instruction's own differentiable inputs
  std::string function_;
  std::unique_ptr<const Recipe> recipe_;
  Ref<const Handle> parent_;  // that an eval evaluated; its sinks live as long as this does
};

struct OpaqueResults {
  SmallVector<Tensor, 2> tensors;
  Ref<const Handle> handle;  // null unless asked for
};

// y…, handle = f(x…). Recorded only if the handle is asked for. All operands are defined.
OpaqueResults call_function(const autograd::CppFunction& function, std::span<const Tensor> operands,
                            std::span<const bool> requires_grad, bool leaves_handle,
                            const std::shared_ptr<Context>& context);

// dx…, handle = eval(ct…, handle). One cotangent per root; undefined ones stay so, and if all are,
// the engine does not run. `wanted`, by result: the others stay undefined, as do those without a
// path. A handle yields gradients of the defined cotangents too.
OpaqueResults evaluate_handle(const Ref<const Handle>& handle, std::span<const Tensor> cotangents,
                              std::span<const bool> wanted, bool leaves_handle,
                              const std::shared_ptr<Context>& context);

}  // namespace gradus::interpreter
