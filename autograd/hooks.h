// Hooks of a node. For one node the engine runs, in this order:
//   1. tensor pre-hooks       of its inputs: may replace the gradient that arrives there
//   2. retains-grad hooks     one per input, after all other tensor pre-hooks
//   3. capture                the task takes gradients that were asked for, through capture hooks
//   4. pre-hooks              see and may replace all gradients
//   5. the node
//   6. post-hooks             see inputs and outputs, may replace the outputs
//   7. post-accumulate hooks  of a leaf whose accumulator the node is
// Tensor pre-hooks and retains-grad hooks also run where only a capture wants the gradient. An
// undefined result of a hook leaves things as they are. A hook added or removed while a node runs
// counts from the node's next run on.
#pragma once

#include <map>
#include <mutex>

#include "gradus/variable.h"

namespace gradus::autograd {

// Gradients in, gradients out (as many); an empty result leaves them.
using PreHook = std::function<Variables(const Variables& gradients)>;
// (gradients that the node gave, gradients that it was given) -> replacements, or empty.
using PostHook = std::function<Variables(const Variables& outputs, const Variables& inputs)>;

struct Hooks {
  struct TensorPreHook {
    uint32_t input;
    uint64_t key;
    std::shared_ptr<const TensorHook> hook;
  };
  // An immutable snapshot per change: who runs them keeps theirs. The hooks are shared, so that
  // making a list under the lock runs nothing of the user's.
  struct Lists {
    std::vector<TensorPreHook> tensor_pre;
    std::map<uint32_t, WeakVariable> retains_grad;  // by input
    std::vector<std::pair<uint64_t, std::shared_ptr<const PreHook>>> pre;
    std::vector<std::pair<uint64_t, std::shared_ptr<const PostHook>>> post;
    bool thread_safe = true;  // all of them were registered so
  };

  // Each returns a key. `thread_safe`: the hook may run on a worker. Throws Error for an empty one.
  uint64_t add_tensor_pre(uint32_t input, TensorHook hook, bool thread_safe = false);
  uint64_t add_pre(PreHook hook, bool thread_safe = false);
  uint64_t add_post(PostHook hook, bool thread_safe = false);
  bool remove(uint64_t key);
  // One per input; a second one replaces the first.
  void set_retains_grad(uint32_t input, WeakVariable variable);
  // Takes the retains-grad hook of an input away; an empty one if there is none.
  WeakVariable pop_retains_grad(uint32_t input);
  void clear();
  std::shared_ptr<const Lists> snapshot() const;
  bool thread_safe() const;

 private:
  template <class F>
  void change(F edit);
  template <class Hook>
  uint64_t add(std::vector<std::pair<uint64_t, std::shared_ptr<const Hook>>> Lists::*list,
               Hook hook, bool thread_safe);
  mutable std::mutex mutex_;
  std::shared_ptr<const Lists> lists_ = std::make_shared<const Lists>();
};

// Keys are unique in the process.
uint64_t next_hook_key();

template <class Hook>
std::shared_ptr<const Hook> share_hook(Hook hook) {
  if (!hook) throw Error("a hook has to be a function; this one is empty");
  return std::make_shared<const Hook>(std::move(hook));
}

}  // namespace gradus::autograd
