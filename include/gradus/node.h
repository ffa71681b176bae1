// Nodes of the autograd graph. A node maps the cotangents of a function's results to the gradients
// of its inputs.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "gradus/pool.h"
#include "gradus/ref.h"
#include "gradus/small_vector.h"
#include "gradus/tensor.h"
#include "gradus/thread_state.h"

namespace gradus::autograd {
struct Hooks;
struct TaskGraph;
}  // namespace gradus::autograd

#pragma GCC visibility push(default)

// The metadata of a node's input: the properties that an incoming gradient must have.

namespace gradus::autograd {

// Returns this thread's current stream of a device, or 0 if the device has none.
uint64_t current_stream(Device device);

// The dtype, shape and device of a function's result, and the stream of the device on which it was
// made. `undefined`: the result was undefined, and only undefined gradients are valid. `cleared`:
// the metadata were removed, and any gradient is valid.
struct InputMetadata {
  enum class Kind : uint8_t { undefined, known, cleared };
  Kind kind = Kind::undefined;
  DType dtype = DType::f32;
  Device device;
  Sizes shape;
  uint64_t stream = 0;  // of a tensor on an accelerator: see device_streams.h

  InputMetadata() = default;
  explicit InputMetadata(const Tensor& t) {
    if (!t.defined()) return;
    kind = Kind::known;
    dtype = t.dtype();
    device = t.device();
    shape = t.layout().shape;
    if (device.kind != DeviceKind::cpu) stream = current_stream(device);
  }
};

class Node;
class Variable;
using Variables = SmallVector<Variable, 2>;

// The target of a gradient: an input of a node. An empty edge has no target.
struct Edge {
  Ref<Node> node;
  uint32_t input = 0;
  bool valid() const { return static_cast<bool>(node); }
  friend bool operator==(const Edge&, const Edge&) = default;
};

// The place where a node was made, for anomaly mode. `parent` is the node that ran at that time.
struct AnomalyMetadata {
  std::string place;
  Ref<Node> parent;
};

// The metadata of all inputs of a node.
struct NodeInputs final : pool::Object {
  SmallVector<InputMetadata, 1> list;
  int64_t elements = 0;      // the number of elements of all inputs
  bool accelerated = false;  // any input is on an accelerator
  void add(InputMetadata metadata);
};

// Sequence numbers order nodes that are ready: nodes that were made later run first, accumulators
// before all others.
inline constexpr uint64_t accumulator_sequence_number = UINT64_MAX;

// Returns the sequence number of the next node of this thread.
uint64_t next_sequence_number();

// In its scope, nodes of this thread get sequence numbers from `next` on. At the end, `next`
// becomes the next number of this thread. A thread that works for another thread thereby continues
// with that thread's numbers, so that a later node has a higher number on either thread.
class SequenceGuard {
 public:
  explicit SequenceGuard(std::atomic<uint64_t>& next);
  ~SequenceGuard();
  SequenceGuard(const SequenceGuard&) = delete;

 private:
  std::atomic<uint64_t>& next_;
};

// A node is made on one thread and may run on any thread. No lock of the node is held while
// `apply`, a hook, or a destructor of user data runs. The destruction of a graph is iterative.
class Node : public RefCounted, public pool::Object {
 public:
  // Takes the next sequence number of this thread. The topological number follows from the edges.
  explicit Node(SmallVector<Edge, 2> next = {});
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node() override;

  // Runs the node. Takes one cotangent per input (may be undefined) and returns one gradient per
  // edge. Sets the current node and notifies the profiler. The engine runs the hooks.
  Variables operator()(Variables&& cotangents);

  virtual std::string name() const = 0;
  // Releases the values that the run needs. The engine calls it after the run, unless the graph is
  // kept. A second run of a released node throws Error.
  virtual void release_variables() {}
  // Called before a run after which the node will be released. The node may then release large
  // values during the run.
  virtual void will_release_variables() {}
  // Whether `apply` only calls operators on variables, so that it can be traced.
  virtual bool is_traceable() const { return false; }
  // For a node that represents several operators: whether the gradient of an edge depends on the
  // cotangent of an input. If not, a backward pass treats the two as not connected.
  virtual bool leads(size_t input, size_t edge) const;
  // Whether `leads` may return false.
  bool selective() const { return selective_; }
  // Whether the node passes its thread-local state to the nodes that it makes, so that a capture
  // may look through it.
  virtual bool passes_state_transparently() const { return false; }
  // Whether hooks are removed when the graph is released. The hooks of an accumulator belong to the
  // leaf, and remain.
  virtual bool releases_hooks() const { return true; }
  // The leaf of an accumulator, whose hooks run with those of the node. Undefined for other nodes.
  virtual Variable accumulates_into() const;
  // Whether the node may run on a worker thread. False for user code, unless it states otherwise.
  virtual bool is_thread_safe() const { return false; }

  // The edges, by output of the node. An output of the node corresponds to an input of the
  // function.
  const Edge& next_edge(size_t i) const { return next_edges_[i]; }
  std::span<const Edge> next_edges() const { return next_edges_; }
  size_t outputs() const { return next_edges_.size(); }
  // Throws Error if a node has an edge to this node, because topological numbers would become
  // wrong.
  void add_next_edge(Edge edge);
  void set_next_edges(SmallVector<Edge, 2> edges);

