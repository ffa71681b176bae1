#include "autograd/node_hooks.h"

#include <algorithm>

namespace gradus::autograd {

namespace {

// `metadata` says what may take the place of an undefined gradient; null: the engine looks later.
void replace(const Node& node, const char* kind, Variable& gradient, Variable replacement,
             const InputMetadata* metadata) {
  if (!replacement.defined()) return;
  if (!gradient.defined() && metadata && metadata->kind != InputMetadata::Kind::cleared &&
      (metadata->kind == InputMetadata::Kind::undefined ||
       !std::ranges::equal(metadata->shape, replacement.shape()) ||
       metadata->dtype != replacement.dtype() ||
       !(metadata->device == replacement.data().device())))
    throw Error("a {} of '{}' made {} out of an undefined gradient, which belongs to another type",
                kind, node.name(), describe(replacement.data()));
  if (gradient.defined() && (!std::ranges::equal(gradient.shape(), replacement.shape()) ||
                             gradient.dtype() != replacement.dtype() ||
                             !(gradient.data().device() == replacement.data().device())))
    throw Error("a {} of '{}' made {} out of {}; it has to keep dtype, shape and device", kind,
                node.name(), describe(replacement.data()), describe(gradient.data()));
  gradient = std::move(replacement);
}

void replace_all(const Node& node, const char* kind, Variables& gradients,
                 const Variables& replacements, bool of_inputs) {
  if (replacements.empty()) return;
  if (replacements.size() != gradients.size())
    throw Error("a {} of '{}' returned {} gradients; it has to return {} (or none, to leave them)",
                kind, node.name(), replacements.size(), gradients.size());
  for (size_t i = 0; i < gradients.size(); ++i)
    replace(node, kind, gradients[i], replacements[i],
            of_inputs ? &node.input_metadata(i) : nullptr);
}

void check_input(const Node& node, uint32_t input, const Variables& gradients) {
  if (input >= gradients.size())
    throw Error("a hook is for input {} of '{}', which has {} inputs in this run", input,
                node.name(), gradients.size());
}

// How often what a node records can be differentiated.
Ref<const OrderLimit> limit_within(const Node& node, bool create_graph) {
  const OrderLimit* limit = node.order_limit();
  if (limit && limit->left <= 0)
    throw Error("'{}' cannot be differentiated that often: a further derivative is asked for",
                limit->function);
  if (!limit || !create_graph) return thread_state().order_limit;
  return make_ref<const OrderLimit>(limit->left - 1, limit->function);
}

}  // namespace

NodeHooks::NodeHooks(Node& node) : node_(node) {
  if (const Hooks* hooks = node.hooks_if_any()) lists_ = hooks->snapshot();
  if (node.outputs() != 0) return;
  leaf_ = node.accumulates_into();
  if (!leaf_.defined()) return;
  VariableExtras& extras = leaf_.body()->extras();
  std::lock_guard guard(extras.mutex);
  leaf_hooks_ = extras.hooks;
  post_accumulate_ = extras.post_accumulate;
}

void NodeHooks::run_tensor_pre_hooks(Variables& gradients) const {
  for (const auto& [key, hook] : leaf_hooks_)
    if (gradients[0].defined())
      replace(node_, "hook", gradients[0], (*hook)(gradients[0]), nullptr);
  if (!lists_) return;
  for (const Hooks::TensorPreHook& h : lists_->tensor_pre) check_input(node_, h.input, gradients);
  for (const Hooks::TensorPreHook& h : lists_->tensor_pre)
    if (gradients[h.input].defined())
      replace(node_, "tensor pre-hook", gradients[h.input], (*h.hook)(gradients[h.input]), nullptr);
  for (const auto& [input, weak] : lists_->retains_grad)
    if (Variable v = weak.lock();
        v.defined() && input < gradients.size() && gradients[input].defined())
      v.set_grad(gradients[input]);
}

void NodeHooks::run_pre_hooks(Variables& gradients) const {
  if (!lists_) return;
  for (const auto& [key, hook] : lists_->pre)
    replace_all(node_, "pre-hook", gradients, (*hook)(gradients), true);
}

Variables NodeHooks::run_node(Variables& gradients, bool keep_graph, bool create_graph) const {
  const ValueGuard order(thread_state().order_limit, limit_within(node_, create_graph));
  if (!keep_graph) node_.will_release_variables();
  bool posts = lists_ && !lists_->post.empty();
  Variables given;
  if (posts) given = gradients;
  Variables outputs = node_(std::move(gradients));
  if (posts)
    for (const auto& [key, hook] : lists_->post)
      replace_all(node_, "post-hook", outputs, (*hook)(outputs, given), false);
  for (const auto& [key, hook] : post_accumulate_) (*hook)(leaf_);
  if (!keep_graph) node_.end_of_run();
  return outputs;
}

}  // namespace gradus::autograd
