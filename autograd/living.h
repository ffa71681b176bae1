// How many nodes and variables there are, for tests of leaks.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "gradus/per_thread.h"

namespace gradus::autograd {

enum class Living : uint8_t { nodes, variables };

// A number that one thread changes and others may read.
class OwnCount {
 public:
  void add(int64_t n) {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

// Each thread counts for itself what it makes, less what it destroys: no two write one word.
struct LivingOfThread {
  LivingOfThread();
  ~LivingOfThread();
  LivingOfThread(const LivingOfThread&) = delete;
  std::array<OwnCount, 2> counts;
  LivingOfThread *next = nullptr, *before = nullptr;
};

inline OwnCount& living_of_thread(Living what) {
  return PerThread<LivingOfThread>::get().counts[static_cast<size_t>(what)];
}

// Of all threads together. Exact while no other thread makes or destroys any.
size_t living_objects(Living what);

}  // namespace gradus::autograd