  // The metadata, by input of the node. An input of the node corresponds to a result of the
  // function.
  uint32_t add_input(InputMetadata metadata);
  uint32_t add_undefined_input() { return add_input(InputMetadata()); }
  size_t inputs() const { return inputs_ ? inputs_->list.size() : 0; }
  const InputMetadata& input_metadata(size_t i) const { return inputs_->list[i]; }
  // Makes the node accept any gradients.
  void clear_input_metadata();
  // The number of elements of all inputs, and whether any input is on an accelerator.
  int64_t elements() const { return inputs_ ? inputs_->elements : 0; }
  bool accelerated() const { return inputs_ && inputs_->accelerated; }

  uint64_t sequence_number() const { return sequence_number_; }
  // The length of the longest path to a node without edges. A call fixes the edges of the node.
  uint64_t topological_number() const {
    has_parent_.store(true, std::memory_order_relaxed);
    return topological_number_;
  }
  // The number of times that the function can be differentiated. Null: no limit. Each run uses one
  // derivative. With create_graph, the nodes that the run makes have one less. A run with none left
  // throws Error.
  const OrderLimit* order_limit() const {
    const Rare* r = rare_.load(std::memory_order_acquire);
    return r ? r->order_limit.get() : nullptr;
  }
  void set_order_limit(Ref<const OrderLimit> limit);
  // The number of the thread that made the node, see thread_number().
  uint64_t forward_thread() const { return forward_thread_; }

  // Whether the output has an edge. Throws Error for an index out of range.
  bool should_compute_output(size_t i) const;
  // Whether any of the outputs first .. first + count - 1 has an edge.
  bool should_compute_output(size_t first, size_t count) const;
  // Whether the current task needs the gradient of the output. Outside a task, as
  // should_compute_output.
  bool task_should_compute_output(size_t i) const;
  bool task_should_compute_output(size_t first, size_t count) const;
  // The same for all outputs as a bit mask. The node must have at most 64 outputs.
  uint64_t task_outputs() const;

  // The hooks; docs/engine.md states their order. Never null.
  Hooks& hooks();
  // Null if there are no hooks.
  const Hooks* hooks_if_any() const {
    const Rare* r = rare_.load(std::memory_order_acquire);
    return r ? r->hooks.load(std::memory_order_acquire) : nullptr;
  }

  // Null unless the node was made in anomaly mode.
  const AnomalyMetadata* anomaly() const {
    const Rare* r = rare_.load(std::memory_order_acquire);
    return r ? r->anomaly.get() : nullptr;
  }
  // Whether the node has no hooks, no order limit and no metadata of anomaly mode.
  bool plain() const { return !rare_.load(std::memory_order_acquire); }

  // Prefetch the node, the part that a task writes, and the values that the node keeps.
  void prefetch() const {
    constexpr size_t line = 64, lines = 3;
    for (size_t i = 0; i < lines; ++i)
      __builtin_prefetch(reinterpret_cast<const std::byte*>(this) + i * line);
  }
  void prefetch_mark() const { __builtin_prefetch(&mark_, 1); }
  virtual void prefetch_values() const {}
  // The engine calls it after a run, unless the graph is kept.
  void end_of_run();
  bool released() const { return released_.load(std::memory_order_acquire); }

 protected:
  virtual Variables apply(Variables&& cotangents) = 0;
  void dispose() const override;
  void set_sequence_number(uint64_t n) { sequence_number_ = n; }
  void set_selective() { selective_ = true; }
  // Uses metadata that must outlive the node, without a copy. The node must have none.
  void share_inputs(const NodeInputs& inputs) { inputs_ = &inputs; }
  // Held only while values are unpacked, read by small kernels, or released.
  class Lock {
   public:
    explicit Lock(const Node& node) : state_(node.lock_) {
      uint8_t free = 0;
      if (state_.compare_exchange_strong(free, 1, std::memory_order_acquire)) return;
      while (state_.exchange(2, std::memory_order_acquire) != 0) state_.wait(2);
    }
    ~Lock() {
      if (state_.exchange(0, std::memory_order_release) == 2) state_.notify_one();
    }
    Lock(const Lock&) = delete;

   private:
    std::atomic<uint8_t>& state_;  // 1: held; 2: held, and a thread may wait
  };

 private:
  friend struct TaskGraph;
  // Data that few nodes have.
  struct Rare {
    ~Rare();
    std::atomic<Hooks*> hooks{nullptr};  // owned
    std::unique_ptr<AnomalyMetadata> anomaly;
    Ref<const OrderLimit> order_limit;
  };
  Rare& rare();
  NodeInputs& own_inputs();
  void count(const Edge& edge);
  void check_edges_are_free() const;

  // The order of the members keeps the data of a run in few cache lines.
  uint32_t forward_thread_;
  uint64_t sequence_number_;
  uint64_t topological_number_ = 0;
  // The task that numbers this node (upper half) and its number there (lower half); 0: none. A
  // second concurrent task uses a table. In a node that waits for its destruction: the next such
  // node.
  mutable std::atomic<uint64_t> mark_{0};
  const NodeInputs* inputs_ = nullptr;  // owned, or shared
  std::atomic<Rare*> rare_{nullptr};    // owned
  mutable std::atomic<uint8_t> lock_{0};
  mutable std::atomic<bool> has_parent_{false};
  std::atomic<bool> released_{false};
  bool owns_inputs_ = false;
  bool selective_ = false;
  SmallVector<Edge, 2> next_edges_;
};

// The number of nodes that exist in the process. For tests of leaks.
size_t living_nodes();

// The node that runs on this thread. Null if none runs.
const Node* current_node();

}  // namespace gradus::autograd

#pragma GCC visibility pop
