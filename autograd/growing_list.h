// A list that threads add to and search without a lock.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

namespace gradus::autograd {

// Of T with a member `const T* next`. Entries stay for as long as the list; where two threads add
// the same, both stay. Thread-safe.
template <class T>
class GrowingList {
 public:
  GrowingList() = default;
  GrowingList(const GrowingList&) = delete;
  ~GrowingList() {
    for (const T* e = first(); e;) delete std::exchange(e, e->next);
  }
  // The latest; null: none.
  const T* first() const { return first_.load(std::memory_order_acquire); }
  const T& add(std::unique_ptr<T> entry) {
    const T* first = this->first();
    do {
      entry->next = first;
    } while (!first_.compare_exchange_weak(first, entry.get(), std::memory_order_acq_rel));
    return *entry.release();
  }

 private:
  std::atomic<const T*> first_{nullptr};
};

}  // namespace gradus::autograd
