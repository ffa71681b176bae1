// Nodes of the autograd graph: what turns the cotangents of a function's results into the
// cotangents of its inputs.
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

// What is known of a node's input: what a gradient that arrives there has to be.

namespace gradus::autograd {

// This thread's current stream of a device; 0 where it has none.
uint64_t current_stream(Device device);

// The dtype, shape and device of a function's result, and the device's stream it was made on; or
// the mark of an undefined result, to which only undefined gradients come; or nothing any more.
struct InputMetadata {
  enum class Kind : uint8_t { undefined, known, cleared };
  Kind kind = Kind::undefined;
  DType dtype = DType::f32;
  Device device;
  Sizes shape;
  uint64_t stream = 0;  // of an accelerator's tensor: see device_streams.h

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

// Where a gradient goes next: an input of a node. Empty: nowhere.
struct Edge {
  Ref<Node> node;
  uint32_t input = 0;
  bool valid() const { return static_cast<bool>(node); }
  friend bool operator==(const Edge&, const Edge&) = default;
};

// Where a node was made, for anomaly mode. The parent is the node whose run made it.
struct AnomalyMetadata {
  std::string place;
  Ref<Node> parent;
};

// What is known of a node's inputs, and of all together.
struct NodeInputs final : pool::Object {
  SmallVector<InputMetadata, 1> list;
  int64_t elements = 0;
  bool accelerated = false;  // any of them
  void add(InputMetadata metadata);
};

// Sequence numbers sort what is ready: later made runs first, accumulators before all.
inline constexpr uint64_t accumulator_sequence_number = UINT64_MAX;

// The number of the next node that this thread makes.
uint64_t next_sequence_number();

// While it lives this thread's nodes are numbered from `next` on at the least, which is what
// follows them at the end. So a thread that works for another goes on with that one's numbers, and
// that one with its: later made nodes have higher ones, whoever made them.
class SequenceGuard {
 public:
  explicit SequenceGuard(std::atomic<uint64_t>& next);
  ~SequenceGuard();
  SequenceGuard(const SequenceGuard&) = delete;

 private:
  std::atomic<uint64_t>& next_;
};

// Made on one thread; then runs on any. A node has no lock held while its `apply`, a hook, or a
// destructor of user data runs. Destroying a graph does not recurse, however long it is.
class Node : public RefCounted, public pool::Object {
 public:
  // The next number of this thread, and a topological number that grows with the edges.
  explicit Node(SmallVector<Edge, 2> next = {});
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node() override;

  // Runs the node: one cotangent per input (undefined ones allowed), one gradient per edge. Sets
  // the current node and tells the profiler; hooks are the engine's business.
  Variables operator()(Variables&& cotangents);

  virtual std::string name() const = 0;
  // Lets go of what the run needed; called after it in a graph that is not kept. A second run of a
  // node that has let go is an Error.
  virtual void release_variables() {}
  // Called before the node runs in a graph that is not kept: large values may go as they are used.
  virtual void will_release_variables() {}
  // Whether `apply` only calls operators on variables, so that it can be traced.
  virtual bool is_traceable() const { return false; }
  // Of a node that does what several would: whether the cotangent at an input bears on an edge's
  // gradient. Where it does not, a backward goes as if no path led from the one to the other.
  virtual bool leads(size_t input, size_t edge) const;
  // Whether `leads` says so of anything.
  bool selective() const { return selective_; }
  // Whether it hands its state on to the nodes it makes, so that a capture may look through it.
  virtual bool passes_state_transparently() const { return false; }
  // Whether hooks go when the graph is released: those of accumulators belong to the leaf.
  virtual bool releases_hooks() const { return true; }
  // An accumulator's leaf: its hooks are run with the node's. Undefined for other nodes.
  virtual Variable accumulates_into() const;
  // Whether it may run on a worker; user code may not unless it says so.
  virtual bool is_thread_safe() const { return false; }

  // Edges, by output of the node (which is the function's input).
  const Edge& next_edge(size_t i) const { return next_edges_[i]; }
  std::span<const Edge> next_edges() const { return next_edges_; }
  size_t outputs() const { return next_edges_.size(); }
  // An Error once some node has an edge to this one: numbers would be wrong.
  void add_next_edge(Edge edge);
  void set_next_edges(SmallVector<Edge, 2> edges);

