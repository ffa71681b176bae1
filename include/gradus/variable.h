// Variables: tensors that take part in differentiation.
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
using TensorHook = std::function<Variable(const Variable& gradient)>;
// Runs after a leaf's gradient was accumulated.
using PostAccumulateHook = std::function<void(const Variable& leaf)>;

// What only leaves and variables with hooks need.
struct VariableExtras {
  mutable std::mutex mutex;
  Ref<VariableBody> grad;
  Node* accumulator = nullptr;  // weak: its destructor takes the mutex and clears this
  Ref<Anchor<VariableBody>> anchor;
  // Of a leaf; others' lie in their node.
  std::vector<std::pair<uint64_t, std::shared_ptr<const TensorHook>>> hooks;
  std::vector<std::pair<uint64_t, std::shared_ptr<const PostAccumulateHook>>> post_accumulate;
  bool retains_grad = false;
};

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

// A value handle, as Tensor is: copying shares. Undefined where default-made. Handles may be copied
// from any thread; one handle is not for two threads at once.
class Variable {
 public:
  Variable() = default;
  // A leaf. Throws Error for requires_grad of a tensor that is not floating.
  explicit Variable(Tensor data, bool requires_grad = false);
  // The result of a function: `edge` is where its cotangent goes; empty: a constant.
  Variable(Tensor data, Edge edge);

  bool defined() const { return static_cast<bool>(body_); }
  explicit operator bool() const { return defined(); }
  const Tensor& data() const { return body_->data; }
  DType dtype() const { return data().dtype(); }
  std::span<const int64_t> shape() const { return data().shape(); }

  bool requires_grad() const;
  // Only of a leaf; see the constructor.
  void set_requires_grad(bool on);
  bool is_leaf() const { return !body_->edge.valid(); }
  // The node that takes its cotangent; null for a leaf.
  const Ref<Node>& grad_fn() const { return body_->edge.node; }
  uint32_t output_number() const { return body_->edge.input; }
  // Where its gradient goes: grad_fn's input; for a leaf that requires one its accumulator (one per
  // living leaf); empty otherwise.
  Edge gradient_edge() const;
  // The same values, not differentiated. Shares storage.
  Variable detach() const;
  bool is_inference() const { return body_->inference; }

  // The gradient that was accumulated into a leaf, or kept by `retain_grad`; may be undefined.
  Variable grad() const;
  void set_grad(Variable grad);
  // Has the gradient of a result kept where it passes. Nothing for a leaf.
  void retain_grad();
  bool retains_grad() const;

  // Called with each gradient that arrives, before anything else sees it; a defined result replaces
  // it (same shape, dtype, device). Returns a key for `remove_hook`. A hook that holds its own
  // variable keeps it until it is removed or, for a result, its graph is released: hold a
  // WeakVariable instead.
  uint64_t register_hook(TensorHook hook);
  bool remove_hook(uint64_t key);
  // Only of a leaf that requires gradients.
  uint64_t register_post_accumulate_hook(PostAccumulateHook hook);
  bool remove_post_accumulate_hook(uint64_t key);

  // Accumulates d(sum of this times cotangent)/d(leaf) into every leaf that it depends on.
  // `cotangent` may be undefined for a 0-d variable: one.
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

// Does not keep the variable alive.
class WeakVariable {
 public:
  WeakVariable() = default;
  explicit WeakVariable(const Variable& v);
  Variable lock() const { return anchor_ ? Variable::of(anchor_->lock()) : Variable(); }

 private:
  Ref<Anchor<VariableBody>> anchor_;
};

// Edges that a function of these variables has: one per variable.
SmallVector<Edge, 2> collect_next_edges(std::span<const Variable> variables);
// A result of `node`: adds an input to the node for it. Undefined for an undefined tensor, whose
// input is marked so.
Variable create_gradient_edge(Tensor data, const Ref<Node>& node);
bool any_variable_requires_grad(std::span<const Variable> variables);
// Number of variables alive in the process, for tests of leaks.
size_t living_variables();

}  // namespace gradus::autograd

#pragma GCC visibility pop
