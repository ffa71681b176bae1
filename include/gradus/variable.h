// Variables: tensors with their places in the autograd graph.
#pragma once

#include <functional>
#include <mutex>

#include "gradus/node.h"
#include "gradus/ref.h"
#include "gradus/thread_state.h"

#pragma GCC visibility push(default)

namespace gradus::autograd {

class Variable;
struct VariableBody;
// Called with a gradient. A defined result replaces the gradient.
using TensorHook = std::function<Variable(const Variable& gradient)>;
// Called after a gradient was accumulated into a leaf.
using PostAccumulateHook = std::function<void(const Variable& leaf)>;

// The data that only leaves and variables with hooks have.
struct VariableExtras {
  mutable std::mutex mutex;
  Ref<VariableBody> grad;
  Node* accumulator = nullptr;  // weak: its destructor locks the mutex and sets null
  Ref<Anchor<VariableBody>> anchor;
  // Hooks of a leaf. Those of other variables are in their node.
  std::vector<std::pair<uint64_t, std::shared_ptr<const TensorHook>>> hooks;
  std::vector<std::pair<uint64_t, std::shared_ptr<const PostAccumulateHook>>> post_accumulate;
  bool retains_grad = false;
};

// The data that the handles of one variable share.
struct VariableBody final : RefCounted, pool::Object {
  VariableBody(Tensor t, Edge e) : data(std::move(t)), edge(std::move(e)) {}
  ~VariableBody() override;
  VariableExtras& extras();

  const Tensor data;
  const Edge edge;  // of a result: the node that takes its cotangent; empty for a leaf
  std::atomic<bool> requires_grad{false};             // of a leaf
  bool inference = false;                             // made in inference mode
  std::atomic<VariableExtras*> lazy_extras{nullptr};  // owned
};

// A handle: a copy refers to the same variable. A default-constructed variable is undefined.
// Handles may be copied on any thread; one handle must not be used on two threads at the same time.
class Variable {
 public:
  Variable() = default;
  // A leaf. Throws Error for an undefined tensor, and for requires_grad of a tensor that is not
  // floating or in inference mode.
  explicit Variable(Tensor data, bool requires_grad = false);
  // The result of a function. `edge` is the node and input that take its cotangent; an empty edge
  // makes a constant. Throws Error for an edge of a tensor that is not floating.
  Variable(Tensor data, Edge edge);

  bool defined() const { return static_cast<bool>(body_); }
  explicit operator bool() const { return defined(); }
  const Tensor& data() const { return body_->data; }
  DType dtype() const { return data().dtype(); }
  std::span<const int64_t> shape() const { return data().shape(); }

  // Whether it is a leaf with requires_grad, or a result with an edge.
  bool requires_grad() const;
  // Throws Error for a variable that is not a leaf, and like the constructor.
  void set_requires_grad(bool on);
  bool is_leaf() const { return !body_->edge.valid(); }
  // The node that takes its cotangent. Null for a leaf.
  const Ref<Node>& grad_fn() const { return body_->edge.node; }
  uint32_t output_number() const { return body_->edge.input; }
  // The edge to which its gradient flows: the input of grad_fn, or the accumulator of a leaf that
  // requires a gradient (one for each living leaf). Otherwise empty.
  Edge gradient_edge() const;
  // Returns a leaf with the same tensor, which requires no gradient.
  Variable detach() const;
  bool is_inference() const { return body_->inference; }

  // The gradient that was accumulated into a leaf or kept by `retain_grad`. May be undefined.
  Variable grad() const;
  // Replaces the gradient. Throws Error if its dtype or shape differs from the variable's.
  void set_grad(Variable grad);
  // Keeps the gradient of a result in `grad` when a backward pass computes it. Does nothing for a
  // leaf. Throws Error for a variable that requires no gradient.
  void retain_grad();
  bool retains_grad() const;

  // Registers a hook that is called with each gradient of the variable, before other hooks and
  // nodes see it. A defined result replaces the gradient and must have its shape, dtype and device.
  // Returns a key for `remove_hook`. Throws Error for a variable that requires no gradient. A hook
  // that holds its own variable keeps the variable alive until the hook is removed or, for a
  // result, the graph is released; hold a WeakVariable instead.
  uint64_t register_hook(TensorHook hook);
  bool remove_hook(uint64_t key);
  // Registers a hook of a leaf that requires a gradient. Throws Error for other variables.
  uint64_t register_post_accumulate_hook(PostAccumulateHook hook);
  bool remove_post_accumulate_hook(uint64_t key);

  // Accumulates d(sum of this variable times cotangent)/d(leaf) into every leaf on which the
  // variable depends. An undefined `cotangent` of a 0-d variable is 1. Throws like
  // autograd::backward.
  void backward(const Variable& cotangent = {}, bool keep_graph = false,
                bool create_graph = false) const;

  const Ref<VariableBody>& body() const { return body_; }
  static Variable of(Ref<VariableBody> body) {
    Variable v;
    v.body_ = std::move(body);
    return v;
  }
  bool same_as(const Variable& o) const { return body_ == o.body_; }

 private:
  Ref<VariableBody> body_;
};

// A reference that does not keep the variable alive. `lock` returns an undefined variable if the
// variable was destroyed.
class WeakVariable {
 public:
  WeakVariable() = default;
  explicit WeakVariable(const Variable& v);
  Variable lock() const { return anchor_ ? Variable::of(anchor_->lock()) : Variable(); }

 private:
  Ref<Anchor<VariableBody>> anchor_;
};

// Returns the gradient edges of the variables, one for each.
SmallVector<Edge, 2> collect_next_edges(std::span<const Variable> variables);
// Makes a result of `node`, and adds an input for it to the node. For an undefined tensor, marks
// the input as undefined and returns an undefined variable.
Variable create_gradient_edge(Tensor data, const Ref<Node>& node);
bool any_variable_requires_grad(std::span<const Variable> variables);
// The number of variables that exist in the process. For tests of leaks.
size_t living_variables();

}  // namespace gradus::autograd

#pragma GCC visibility pop
