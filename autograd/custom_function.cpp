#include "gradus/custom_function.h"

#include <algorithm>

#include "autograd/recorder.h"
#include "autograd/saved_variable.h"
#include "gradus/apply.h"
#include "gradus/device_streams.h"

namespace gradus::autograd {

class CustomNode final : public Node {
 public:
  CustomNode(std::shared_ptr<const CustomFunction> function, SmallVector<Edge, 2> edges)
      : Node(std::move(edges)), function_(std::move(function)) {
    context_.node_ = this;
  }

  std::string name() const override { return function_->name(); }
  bool is_thread_safe() const override { return function_->is_thread_safe(); }

  void release_variables() override {
    std::shared_ptr<void> data;
    std::vector<SavedVariable> gone;  // both die after the lock is let go
    Lock lock(*this);
    for (SavedVariable& s : saved_) gone.push_back(s.release());
    data = std::move(context_.data);
  }

  Variables saved() const {
    Variables values;
    std::string own_name = name();  // user code: not under the lock
    Ref<Node> self(const_cast<CustomNode*>(this));
    Lock lock(*this);
    for (size_t i = 0; i < saved_.size(); ++i)
      values.push_back(saved_[i].unpack(
          self, [&] { return fmt::format("saved variable {} of '{}'", i, own_name); }));
    return values;
  }

  FunctionContext context_;
  std::shared_ptr<const CustomFunction> function_;
  std::vector<SavedVariable> saved_;
  // Of the outputs, for zeros in the place of undefined cotangents.
  std::vector<InputMetadata> outputs_of_forward_;

 private:
  Variables apply(Variables&& cotangents) override {
    bool any = std::ranges::any_of(cotangents, &Variable::defined);
    if (!any) return Variables(outputs());
    if (context_.materialize)
      for (size_t i = 0; i < cotangents.size(); ++i) {
        const InputMetadata& m = outputs_of_forward_[i];
        if (!cotangents[i].defined() && m.kind == InputMetadata::Kind::known)
          cotangents[i] = move_to(Variable(Tensor::zeros(m.dtype, m.shape)), m.device);
      }
    return function_->backward(context_, cotangents);
  }
};

void FunctionContext::save(std::initializer_list<Variable> variables) {
  save(std::span(variables.begin(), variables.size()));
}
void FunctionContext::save(std::span<const Variable> variables) {
  if (node_) throw Error("a custom function saves variables in its forward run only");
  if (!to_save_.empty()) throw Error("a custom function saves its variables once, all together");
  to_save_ = Variables(variables.begin(), variables.end());
}
Variables FunctionContext::saved() const {
  if (!node_) throw Error("saved variables are there in the backward run only");
  return node_->saved();
}
bool FunctionContext::needs_gradient(size_t i) const {
  return !node_ || node_->task_should_compute_output(i);
}
void FunctionContext::mark_not_differentiable(std::initializer_list<size_t> outputs) {
  if (node_) throw Error("a custom function marks its outputs in its forward run only");
  not_differentiable_ = outputs;
}

namespace {

// The input whose tensor this is; absent if none.
std::optional<size_t> input_of(const Tensor& t, std::span<const Variable> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].defined() && inputs[i].data().same_as(t)) return i;
  return std::nullopt;
}

}  // namespace

Variables CustomFunction::apply(std::shared_ptr<const CustomFunction> function,
                                std::span<const Variable> inputs) {
  if (Recorder* recorder = thread_state().recorder)
    recorder->meets(fmt::format("custom function '{}'", function->name()));
  bool record = recording() && any_variable_requires_grad(inputs);
  FunctionContext context;
  std::vector<Tensor> results;
  {
    GradModeGuard mode(grad_mode() == GradMode::inference ? GradMode::inference
                                                          : GradMode::no_grad);
    results = function->forward(context, inputs);
  }
  for (size_t i = 0; i < results.size(); ++i)
    if (!results[i].defined())
      throw Error("custom function '{}' returned an undefined output {}", function->name(), i);
  Variables outputs;
  if (!record) {
    for (Tensor& t : results) outputs.emplace_back(std::move(t));
    return outputs;
  }
  auto node = make_ref<CustomNode>(function, collect_next_edges(inputs));
  if (function->order() != any_order) {
    const Ref<const OrderLimit>& around = thread_state().order_limit;
    if (!around || around->left > function->order())
      node->set_order_limit(make_ref<const OrderLimit>(function->order(), function->name()));
  }
  Variables to_save = std::exchange(context.to_save_, {});
  auto not_differentiable = [&](size_t i) {
    return !is_floating(results[i].dtype()) ||
           std::ranges::count(context.not_differentiable_, i) != 0;
  };
  std::vector<Tensor> kept = results;
  for (size_t i = 0; i < results.size(); ++i) {
    node->outputs_of_forward_.emplace_back(results[i]);
    if (not_differentiable(i)) {
      node->add_undefined_input();
      outputs.emplace_back(results[i]);
    } else if (auto input = input_of(results[i], inputs)) {
      node->add_undefined_input();
      outputs.push_back(inputs[*input]);
    } else {
      outputs.push_back(create_gradient_edge(results[i], node));
    }
  }
  for (const Variable& v : to_save) {
    auto out = std::ranges::find_if(
        kept, [&](const Tensor& t) { return v.defined() && t.same_as(v.data()); });
    bool is_output = out != kept.end() && !input_of(*out, inputs);
    node->saved_.push_back(
        is_output && !not_differentiable(static_cast<size_t>(out - kept.begin()))
            ? SavedVariable::output(*out, static_cast<uint32_t>(out - kept.begin()))
            : SavedVariable::input(v));
  }
  context.node_ = node.get();
  node->context_ = std::move(context);
  return outputs;
}

}  // namespace gradus::autograd
