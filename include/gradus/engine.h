// The engine: runs the backward graph from roots to leaves, or to the places where gradients are
// asked for.
#pragma once

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradus/internal.h"
#include "gradus/variable.h"

namespace gradus::autograd {
class EngineAccess;
}

#pragma GCC visibility push(default)

// What a backward would do, before it runs.

namespace gradus::autograd {

// A node that takes part, in the order in which one thread runs them.
struct BackwardStep {
  static constexpr uint32_t root = UINT32_MAX;
  struct Contribution {
    uint32_t step;    // whose gradient it is; `root`: a cotangent that was given
    uint32_t output;  // of that step's node; the root's number
  };
  const Node* node = nullptr;  // lives as long as the roots' nodes do
  bool runs = false;           // otherwise only what arrives is asked for
  // By output of the node: whether its gradient is used.
  SmallVector<bool, 4> wanted;
  // By input of the node: what is added up there, in this order.
  SmallVector<std::vector<Contribution>, 1> inputs;
};

struct EngineOptions {
  // Nested backward calls on one thread's stack before the next moves to a pool thread.
  int depth_limit = 60;
  // Off: everything runs on the caller, in the order of `execution_order`, and nested calls stay on
  // its stack however deep they are.
  bool multithreading = true;
  // Threads for independent branches, the caller included; 0: as many as the context's workers.
  int workers = 0;
};

struct ExecuteOptions {
  bool keep_graph = false;       // nodes may run again
  bool create_graph = false;     // what runs is recorded, for the next derivative
  bool accumulate_grad = false;  // leaves take gradients; else only `outputs` are found
  bool strict = false;           // a wanted output without a path is an Error, not undefined
  bool exit_on_error = false;    // return at the first failure, while other threads may still run
};

// Takes what a capture found and gives what the caller gets; several chain.
using CaptureHook = std::function<Variable(const Variable&)>;
struct Capture {
  Edge edge;
  std::vector<CaptureHook> hooks;
};

// Thread-safe: any number of backwards at the same time, on graphs that may share nodes. Belongs to
// a context (engine_of). User code (custom functions, hooks) runs on the calling thread unless it
// was registered as thread-safe; on accelerators, on the device's thread.
class Engine {
 public:
  explicit Engine(std::shared_ptr<Context> context, EngineOptions options = {});
  virtual ~Engine();  // shuts down
  Engine(const Engine&) = delete;

  // Runs the graph below `roots` with these cotangents (undefined: none). With `outputs`, only what
  // leads to them runs, and their gradients are returned in order, undefined where no path leads.
  // Returns when no node of this task runs any more.
  // Throws Error for wrong cotangents, a graph that was freed, a stopped engine; and the first
  // exception of any type that a node, hook or callback throws, with the node's name in its message
  // where it is one of Gradus'.
  virtual Variables execute(std::span<const Edge> roots, std::span<const Variable> cotangents,
                            const ExecuteOptions& options, std::span<const Capture> outputs = {});
  // The same on a thread of the engine's.
  std::future<Variables> execute_async(std::vector<Edge> roots, Variables cotangents,
                                       ExecuteOptions options, std::vector<Capture> outputs = {});

  // The order in which `execute` would run nodes with multithreading off.
  std::vector<const Node*> execution_order(std::span<const Edge> roots,
                                           std::span<const Edge> outputs = {}) const;
  // The same with what is added up where, so that who follows it comes to the same bits.
  std::vector<BackwardStep> steps(std::span<const Edge> roots, std::span<const Edge> outputs) const;

  // Has `callback` run on the calling thread when the running task ends well. Only during a
  // backward (an Error otherwise); a callback may add callbacks. Callbacks run unlocked, in the
  // task's thread-local state; one that throws fails the task.
  static void queue_callback(std::function<void()> callback);

  // Stops the threads: joins them for at most `limit`; those past it are left behind and start no
  // node any more. Running afterwards is an Error. Any number of times, also while a task runs,
  // which then fails.
  void shutdown(std::chrono::milliseconds limit = std::chrono::seconds(10));

  const EngineOptions& options() const;
  void set_depth_limit(int limit);

 private:
  struct GRADUS_INTERNAL Core;
  friend class EngineAccess;
  std::shared_ptr<Core> core_;
};

// A context's engine, made on first use; and another in its place (for what runs from now on).
std::shared_ptr<Engine> engine_of(const std::shared_ptr<Context>& context);
void replace_engine(const std::shared_ptr<Context>& context, std::shared_ptr<Engine> engine);

// The usual ways in, on the current context's engine. Undefined cotangents are allowed for 0-d
// variables: one.
void backward(std::span<const Variable> outputs, std::span<const Variable> cotangents = {},
              bool keep_graph = false, bool create_graph = false);
struct GradOptions {
  bool keep_graph = false;
  bool create_graph = false;
  bool allow_unused = true;  // else an input without a path is an Error
};
Variables grad(std::span<const Variable> outputs, std::span<const Variable> inputs,
               std::span<const Variable> cotangents = {}, const GradOptions& options = {});

// From inside a running task; outside one: -1, nothing, nothing, true.
int64_t current_task_id();
std::vector<const Node*> nodes_in_current_task();
// Whether the node runs in the current task; nullopt outside one.
std::optional<bool> runs_in_current_task(const Node& node);
bool current_task_keeps_graph();
// Makes the node run in the current task though nothing wanted lies below it.
void add_to_current_task(const Node& node);
// Whether re-running a forward inside this backward (gradient checkpointing) sees all of it: false
// where some task around this point was asked for `outputs` only.
bool checkpoint_valid();

}  // namespace gradus::autograd

#pragma GCC visibility pop
