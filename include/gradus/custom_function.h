// Functions with a backward that the user defines.
#pragma once

#include <memory>

#include "gradus/engine.h"

namespace gradus::autograd {
class CustomNode;
}

#pragma GCC visibility push(default)

namespace gradus::autograd {

// The data that forward and backward of one call share.
class FunctionContext {
 public:
  // Keeps inputs or outputs of the call for the backward run. May be called once, in forward.
  // Throws Error otherwise.
  void save(std::initializer_list<Variable> variables);
  void save(std::span<const Variable> variables);
  // Returns the saved variables. With create_graph, derivatives pass through them. May be called in
  // backward only. Throws Error if the graph was released, or if a variable was changed in place.
  Variables saved() const;
  // Whether the current task needs the gradient of input i. True in forward.
  bool needs_gradient(size_t i) const;
  // Marks outputs, by index, as not differentiable. May be called in forward only; throws Error
  // otherwise.
  void mark_not_differentiable(std::initializer_list<size_t> outputs);
  // Other data for the backward run. It is released with the graph.
  std::shared_ptr<void> data;
  // Whether backward receives zeros for undefined cotangents. If false, they stay undefined.
  bool materialize = true;

 private:
  friend class CustomNode;
  friend class CustomFunction;
  Variables to_save_;
  std::vector<size_t> not_differentiable_;
  const CustomNode* node_ = nullptr;
};

// A function with a custom derivative. Its calls share the object, so it is const, and must be
// thread-safe if several threads use it.
//
// `forward` receives the inputs and returns tensors. Operators on variables are not recorded in it.
// No output may be undefined. `backward` receives the cotangents of the outputs and returns one
// gradient per input; an undefined gradient is zero. It is not called if no cotangent is defined.
// If backward consists of operators on variables, it can be differentiated.
class CustomFunction {
 public:
  static constexpr int any_order = INT32_MAX;
  virtual ~CustomFunction() = default;
  virtual std::string name() const = 0;
  // How often the function can be differentiated. A derivative of a higher order throws an Error
  // that names the function.
  virtual int order() const { return any_order; }
  // Whether backward may run on a worker thread.
  virtual bool is_thread_safe() const { return false; }
  virtual std::vector<Tensor> forward(FunctionContext& context,
                                      std::span<const Variable> inputs) const = 0;
  virtual Variables backward(FunctionContext& context, const Variables& cotangents) const = 0;

  // Runs `function` and records the call. An output that is the tensor of an input is that input
  // variable. Throws Error if forward returns an undefined output.
  static Variables apply(std::shared_ptr<const CustomFunction> function,
                         std::span<const Variable> inputs);
};

}  // namespace gradus::autograd

#pragma GCC visibility pop
