#include "autograd/ready_queue.h"

#include <algorithm>

#include "autograd/graph_task.h"

namespace gradus::autograd {

bool ReadyQueue::later(const ReadyNode& a, const ReadyNode& b) {
  if (a.depth != b.depth) return a.depth < b.depth;
  if (a.sequence_number != b.sequence_number) return a.sequence_number < b.sequence_number;
  return a.index > b.index;
}

void ReadyQueue::push(ReadyNode node) {
  {
    std::lock_guard guard(mutex_);
    heap_.push_back(std::move(node));
    std::push_heap(heap_.begin(), heap_.end(), later);
    size_.store(heap_.size(), std::memory_order_release);
  }
  changed_.notify_all();
}

bool ReadyQueue::pop(ReadyNode& out, int least_depth, const GraphTask* task) {
  std::unique_lock guard(mutex_);
  for (;;) {
    if (task ? task->done() : closed_) return false;
    // A task that is driven here ends also after a close: its nodes fail, since the engine stopped.
    if (!heap_.empty() && heap_.front().depth >= least_depth) break;
    changed_.wait(guard);
  }
  std::pop_heap(heap_.begin(), heap_.end(), later);
  out = std::move(heap_.back());
  heap_.pop_back();
  size_.store(heap_.size(), std::memory_order_release);
  return true;
}

bool ReadyQueue::pop_parallel(ReadyNode& out) {
  std::lock_guard guard(mutex_);
  if (closed_) return false;
  auto best = heap_.end();
  for (auto it = heap_.begin(); it != heap_.end(); ++it)
    if (it->parallel && (best == heap_.end() || later(*best, *it))) best = it;
  if (best == heap_.end()) return false;
  out = std::move(*best);
  *best = std::move(heap_.back());
  heap_.pop_back();
  std::make_heap(heap_.begin(), heap_.end(), later);
  size_.store(heap_.size(), std::memory_order_release);
  return true;
}

void ReadyQueue::wake() {
  { std::lock_guard guard(mutex_); }  // a waiter has looked and waits, or has not looked yet
  changed_.notify_all();
}

void ReadyQueue::close() {
  {
    std::lock_guard guard(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

size_t ReadyQueue::remove(const GraphTask* task) {
  std::vector<ReadyNode> gone;  // dies unlocked
  std::lock_guard guard(mutex_);
  auto keep = std::partition(heap_.begin(), heap_.end(),
                             [&](const ReadyNode& n) { return n.task != task; });
  std::move(keep, heap_.end(), std::back_inserter(gone));
  heap_.erase(keep, heap_.end());
  std::make_heap(heap_.begin(), heap_.end(), later);
  size_.store(heap_.size(), std::memory_order_release);
  return gone.size();
}

}  // namespace gradus::autograd
