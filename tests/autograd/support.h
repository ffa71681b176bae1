// Small functions and nodes for tests of variables and the engine.
#pragma once

#include <gtest/gtest.h>

#include "autograd/hooks.h"
#include "gradus/apply.h"
#include "gradus/custom_function.h"

namespace gradus::autograd::testing {

inline Variable leaf(std::initializer_list<double> values, bool requires_grad = true,
                     DType dtype = DType::f64) {
  int64_t n = static_cast<int64_t>(values.size());
  return Variable(Tensor::from(dtype, std::array{n}, std::vector<double>(values)), requires_grad);
}
inline Variable scalar(double value, bool requires_grad = true) {
  return Variable(Tensor::scalar(DType::f64, value), requires_grad);
}
inline std::vector<double> values(const Variable& v) { return v.data().to_doubles(); }
inline Variable op(std::string_view name, std::initializer_list<VariableOperand> operands,
                   const ir::LiteralList& attributes = {}) {
  return apply(name, operands, attributes)[0];
}

// A node that does what a lambda says.
class LambdaNode final : public Node {
 public:
  using Body = std::function<Variables(Variables&&)>;
  LambdaNode(std::string name, SmallVector<Edge, 2> edges, Body body, bool thread_safe = false)
      : Node(std::move(edges)),
        name_(std::move(name)),
        body_(std::move(body)),
        thread_safe_(thread_safe) {}
  std::string name() const override { return name_; }
  bool is_thread_safe() const override { return thread_safe_; }

 private:
  Variables apply(Variables&& cotangents) override { return body_(std::move(cotangents)); }
  std::string name_;
  Body body_;
  bool thread_safe_;
};

// y = x, whose gradient is what `body` makes of the cotangents.
inline Variable through(std::string name, const Variable& x, LambdaNode::Body body,
                        bool thread_safe = false) {
  auto node = make_ref<LambdaNode>(std::move(name), SmallVector<Edge, 2>{x.gradient_edge()},
                                   std::move(body), thread_safe);
  return create_gradient_edge(x.data(), node);
}
inline Variables hand_on(Variables&& cotangents) { return std::move(cotangents); }

// y = f(x...), whose gradients are what `body` makes of the cotangent. All have x's type.
inline Variable joined(std::string name, const std::vector<Variable>& x, LambdaNode::Body body,
                       bool thread_safe = false) {
  auto node =
      make_ref<LambdaNode>(std::move(name), collect_next_edges(x), std::move(body), thread_safe);
  return create_gradient_edge(x[0].data(), node);
}
// The cotangent for each of n inputs.
inline LambdaNode::Body copies(size_t n) {
  return [n](Variables&& cotangents) { return Variables(n, cotangents[0]); };
}

// A context of the test's own with an engine of these options, current on this thread.
class OwnEngine {
 public:
  explicit OwnEngine(EngineOptions options = {})
      : context_(std::make_shared<Context>(ContextOptions{.workers = 1})),
        engine_(std::make_shared<Engine>(context_, options)),
        guard_([this] {
          ThreadState state = thread_state();
          state.context = context_;
          return state;
        }()) {
    replace_engine(context_, engine_);
  }
  Engine& operator*() const { return *engine_; }
  Engine* operator->() const { return engine_.get(); }
  const std::shared_ptr<Context>& context() const { return context_; }

 private:
  std::shared_ptr<Context> context_;
  std::shared_ptr<Engine> engine_;
  StateGuard guard_;
};

// Runs an engine from `y` with a cotangent of ones (or `cotangent`).
inline Variable ones_like(const Variable& v) {
  return Variable(Tensor::from(v.dtype(), v.shape(),
                               std::vector<double>(static_cast<size_t>(v.data().numel()), 1)));
}
inline Variables execute(Engine& engine, const Variable& y, const ExecuteOptions& options,
                         const std::vector<Capture>& outputs = {}, Variable cotangent = {}) {
  if (!cotangent.defined()) cotangent = ones_like(y);
  return engine.execute(std::array{y.gradient_edge()}, std::array{cotangent}, options, outputs);
}
inline constexpr ExecuteOptions accumulate{.accumulate_grad = true};

// The message of the Error that `f` throws; fails the test if it throws none.
template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return {};
}

}  // namespace gradus::autograd::testing
