// The thread-local state of autograd. The threads of the engine that run a backward pass have the
// state of the thread that started it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "gradus/context.h"
#include "gradus/ref.h"

namespace gradus::autograd {
class Recorder;
}

#pragma GCC visibility push(default)

// Variables with another value in a scope.

namespace gradus::autograd {

// Sets a variable, and restores its value at the end of the scope.
template <class T>
class ValueGuard {
 public:
  ValueGuard(T& place, T value) : place_(place), saved_(std::exchange(place, std::move(value))) {}
  ~ValueGuard() { place_ = std::move(saved_); }
  ValueGuard(const ValueGuard&) = delete;

 private:
  T& place_;
  T saved_;
};

class Node;

// Whether operations on variables are recorded.
enum class GradMode : uint8_t {
  enabled,    // operations on variables that require gradients are recorded
  no_grad,    // operations are not recorded
  inference,  // as no_grad, and the results cannot be recorded later
};

// The values that anomaly mode reports. The engine checks the gradients of each node
// (docs/engine.md).
enum class AnomalyMode : uint8_t { off, nan, nan_and_infinity };

// Is notified of every node that runs, on the thread that runs the node, between its pre-hooks and
// post-hooks, and of the engine's step around it. Must be thread-safe.
class Profiler {
 public:
  virtual ~Profiler() = default;
  // `forward_thread` is the number of the thread that made the node.
  virtual void node_begins(const Node& node, std::string_view name, uint64_t sequence_number,
                           uint64_t forward_thread) = 0;
  virtual void node_ends(const Node& node) = 0;
  virtual void step_begins(const Node&) {}
  virtual void step_ends(const Node&) {}
};

// The number of times that new nodes can be differentiated, because a function has a limit.
struct OrderLimit final : RefCounted {
  OrderLimit(int n, std::string name) : left(n), function(std::move(name)) {}
  int left;
  std::string function;
};

// The state of one thread.
struct ThreadState {
  GradMode mode = GradMode::enabled;
  AnomalyMode anomaly = AnomalyMode::off;
  Ref<const OrderLimit> order_limit;   // of new nodes; null: no limit
  std::shared_ptr<Context> context;    // null: the default context
  std::shared_ptr<Profiler> profiler;  // may be null
  std::shared_ptr<const void> user;    // data of the caller, which Gradus passes on
  Recorder* recorder = nullptr;        // is notified of all operations; borrowed, may be null
  std::function<void(const std::string&)> warnings;  // null: the log of the context
  // In anomaly mode: returns the place where a node is made ("model.cpp:12"). Null: unknown.
  std::function<std::string()> place;
};

// This thread's state; null until its first use. One source file defines the variable. If a header
// defined it, a module with hidden symbols would have a separate one.
extern constinit thread_local ThreadState* own_thread_state;
ThreadState& make_thread_state();
inline ThreadState& thread_state() {
  ThreadState* own = own_thread_state;
  return own ? *own : make_thread_state();
}
const std::shared_ptr<Context>& current_context();
inline GradMode grad_mode() { return thread_state().mode; }
inline bool recording() { return thread_state().mode == GradMode::enabled; }

// Set the state of this thread, or a part of it, until the end of the scope.
class StateGuard : ValueGuard<ThreadState> {
 public:
  explicit StateGuard(ThreadState state) : ValueGuard(thread_state(), std::move(state)) {}
};
class GradModeGuard : ValueGuard<GradMode> {
 public:
  explicit GradModeGuard(GradMode mode) : ValueGuard(thread_state().mode, mode) {}
};

// Reports a warning to this thread's `warnings`, or to the log of its context. Warnings of a
// backward pass on another thread are stored and reported on the calling thread.
void warn(const std::string& message);

// The number of this thread: 1, 2, … in the order in which threads first call it.
uint64_t thread_number();

}  // namespace gradus::autograd

#pragma GCC visibility pop
