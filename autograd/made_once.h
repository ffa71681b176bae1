// What several threads may find missing at the same time.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

namespace gradus::autograd {

// Puts what was made in an empty place; if another thread was there first, takes its. The place
// owns it.
template <class T>
T& settle(std::atomic<T*>& place, std::unique_ptr<T> made) {
  T* expected = nullptr;
  if (place.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel))
    return *made.release();
  return *expected;
}

// What is there, or else a fresh one.
template <class T, class... Args>
T& made_once(std::atomic<T*>& place, Args&&... args) {
  if (T* known = place.load(std::memory_order_acquire)) return *known;
  return settle(place, std::make_unique<T>(std::forward<Args>(args)...));
}

}  // namespace gradus::autograd
