// Functions with a derivative of their own making.
#pragma once

#include <memory>

#include "gradus/engine.h"

namespace gradus::autograd {
class CustomNode;
}

#pragma GCC visibility push(default)

namespace gradus::autograd {

// What a custom function's forward and backward share: one per call.
class FunctionContext {
 public:
  // Keeps inputs or outputs of the call for the backward run. Only during forward, once.
  void save(std::initializer_list<Variable> variables);
  void save(std::span<const Variable> variables);
  // Them, as they were: with create_graph, derivatives go on through them. Throws Error if the
  // graph was freed or one was changed in place.
  Variables saved() const;
  // Whether the gradient of input i is wanted in this run.
  bool needs_gradient(size_t i) const;
  // Outputs that have no derivative, by number. During forward.
  void mark_not_differentiable(std::initializer_list<size_t> outputs);
  // Anything else the backward run needs; dies with the graph.
  std::shared_ptr<void> data;
  // Undefined cotangents reach backward as zeros; switch off to see them undefined.
  bool materialize = true;

 private:
  friend class CustomNode;
  friend class CustomFunction;
  Variables to_save_;
  std::vector<size_t> not_differentiable_;
  const CustomNode* node_ = nullptr;
};

// forward: plain values in, plain values out (nothing is recorded).
// backward: cotangents of the outputs in, one gradient per input out (undefined: zero). Written
// with operators on variables it can be differentiated again; `order` says how often the function
// can be differentiated; asking for more is an Error that names it.
// Objects are shared by all their calls: const, and thread-safe if they are used from several
// threads.
class CustomFunction {
 public:
  static constexpr int any_order = INT32_MAX;
  virtual ~CustomFunction() = default;
  virtual std::string name() const = 0;
  virtual int order() const { return any_order; }
  // Whether backward may run on a worker thread.
  virtual bool is_thread_safe() const { return false; }
  virtual std::vector<Tensor> forward(FunctionContext& context,
                                      std::span<const Variable> inputs) const = 0;
  virtual Variables backward(FunctionContext& context, const Variables& cotangents) const = 0;

  // Runs `function` and records it. An output that is an input is that input.
  static Variables apply(std::shared_ptr<const CustomFunction> function,
                         std::span<const Variable> inputs);
};

}  // namespace gradus::autograd

#pragma GCC visibility pop
