#include "gradus/variable.h"

#include <algorithm>

#include "autograd/accumulate_grad.h"
#include "autograd/hooks.h"
#include "autograd/living.h"
#include "autograd/made_once.h"
#include "gradus/engine.h"

namespace gradus::autograd {

namespace {
Ref<VariableBody> make_body(Tensor data, Edge edge) {
  if (!data.defined()) throw Error("a variable needs a defined tensor");
  auto body = make_ref<VariableBody>(std::move(data), std::move(edge));
  body->inference = grad_mode() == GradMode::inference;
  living_of_thread(Living::variables).add(1);
  return body;
}
}  // namespace

size_t living_variables() { return living_objects(Living::variables); }

VariableBody::~VariableBody() {
  living_of_thread(Living::variables).add(-1);
  VariableExtras* extras = lazy_extras.load(std::memory_order_acquire);
  if (!extras) return;
  std::unique_ptr<VariableExtras> owned(extras);
  if (extras->anchor) extras->anchor->clear();
}

VariableExtras& VariableBody::extras() { return made_once(lazy_extras); }

Variable::Variable(Tensor data, bool requires_grad) : body_(make_body(std::move(data), {})) {
  if (requires_grad) set_requires_grad(true);
}

Variable::Variable(Tensor data, Edge edge) : body_(make_body(std::move(data), std::move(edge))) {
  if (body_->edge.valid() && !is_floating(body_->data.dtype()))
    throw Error("a {} variable cannot be differentiated; only floating ones can",
                describe(body_->data));
}

bool Variable::requires_grad() const {
  return body_ && (body_->edge.valid() || body_->requires_grad.load(std::memory_order_acquire));
}

void Variable::set_requires_grad(bool on) {
  if (!is_leaf())
    throw Error(
        "requires_grad can be set on leaves only; this variable is the result of '{}': detach it",
        grad_fn()->name());
  if (on && !is_floating(dtype()))
    throw Error("{} cannot require gradients: only floating tensors can; cast it first",
                describe(data()));
  if (on && body_->inference)
    throw Error("a variable made in inference mode cannot require gradients; make it outside");
  body_->requires_grad.store(on, std::memory_order_release);
}

Edge Variable::gradient_edge() const {
  if (!body_) return {};
  if (body_->edge.valid()) return body_->edge;
  return requires_grad() ? AccumulateGrad::edge_of(*this) : Edge();
}

Variable Variable::detach() const { return defined() ? Variable(data()) : Variable(); }

Variable Variable::grad() const {
  VariableExtras* extras = body_->lazy_extras.load(std::memory_order_acquire);
  if (!extras) return {};
  std::lock_guard guard(extras->mutex);
  return of(extras->grad);
}

void Variable::set_grad(Variable grad) {
  if (grad.defined() && (!std::ranges::equal(grad.shape(), shape()) || grad.dtype() != dtype()))
    throw Error("the gradient of {} has to be of the same dtype and shape; this one is {}",
                describe(data()), describe(grad.data()));
  VariableExtras& extras = body_->extras();
  Ref<VariableBody> before = grad.body_;  // the old one dies after the lock is let go
  std::lock_guard guard(extras.mutex);
  std::swap(extras.grad, before);
}

void Variable::retain_grad() {
  if (!requires_grad()) throw Error("only a variable that requires gradients can retain one");
  if (is_leaf()) return;
  {
    VariableExtras& extras = body_->extras();
    std::lock_guard guard(extras.mutex);
    if (std::exchange(extras.retains_grad, true)) return;
  }
  grad_fn()->hooks().set_retains_grad(output_number(), WeakVariable(*this));
}

bool Variable::retains_grad() const {
  VariableExtras* extras = body_->lazy_extras.load(std::memory_order_acquire);
  if (!extras) return false;
  std::lock_guard guard(extras->mutex);
  return extras->retains_grad;
}

namespace {
// The hook's key in the list.
template <class Hook>
uint64_t put(VariableExtras& extras,
             std::vector<std::pair<uint64_t, std::shared_ptr<const Hook>>> VariableExtras::*list,
             Hook hook) {
  uint64_t key = next_hook_key();
  auto shared = share_hook(std::move(hook));
  std::lock_guard guard(extras.mutex);
  (extras.*list).emplace_back(key, std::move(shared));
  return key;
}

// Takes the hook of that key out; it dies with the result, outside the lock. Null: there is none.
template <class Hook>
Hook take(VariableExtras& extras, std::vector<std::pair<uint64_t, Hook>> VariableExtras::*list,
          uint64_t key) {
  std::lock_guard guard(extras.mutex);
  auto& hooks = extras.*list;
  auto it = std::ranges::find(hooks, key, [](const auto& h) { return h.first; });
  if (it == hooks.end()) return nullptr;
  Hook found = std::move(it->second);
  hooks.erase(it);
  return found;
}
}  // namespace

uint64_t Variable::register_hook(TensorHook hook) {
  if (!requires_grad())
    throw Error("a hook needs a variable that requires gradients: none would ever arrive");
  if (!is_leaf()) return grad_fn()->hooks().add_tensor_pre(output_number(), std::move(hook));
  return put(body_->extras(), &VariableExtras::hooks, std::move(hook));
}

bool Variable::remove_hook(uint64_t key) {
  if (!is_leaf()) return grad_fn()->hooks().remove(key);
  return take(body_->extras(), &VariableExtras::hooks, key) != nullptr;
}

uint64_t Variable::register_post_accumulate_hook(PostAccumulateHook hook) {
  if (!is_leaf() || !requires_grad())
    throw Error("post-accumulate hooks are for leaves that require gradients");
  return put(body_->extras(), &VariableExtras::post_accumulate, std::move(hook));
}

bool Variable::remove_post_accumulate_hook(uint64_t key) {
  return take(body_->extras(), &VariableExtras::post_accumulate, key) != nullptr;
}

void Variable::backward(const Variable& cotangent, bool keep_graph, bool create_graph) const {
  autograd::backward(std::span(this, 1), std::span(&cotangent, 1), keep_graph, create_graph);
}

WeakVariable::WeakVariable(const Variable& v) {
  if (!v.defined()) return;
  VariableExtras& extras = v.body()->extras();
  std::lock_guard guard(extras.mutex);
  if (!extras.anchor) extras.anchor = make_ref<Anchor<VariableBody>>(v.body().get());
  anchor_ = extras.anchor;
}

SmallVector<Edge, 2> collect_next_edges(std::span<const Variable> variables) {
  SmallVector<Edge, 2> edges;
  for (const Variable& v : variables) edges.push_back(v.gradient_edge());
  return edges;
}

Variable create_gradient_edge(Tensor data, const Ref<Node>& node) {
  if (!data.defined()) {
    node->add_undefined_input();
    return {};
  }
  uint32_t input = node->add_input(InputMetadata(data));
  return Variable(std::move(data), Edge{node, input});
}

bool any_variable_requires_grad(std::span<const Variable> variables) {
  return std::ranges::any_of(variables, [](const Variable& v) { return v.requires_grad(); });
}

}  // namespace gradus::autograd
