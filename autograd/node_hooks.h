// Running a node with its hooks, in the order that hooks.h gives.
#pragma once

#include "autograd/hooks.h"

namespace gradus::autograd {

// One run of a node: hooks as they were when it began. Throws what hooks throw, and Error where one
// gives gradients of another number, dtype, shape or device.
class NodeHooks {
 public:
  explicit NodeHooks(Node& node);

  // Tensor pre-hooks and retains-grad hooks.
  void run_tensor_pre_hooks(Variables& gradients) const;
  void run_pre_hooks(Variables& gradients) const;
  // The node between its pre-hooks and post-hooks; then lets it go if the graph is not kept. With
  // `create_graph` what it makes can be differentiated once less than itself.
  Variables run_node(Variables& gradients, bool keep_graph, bool create_graph) const;

 private:
  Node& node_;
  Variable leaf_;                              // of an accumulator
  std::shared_ptr<const Hooks::Lists> lists_;  // null: none
  std::vector<std::pair<uint64_t, std::shared_ptr<const TensorHook>>> leaf_hooks_;
  std::vector<std::pair<uint64_t, std::shared_ptr<const PostAccumulateHook>>> post_accumulate_;
};

}  // namespace gradus::autograd
