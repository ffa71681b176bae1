// What a thread's autograd work depends on beside its arguments. The engine gives the threads that
// run a backward the state of the thread that asked for it.
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

// A variable that has another value for a while.

namespace gradus::autograd {

// Until the end of the scope; then it is what it was before.
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

enum class GradMode : uint8_t {
  enabled,    // operations on variables that require gradients are recorded
  no_grad,    // they are not
  inference,  // nor may their results be recorded later
};

// How NaNs are looked for: see Node::apply's callers in engine_run.cpp.
enum class AnomalyMode : uint8_t { off, nan, nan_and_infinity };

// Told of every node that runs, on the thread that runs it, between its pre-hooks and post-hooks;
// and of the engine's step around it. Thread-safe.
class Profiler {
 public:
  virtual ~Profiler() = default;
  // `forward_thread` numbers the thread that made the node.
  virtual void node_begins(const Node& node, std::string_view name, uint64_t sequence_number,
                           uint64_t forward_thread) = 0;
  virtual void node_ends(const Node& node) = 0;
  virtual void step_begins(const Node&) {}
  virtual void step_ends(const Node&) {}
};

// How often what is made can be differentiated, because some function cannot oftener.
struct OrderLimit final : RefCounted {
  OrderLimit(int n, std::string name) : left(n), function(std::move(name)) {}
  int left;
  std::string function;
};

struct ThreadState {
  GradMode mode = GradMode::enabled;
  AnomalyMode anomaly = AnomalyMode::off;
  Ref<const OrderLimit> order_limit;   // of nodes made now; null: none
  std::shared_ptr<Context> context;    // null: the default context
  std::shared_ptr<Profiler> profiler;  // may be null
  std::shared_ptr<const void> user;    // carried along for the embedder; not looked at
  Recorder* recorder = nullptr;        // told of all that runs; borrowed, may be null
  std::function<void(const std::string&)> warnings;  // null: to the context's log
  // In anomaly mode: where a node is made ("model.cpp:12"); null: not known.
  std::function<std::string()> place;
};

// This thread's; null until it is asked for. A variable that one file defines: of what a header
// defines, a module that hides its symbols would have its own.
extern constinit thread_local ThreadState* own_thread_state;
ThreadState& make_thread_state();
inline ThreadState& thread_state() {
  ThreadState* own = own_thread_state;
  return own ? *own : make_thread_state();
}
const std::shared_ptr<Context>& current_context();
inline GradMode grad_mode() { return thread_state().mode; }
inline bool recording() { return thread_state().mode == GradMode::enabled; }

// Sets the whole state (or a part) of this thread until the end of the scope.
class StateGuard : ValueGuard<ThreadState> {
 public:
  explicit StateGuard(ThreadState state) : ValueGuard(thread_state(), std::move(state)) {}
};
class GradModeGuard : ValueGuard<GradMode> {
 public:
  explicit GradModeGuard(GradMode mode) : ValueGuard(thread_state().mode, mode) {}
};

// Something the user should know and may go on after: to this thread's `warnings`, or to the log of
// its context. During a backward on another thread it is kept and replayed on the caller's.
void warn(const std::string& message);

// Numbers this thread: 1, 2, … in the order in which threads first ask.
uint64_t thread_number();

}  // namespace gradus::autograd

#pragma GCC visibility pop
