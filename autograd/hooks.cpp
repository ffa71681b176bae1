#include "autograd/hooks.h"

#include <algorithm>
#include <atomic>

namespace gradus::autograd {

uint64_t next_hook_key() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1);
}

template <class F>
void Hooks::change(F edit) {
  // Dies after the lock is let go: hooks hold what their users gave them.
  std::shared_ptr<const Lists> before;
  std::lock_guard guard(mutex_);
  auto lists = std::make_shared<Lists>(*lists_);
  edit(*lists);
  before = std::exchange(lists_, std::move(lists));
}

uint64_t Hooks::add_tensor_pre(uint32_t input, TensorHook hook, bool thread_safe) {
  uint64_t key = next_hook_key();
  auto shared = share_hook(std::move(hook));
  change([&](Lists& l) {
    l.tensor_pre.push_back({input, key, std::move(shared)});
    l.thread_safe &= thread_safe;
  });
  return key;
}

template <class Hook>
uint64_t Hooks::add(std::vector<std::pair<uint64_t, std::shared_ptr<const Hook>>> Lists::*list,
                    Hook hook, bool thread_safe) {
  uint64_t key = next_hook_key();
  auto shared = share_hook(std::move(hook));
  change([&](Lists& l) {
    (l.*list).emplace_back(key, std::move(shared));
    l.thread_safe &= thread_safe;
  });
  return key;
}

uint64_t Hooks::add_pre(PreHook hook, bool thread_safe) {
  return add(&Lists::pre, std::move(hook), thread_safe);
}

uint64_t Hooks::add_post(PostHook hook, bool thread_safe) {
  return add(&Lists::post, std::move(hook), thread_safe);
}

bool Hooks::remove(uint64_t key) {
  size_t removed = 0;
  change([&](Lists& l) {
    removed = std::erase_if(l.tensor_pre, [&](const TensorPreHook& h) { return h.key == key; }) +
              std::erase_if(l.pre, [&](const auto& h) { return h.first == key; }) +
              std::erase_if(l.post, [&](const auto& h) { return h.first == key; });
  });
  return removed != 0;
}

void Hooks::set_retains_grad(uint32_t input, WeakVariable variable) {
  change([&](Lists& l) { l.retains_grad[input] = std::move(variable); });
}

WeakVariable Hooks::pop_retains_grad(uint32_t input) {
  WeakVariable found;
  change([&](Lists& l) {
    auto it = l.retains_grad.find(input);
    if (it == l.retains_grad.end()) return;
    found = std::move(it->second);
    l.retains_grad.erase(it);
  });
  return found;
}

void Hooks::clear() {
  change([](Lists& l) { l = Lists(); });
}

std::shared_ptr<const Hooks::Lists> Hooks::snapshot() const {
  std::lock_guard guard(mutex_);
  return lists_;
}

bool Hooks::thread_safe() const {
  std::lock_guard guard(mutex_);
  return lists_->thread_safe;
}

}  // namespace gradus::autograd
