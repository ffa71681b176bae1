// The autograd engine: runs the backward graph from its roots to leaves, or to the edges whose
// gradients the caller requests.
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

// The plan of a backward pass.

namespace gradus::autograd {

// A node of a backward pass. The steps are in the order in which one thread runs the nodes.
struct BackwardStep {
  static constexpr uint32_t root = UINT32_MAX;
  struct Contribution {
    uint32_t step;    // the step that computes the gradient; `root`: a cotangent of the caller
    uint32_t output;  // output of that step's node; for a root, its index
  };
  const Node* node = nullptr;  // lives as long as the nodes of the roots
  // If false, the node does not run, and only its incoming gradients are captured.
  bool runs = false;
  // For each output of the node: whether its gradient is used.
  SmallVector<bool, 4> wanted;
  // For each input of the node: the gradients that are added, in this order.
  SmallVector<std::vector<Contribution>, 1> inputs;
};

// Options of an engine.
struct EngineOptions {
  // Number of nested backward calls on the stack of one thread. A deeper call runs on a pool
  // thread.
  int depth_limit = 60;
  // If false, the caller runs everything, in the order of `execution_order`, and nested calls stay
  // on its stack at any depth.
  bool multithreading = true;
  // Threads for independent branches, including the caller. 0: the number of the context's workers.
  int workers = 0;
};

// Options of one backward pass.
struct ExecuteOptions {
  bool keep_graph = false;    // the nodes may run again
  bool create_graph = false;  // the backward pass is recorded, for the next derivative
  // Leaves accumulate gradients; otherwise only `outputs` are returned.
  bool accumulate_grad = false;
  bool strict = false;         // an output without a path is an Error; otherwise it is undefined
  bool exit_on_error = false;  // return at the first failure, while other threads may still run
};

// Maps a captured gradient to the returned gradient. Several hooks are applied in order.
using CaptureHook = std::function<Variable(const Variable&)>;
// A request for the gradient at an edge.
struct Capture {
  Edge edge;
  std::vector<CaptureHook> hooks;
};

// Runs backward passes. Thread-safe: several passes may run at the same time, also on graphs that
// share nodes. A context owns an engine (engine_of). User code (custom functions, hooks) runs on
// the calling thread, unless it was registered as thread-safe; for nodes of a device, it runs on
// the thread of the device.
class Engine {
 public:
  explicit Engine(std::shared_ptr<Context> context, EngineOptions options = {});
  virtual ~Engine();  // shuts down
  Engine(const Engine&) = delete;

  // Runs the graph from `roots` with one cotangent for each root (may be undefined). With
  // `outputs`, only nodes on paths to them run. Returns their gradients in order, undefined if no
  // path leads there. Returns when no node of this task is running.
  //
  // Throws Error for cotangents of wrong number, dtype, shape or device, for a root that requires
  // no gradient, for a released graph, and for a stopped engine. Rethrows the first exception that
  // a node, hook or callback throws. If it is an exception of Gradus, the message names the node.
  virtual Variables execute(std::span<const Edge> roots, std::span<const Variable> cotangents,
                            const ExecuteOptions& options, std::span<const Capture> outputs = {});
  // The same on a thread of the engine.
  std::future<Variables> execute_async(std::vector<Edge> roots, Variables cotangents,
                                       ExecuteOptions options, std::vector<Capture> outputs = {});

  // Returns the order in which `execute` runs nodes without multithreading.
  std::vector<const Node*> execution_order(std::span<const Edge> roots,
                                           std::span<const Edge> outputs = {}) const;
  // The same, with the gradients that each input adds. A caller that follows the steps computes
  // bit-identical results.
  std::vector<BackwardStep> steps(std::span<const Edge> roots, std::span<const Edge> outputs) const;

  // Registers a function that the calling thread runs when the current task ends without an error.
  // Throws Error outside a backward pass. A callback may register further callbacks. Callbacks run
  // without locks, with the thread-local state of the task. A callback that throws fails the task.
  static void queue_callback(std::function<void()> callback);

  // Stops the threads and waits for them, at most `limit`. Threads that still run after `limit` are
  // detached, and start no further node. Running tasks fail, and later calls of `execute` throw
  // Error. May be called several times.
  void shutdown(std::chrono::milliseconds limit = std::chrono::seconds(10));

  const EngineOptions& options() const;
  // Throws Error for a limit below 1.
  void set_depth_limit(int limit);

 private:
  struct GRADUS_INTERNAL Core;
  friend class EngineAccess;
  std::shared_ptr<Core> core_;
};

// The engine of a context, which is made on first use. `replace_engine` replaces it for later
// tasks, and throws Error for null.
std::shared_ptr<Engine> engine_of(const std::shared_ptr<Context>& context);
void replace_engine(const std::shared_ptr<Context>& context, std::shared_ptr<Engine> engine);

// Backward passes on the engine of the current context. `cotangents` is empty or has one entry for
// each output. An absent cotangent of a 0-d output is 1; of other outputs it is an Error.
// `create_graph` implies `keep_graph`. `backward` accumulates into leaves, `grad` returns the
// gradients of `inputs`.
void backward(std::span<const Variable> outputs, std::span<const Variable> cotangents = {},
              bool keep_graph = false, bool create_graph = false);
struct GradOptions {
  bool keep_graph = false;
  bool create_graph = false;
  bool allow_unused = true;  // otherwise an input without a path is an Error
};
Variables grad(std::span<const Variable> outputs, std::span<const Variable> inputs,
               std::span<const Variable> cotangents = {}, const GradOptions& options = {});

// Queries of the task that runs on the calling thread. Outside a task: -1, an empty list, nullopt,
// true.
int64_t current_task_id();
std::vector<const Node*> nodes_in_current_task();
// Whether the node runs in the current task. nullopt outside a task.
std::optional<bool> runs_in_current_task(const Node& node);
bool current_task_keeps_graph();
// Makes a node run in the current task although no requested gradient depends on it. Throws Error
// outside a task.
void add_to_current_task(const Node& node);
// Whether this backward pass is complete, so that gradient checkpointing may run a forward pass
// again inside it. False if the current task, or a task around it, was given `outputs`.
bool checkpoint_valid();

}  // namespace gradus::autograd

#pragma GCC visibility pop
