// Nodes whose cotangents are all there, in the order in which they run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "gradus/ref.h"

namespace gradus::autograd {

class GraphTask;

struct ReadyNode {
  GraphTask* task = nullptr;
  Ref<const RefCounted> keep;  // of the task, in a device's queue: entries may outlast it
  uint32_t index = 0;          // in the task; the order of discovery
  int depth = 0;               // of the task: nested deeper runs first
  uint64_t sequence_number = 0;
  bool parallel = false;  // a worker may run it, and it is worth one
};

// One per task for work on the CPU, one per device. Deeper tasks first, then higher sequence
// numbers, then what was discovered first; what belongs to a failed task is taken out at once.
// Thread-safe.
class ReadyQueue {
 public:
  void push(ReadyNode node);
  // Waits for a node of at least this depth; false when `task` is done, or, without one, when the
  // queue is closed.
  bool pop(ReadyNode& out, int least_depth, const GraphTask* task);
  // Takes the first node that a worker may run, if there is one beside the first of all.
  bool pop_parallel(ReadyNode& out);
  // Wakes all waiters, who look again.
  void wake();
  void close();                          // shutdown: who waits without a task is sent away
  size_t remove(const GraphTask* task);  // how many there were
  // Without a lock: a hint, exact for the only thread that uses the queue.
  size_t size() const { return size_.load(std::memory_order_acquire); }

 private:
  static bool later(const ReadyNode& a, const ReadyNode& b);
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ReadyNode> heap_;
  std::atomic<size_t> size_{0};
  bool closed_ = false;
};

}  // namespace gradus::autograd
