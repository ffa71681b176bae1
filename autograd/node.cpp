#include "gradus/node.h"

#include <algorithm>

#include "autograd/graph_task.h"
#include "autograd/hooks.h"
#include "autograd/living.h"
#include "autograd/made_once.h"
#include "gradus/thread_state.h"

namespace gradus::autograd {

namespace {

thread_local const Node* running = nullptr;
thread_local uint64_t next_number = 0;

// Nodes of this thread that nobody refers to any more and that wait for their turn to go: freeing
// one frees others, which join the list instead of the stack. Linked through the nodes themselves:
// this takes no memory and works also while a thread ends.
thread_local const Node* waiting = nullptr;
thread_local bool digging = false;

class ProfilerGuard {
 public:
  explicit ProfilerGuard(const Node& node) : node_(node), profiler_(thread_state().profiler) {
    if (profiler_)
      profiler_->node_begins(node, node.name(), node.sequence_number(), node.forward_thread());
  }
  ~ProfilerGuard() {
    if (profiler_) profiler_->node_ends(node_);
  }
  ProfilerGuard(const ProfilerGuard&) = delete;

 private:
  const Node& node_;
  std::shared_ptr<Profiler> profiler_;
};

}  // namespace

size_t living_nodes() { return living_objects(Living::nodes); }
const Node* current_node() { return running; }
uint64_t next_sequence_number() { return next_number; }

SequenceGuard::SequenceGuard(std::atomic<uint64_t>& next) : next_(next) {
  next_number = std::max(next_number, next.load(std::memory_order_acquire));
}
SequenceGuard::~SequenceGuard() {
  uint64_t known = next_.load(std::memory_order_acquire);
  while (known < next_number &&
         !next_.compare_exchange_weak(known, next_number, std::memory_order_acq_rel)) {
  }
}

Node::Node(SmallVector<Edge, 2> next)
    : forward_thread_(static_cast<uint32_t>(thread_number())),
      sequence_number_(next_number++),
      next_edges_(std::move(next)) {
  living_of_thread(Living::nodes).add(1);
  for (const Edge& e : next_edges_) count(e);
  const ThreadState& state = thread_state();
  if (state.order_limit) set_order_limit(state.order_limit);
  if (state.anomaly == AnomalyMode::off) return;
  auto anomaly = std::make_unique<AnomalyMetadata>();
  anomaly->place = state.place ? thread_state().place() : std::string();
  if (running) anomaly->parent = Ref<Node>(const_cast<Node*>(running));
  rare().anomaly = std::move(anomaly);
}

Node::~Node() {
  delete rare_.load(std::memory_order_acquire);
  if (owns_inputs_) delete inputs_;
  living_of_thread(Living::nodes).add(-1);
}

Node::Rare::~Rare() { delete hooks.load(std::memory_order_acquire); }

Node::Rare& Node::rare() { return made_once(rare_); }
Hooks& Node::hooks() { return made_once(rare().hooks); }
void Node::set_order_limit(Ref<const OrderLimit> limit) {
  if (limit || !plain()) rare().order_limit = std::move(limit);
}

void Node::dispose() const {
  if (digging) {
    mark_.store(reinterpret_cast<uintptr_t>(waiting), std::memory_order_relaxed);
    waiting = this;
    return;
  }
  digging = true;
  // What a node leads to often goes after it.
  auto drop = [](const Node* node) {
    for (const Edge& e : node->next_edges_)
      if (e.node) e.node->prefetch();
    delete node;
  };
  drop(this);
  while (const Node* node = waiting) {
    waiting = reinterpret_cast<const Node*>(
        static_cast<uintptr_t>(node->mark_.load(std::memory_order_relaxed)));
    drop(node);
  }
  digging = false;
}

Variables Node::operator()(Variables&& cotangents) {
  ValueGuard<const Node*> guard(running, this);
  if (!thread_state().profiler) return apply(std::move(cotangents));
  ProfilerGuard profiled(*this);
  return apply(std::move(cotangents));
}

void Node::count(const Edge& edge) {
  if (edge.node)
    topological_number_ = std::max(topological_number_, edge.node->topological_number() + 1);
}

void Node::check_edges_are_free() const {
  if (has_parent_.load(std::memory_order_relaxed))
    throw Error(
        "node '{}' has a parent already: its edges are fixed, since numbers further up depend on "
        "them; add edges before the node is used",
        name());
}

void Node::add_next_edge(Edge edge) {
  check_edges_are_free();
  count(edge);
  next_edges_.push_back(std::move(edge));
}

void Node::set_next_edges(SmallVector<Edge, 2> edges) {
  check_edges_are_free();
  topological_number_ = 0;
  for (const Edge& e : edges) count(e);
  next_edges_ = std::move(edges);
}

void NodeInputs::add(InputMetadata metadata) {
  elements += numel(metadata.shape);
  accelerated |= metadata.device.kind != DeviceKind::cpu;
  list.push_back(std::move(metadata));
}

NodeInputs& Node::own_inputs() {
  if (!owns_inputs_) {
    inputs_ = inputs_ ? new NodeInputs(*inputs_) : new NodeInputs;
    owns_inputs_ = true;
  }
  return const_cast<NodeInputs&>(*inputs_);
}

void Node::clear_input_metadata() {
  for (InputMetadata& m : own_inputs().list) m.kind = InputMetadata::Kind::cleared;
}

uint32_t Node::add_input(InputMetadata metadata) {
  own_inputs().add(std::move(metadata));
  return static_cast<uint32_t>(inputs() - 1);
}

namespace {
void check_output(const Node& node, size_t first, size_t count) {
  if (first > node.outputs() || count > node.outputs() - first)
    throw Error("node '{}' has {} outputs; {} {} was asked for", node.name(), node.outputs(),
                count == 1 ? "output" : "the range to output",
                count == 1 ? first : first + count - 1);
}
}  // namespace

bool Node::should_compute_output(size_t i) const {
  check_output(*this, i, 1);
  return next_edges_[i].valid();
}
bool Node::should_compute_output(size_t first, size_t count) const {
  check_output(*this, first, count);
  return std::any_of(next_edges_.begin() + first, next_edges_.begin() + first + count,
                     [](const Edge& e) { return e.valid(); });
}
bool Node::task_should_compute_output(size_t i) const {
  check_output(*this, i, 1);
  const GraphTask* task = GraphTask::current();
  return next_edges_[i].valid() && (!task || task->wants(*this, i));
}
bool Node::task_should_compute_output(size_t first, size_t count) const {
  check_output(*this, first, count);
  for (size_t i = first; i < first + count; ++i)
    if (task_should_compute_output(i)) return true;
  return false;
}

Variable Node::accumulates_into() const { return {}; }
uint64_t Node::task_outputs() const {
  const GraphTask* task = GraphTask::current();
  if (task) return task->wanted_of(*this);
  uint64_t wanted = 0;
  for (size_t i = 0; i < outputs(); ++i)
    if (next_edges_[i].valid()) wanted |= uint64_t{1} << i;
  return wanted;
}
bool Node::leads(size_t, size_t) const { return true; }

void Node::end_of_run() {
  release_variables();
  // Hooks often hold what their graph made: a cycle that ends here. A later run is refused rather
  // than done without them.
  if (hooks_if_any() && releases_hooks()) {
    hooks().clear();
    released_.store(true, std::memory_order_release);
  }
}

}  // namespace gradus::autograd