  // Metadata, by input of the node (which is the function's output).
  uint32_t add_input(InputMetadata metadata);
  uint32_t add_undefined_input() { return add_input(InputMetadata()); }
  size_t inputs() const { return inputs_ ? inputs_->list.size() : 0; }
  const InputMetadata& input_metadata(size_t i) const { return inputs_->list[i]; }
  // Whatever arrives is taken as it is from now on.
  void clear_input_metadata();
  // Of all inputs together; whether any lies on an accelerator.
  int64_t elements() const { return inputs_ ? inputs_->elements : 0; }
  bool accelerated() const { return inputs_ && inputs_->accelerated; }

  uint64_t sequence_number() const { return sequence_number_; }
  // The longest path to a node without edges. Asking fixes the edges.
  uint64_t topological_number() const {
    has_parent_.store(true, std::memory_order_relaxed);
    return topological_number_;
  }
  // How often the function can be differentiated (null: without end). A run is one derivative; what
  // it makes with create_graph has one less, and where none is left a run is an Error.
  const OrderLimit* order_limit() const {
    const Rare* r = rare_.load(std::memory_order_acquire);
    return r ? r->order_limit.get() : nullptr;
  }
  void set_order_limit(Ref<const OrderLimit> limit);
  // The thread that made it: see thread_number().
  uint64_t forward_thread() const { return forward_thread_; }

  // Whether an output's gradient can go anywhere: the graph's shape. An Error for an index out of
  // range.
  bool should_compute_output(size_t i) const;
  // Whether any of the edges first .. first + count - 1 is there.
  bool should_compute_output(size_t first, size_t count) const;
  // The same within the running task, which may need less. Outside a task: the graph's shape.
  bool task_should_compute_output(size_t i) const;
  bool task_should_compute_output(size_t first, size_t count) const;
  // The same of all outputs, of which there are 64 at most: a bit each.
  uint64_t task_outputs() const;

  // Hooks; see hooks.h for their order. Never null.
  Hooks& hooks();
  // Null where there are none.
  const Hooks* hooks_if_any() const {
    const Rare* r = rare_.load(std::memory_order_acquire);
    return r ? r->hooks.load(std::memory_order_acquire) : nullptr;
  }

  // Null unless the node was made in anomaly mode.
  const AnomalyMetadata* anomaly() const {
    const Rare* r = rare_.load(std::memory_order_acquire);
    return r ? r->anomaly.get() : nullptr;
  }
  // Whether it has none of these: no hooks, no limit, no metadata of anomaly mode.
  bool plain() const { return !rare_.load(std::memory_order_acquire); }

  // Has the processor fetch the node, all of it or what a task writes; and the values that it
  // keeps.
  void prefetch() const {
    constexpr size_t line = 64, lines = 3;
    for (size_t i = 0; i < lines; ++i)
      __builtin_prefetch(reinterpret_cast<const std::byte*>(this) + i * line);
  }
  void prefetch_mark() const { __builtin_prefetch(&mark_, 1); }
  virtual void prefetch_values() const {}
  // By the engine, after a run in a graph that is not kept.
  void end_of_run();
  bool released() const { return released_.load(std::memory_order_acquire); }

 protected:
  virtual Variables apply(Variables&& cotangents) = 0;
  void dispose() const override;
  void set_sequence_number(uint64_t n) { sequence_number_ = n; }
  void set_selective() { selective_ = true; }
  // Where there are none yet. What outlives the node is not copied.
  void share_inputs(const NodeInputs& inputs) { inputs_ = &inputs; }
  // Held only while values are unpacked, read by small kernels, or let go: such sections are short.
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
    std::atomic<uint8_t>& state_;  // 1: held; 2: somebody may wait
  };

 private:
  friend struct TaskGraph;
  // What few nodes have.
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

  // The order keeps what a run reads in few lines of memory.
  uint32_t forward_thread_;
  uint64_t sequence_number_;
  uint64_t topological_number_ = 0;
  // Which running task numbers this node (upper half) and how (lower half); 0: none. A second task
  // at the same time keeps a table of its own. Of a node that waits to be freed: the next such.
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

// Number of nodes alive in the process, for tests of leaks.
size_t living_nodes();

// The node that runs on this thread now; null outside one.
const Node* current_node();

}  // namespace gradus::autograd

#pragma GCC visibility pop
