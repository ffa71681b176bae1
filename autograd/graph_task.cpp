// A task before it runs: which nodes take part, in which order, and what is added up where.
#include "autograd/graph_task.h"

#include <algorithm>
#include <numeric>

#include "autograd/device_streams.h"
#include "autograd/hooks.h"

namespace gradus::autograd {

namespace {

thread_local GraphTask* current_task = nullptr;
std::atomic<int64_t> next_id{0};

// Marks tell tasks apart while they run; zero is no task.
uint32_t next_serial() {
  static std::atomic<uint32_t> next{1};
  uint32_t serial = next.fetch_add(1);
  return serial ? serial : next.fetch_add(1);
}

constexpr uint64_t mark_of(uint32_t serial, uint32_t index) {
  return static_cast<uint64_t>(serial) << 32 | index;
}

}  // namespace

GraphTask* GraphTask::current() { return current_task; }
GraphTask::CurrentGuard::CurrentGuard(GraphTask* task) : ValueGuard(current_task, task) {}

GraphTask::GraphTask(const Request& request, TaskHost& host)
    : host_(host),
      options_(request.options),
      id_(next_id.fetch_add(1)),
      serial_(next_serial()),
      depth_(request.depth),
      checkpoint_valid_(request.checkpoint_valid),
      caller_state_(thread_state()),
      caller_streams_(current_streams()),
      next_number_(next_sequence_number()),
      roots_(request.roots.begin(), request.roots.end()),
      captures_(request.outputs.begin(), request.outputs.end()),
      accumulated_(request.outputs.size()),
      captured_(request.outputs.size()),
      all_run_(request.outputs.empty()) {}

void GraphTask::prepare(bool multithreading) {
  tables_ = host_.take_tables();
  if (!all_run_) {
    least_topological_number_ = UINT64_MAX;
    for (const Capture& c : captures_)
      if (c.edge.valid())
        least_topological_number_ =
            std::min(least_topological_number_, c.edge.node->topological_number());
  }
  discover_all(roots_);
  if (!all_run_) {
    mark_wanted(captures_);
    spread_wanted();
  }
  for (TaskNode& n : nodes_) {
    n.runs |= all_run_;
    left_ += n.runs || n.captured;
  }
  decide_threads(multithreading);
}

GraphTask::~GraphTask() { let_go(); }

void GraphTask::let_go() {
  constexpr size_t ahead = 8;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (i + ahead < nodes_.size()) nodes_[i + ahead].node->prefetch_mark();
    if (nodes_[i].marked) nodes_[i].node->mark_.store(0, std::memory_order_release);
  }
  tables_.clear();
  host_.give_tables(std::move(tables_));
  tables_ = TaskTables();
  early_.clear();
  captures_.clear();
  callbacks_.clear();
  roots_.clear();
  // A worker may hold this task a moment longer: it must not be the one that ends the context.
  caller_state_ = ThreadState();
}

uint32_t GraphTask::find(const Node* node) const {
  uint64_t mark = node->mark_.load(std::memory_order_acquire);
  if (mark >> 32 == serial_) return static_cast<uint32_t>(mark);
  if (foreign_.empty()) return none;
  auto it = foreign_.find(node);
  return it == foreign_.end() ? none : it->second;
}

// The node's index; a new one gets slots for its inputs.
uint32_t GraphTask::discover(Node* node) {
  if (uint32_t known = find(node); known != none) return known;
  const size_t inputs = node->inputs();
  if (nodes_.size() >= none || slots_.size() + inputs >= none)
    throw Error("this graph has more nodes than one backward can run (2^32)");
  auto index = static_cast<uint32_t>(nodes_.size());
  TaskNode& entry = nodes_.emplace_back();
  entry.node = node;
  entry.first_slot = static_cast<uint32_t>(slots_.size());
  entry.selective = node->selective();
  entry.accelerated = node->accelerated();
  // Waking a thread costs some microseconds: about what this many elements cost.
  constexpr int64_t least_elements = 8192;
  entry.heavy = node->elements() >= least_elements;
  for (size_t i = 0; i < inputs; ++i) slots_.emplace_back();
  uint64_t free = 0;
  entry.marked =
      node->mark_.compare_exchange_strong(free, mark_of(serial_, index), std::memory_order_acq_rel);
  if (!entry.marked) foreign_.emplace(node, index);
  return index;
}

// Nodes to be walked from, later made ones first. Those that come in the order of a stack, as they
// mostly do, cost no more than one.
class GraphTask::Open {
 public:
  void push(uint64_t sequence_number, uint32_t index) {
    TaskTurn next{sequence_number, index};
    if (has_first_ && first_ < next) std::swap(first_, next);
    if (!has_first_ && !(next < best_of_rest())) {
      first_ = next;
      has_first_ = true;
    } else if (stack_.empty() || !(next < stack_.back())) {
      stack_.push_back(next);
    } else {
      heap_.push_back(next);
      std::push_heap(heap_.begin(), heap_.end());
    }
  }
  bool empty() const { return !has_first_ && stack_.empty() && heap_.empty(); }
  uint32_t pop() {
    if (std::exchange(has_first_, false)) return first_.index;
    if (heap_.empty() || (!stack_.empty() && heap_.front() < stack_.back())) {
      uint32_t index = stack_.back().index;
      stack_.pop_back();
      return index;
    }
    std::pop_heap(heap_.begin(), heap_.end());
    uint32_t index = heap_.back().index;
    heap_.pop_back();
    return index;
  }

 private:
  TaskTurn best_of_rest() const {
    TaskTurn best;
    if (!stack_.empty()) best = stack_.back();
    return heap_.empty() ? best : std::max(best, heap_.front());
  }
  TaskTurn first_;  // if there, before all others
  bool has_first_ = false;
  std::vector<TaskTurn> stack_;  // ascending
  std::vector<TaskTurn> heap_;
};

// The node that an edge leads to takes part; nothing where it lies lower than every wanted output.
TaskEdge GraphTask::reach(const Edge& edge, Open& open) {
  if (!edge.valid() || edge.node->topological_number() < least_topological_number_) return {};
  const size_t known = nodes_.size();
  const uint32_t index = discover(edge.node.get());
  TaskNode& entry = nodes_[index];
  if (edge.input >= edge.node->inputs())
    throw Error("an edge leads to input {} of node '{}', which has {} inputs", edge.input,
                edge.node->name(), edge.node->inputs());
  TaskSlot& slot = slots_[entry.first_slot + edge.input];
  downward_ &= !entry.walked;
  // Another input of a selective node may lead on to more.
  bool more = entry.walked && entry.selective && slot.contributions == 0;
  if (nodes_.size() > known || more) open.push(edge.node->sequence_number(), index);
  ++entry.dependencies;
  return {index, slot.contributions++};
}

// Walks down from the roots, later made nodes first, counting what will arrive at each input.
void GraphTask::discover_all(std::span<const Edge> roots) {
  Open open;
  for (const Edge& root : roots) root_ordinals_.push_back(reach(root, open).ordinal);
  while (!open.empty()) walk_from(open.pop(), open);
}

void GraphTask::walk_from(uint32_t index, Open& open) {
  auto edges = nodes_[index].node->next_edges();
  if (!nodes_[index].walked) {
    nodes_[index].walked = true;
    nodes_[index].first_edge = static_cast<uint32_t>(edges_.size());
    nodes_[index].edges = static_cast<uint32_t>(edges.size());
    walk_.push_back(index);
    if (!nodes_[index].selective) {
      for (const Edge& edge : edges) edges_.push_back(reach(edge, open));
      return;
    }
    for (size_t e = 0; e < edges.size(); ++e) edges_.emplace_back();
  }
  if (nodes_[index].selective) walk_selectively(index, open);
}

// Along edges to which something leads from an input where something arrives.
void GraphTask::walk_selectively(uint32_t index, Open& open) {
  const Node& node = *nodes_[index].node;
  for (size_t e = 0; e < nodes_[index].edges; ++e) {
    const size_t place = nodes_[index].first_edge + e;
    bool leads = false;
    for (size_t i = 0; edges_[place].target == none && i < node.inputs() && !leads; ++i)
      leads = slots_[nodes_[index].first_slot + i].contributions != 0 && node.leads(i, e);
    if (leads) edges_[place] = reach(node.next_edge(e), open);
  }
}

void GraphTask::mark_wanted(std::span<const Capture> outputs) {
  for (uint32_t k = 0; k < outputs.size(); ++k) {
    const Edge& edge = outputs[k].edge;
    uint32_t index = edge.valid() ? find(edge.node.get()) : none;
    if (index == none) continue;  // no path: undefined
    if (edge.input >= edge.node->inputs())
      throw Error("a gradient at input {} of node '{}' is asked for, which has {} inputs",
                  edge.input, edge.node->name(), edge.node->inputs());
    TaskNode& n = nodes_[index];
    if (options_.accumulate_grad && edge.node->accumulates_into().defined()) {
      n.runs = accumulated_[k] = true;
      continue;
    }
    n.captured = true;
    captures_by_node_.emplace_back(index, k);
  }
  std::ranges::sort(captures_by_node_);
}

// A node runs if something wanted lies below it. Lower topological numbers first: what lies below
// has been decided.
void GraphTask::spread_wanted() {
  // Walks mostly go downward; where nodes were made on several threads they may not.
  if (downward_) {
    for (size_t i = walk_.size(); i-- > 0;) spread_to(walk_[i]);
    return;
  }
  std::vector<uint32_t> upward(walk_.rbegin(), walk_.rend());
  std::ranges::stable_sort(upward, {},
                           [&](uint32_t i) { return nodes_[i].node->topological_number(); });
  for (uint32_t i : upward) spread_to(i);
}

void GraphTask::spread_to(uint32_t index) {
  TaskNode& entry = nodes_[index];
  if (entry.selective) return spread_selectively(index);
  for (size_t e = 0; e < entry.edges && !entry.runs; ++e) entry.runs = is_used(entry, e);
}

// A selective node waits only for the inputs that bear on what is wanted.
void GraphTask::spread_selectively(uint32_t index) {
  TaskNode& entry = nodes_[index];
  const Node& node = *entry.node;
  uint32_t dependencies = 0;
  for (uint32_t i = 0; i < node.inputs(); ++i) {
    TaskSlot& slot = slots_[entry.first_slot + i];
    bool runs = false, captured = false;
    for (size_t e = 0; e < entry.edges && !runs; ++e) runs = node.leads(i, e) && is_used(entry, e);
    if (entry.captured) {
      auto at = std::ranges::lower_bound(captures_by_node_, std::pair(index, 0u));
      for (; at != captures_by_node_.end() && at->first == index; ++at)
        captured |= captures_[at->second].edge.input == i;
    }
    entry.runs |= runs && slot.contributions != 0;
    slot.idle = !runs && !captured;
    if (!slot.idle) dependencies += slot.contributions;
  }
  // Asked for where nothing arrives.
  if (dependencies == 0) entry.runs = entry.captured = false;
  if (entry.runs || entry.captured) entry.dependencies = dependencies;
}

// Whether what arrives at an input is used. A node may have got more inputs since.
bool GraphTask::is_used(uint32_t target, uint32_t input) const {
  const TaskNode& to = nodes_[target];
  if (!to.runs && !to.captured) return false;
  return !to.selective || !slots_[to.first_slot + input].idle;
}

// The same of what goes along an edge.
bool GraphTask::is_used(const TaskNode& from, size_t edge) const {
  uint32_t target = edges_[from.first_edge + edge].target;
  if (target == none) return false;
  const TaskNode& to = nodes_[target];
  if (!to.selective) return to.runs || to.captured;
  return is_used(target, from.node->next_edge(edge).input);
}

bool GraphTask::wants(const Node& node, size_t edge) const {
  uint32_t index = find(&node);
  Lock lock(*this);
  if (index != none && edge < nodes_[index].edges) return is_used(nodes_[index], edge);
  // Of a node that is not in the task, but whose edges lead there.
  const Edge& next = node.next_edge(edge);
  uint32_t target = next.valid() ? find(next.node.get()) : none;
  return target != none && is_used(target, next.input);
}

uint64_t GraphTask::wanted_of(const Node& node) const {
  uint64_t wanted = 0;
  uint32_t index = find(&node);
  if (index == none || nodes_[index].edges != node.outputs()) {
    for (size_t e = 0; e < node.outputs(); ++e)
      if (node.next_edge(e).valid() && wants(node, e)) wanted |= uint64_t{1} << e;
    return wanted;
  }
  Lock lock(*this);
  const TaskNode& entry = nodes_[index];
  for (size_t e = 0; e < entry.edges; ++e)
    if (is_used(entry, e)) wanted |= uint64_t{1} << e;
  return wanted;
}

bool GraphTask::runs(const Node& node) const {
  uint32_t index = find(&node);
  if (index == none) return false;
  Lock lock(*this);
  return nodes_[index].runs;
}

// What would arrive at a node from those that run.
uint32_t GraphTask::count_contributions(uint32_t target) const {
  uint32_t n = 0;
  for (const TaskNode& from : nodes_) {
    if (!from.runs) continue;
    for (size_t e = 0; e < from.edges; ++e) n += edges_[from.first_edge + e].target == target;
  }
  return n;
}

void GraphTask::add(const Node& node) {
  uint32_t index = find(&node);
  if (index == none)
    throw Error("node '{}' cannot be added to this backward: no root leads to it", node.name());
  Lock lock(*this);
  TaskNode& entry = nodes_[index];
  if (entry.runs || entry.captured) return;
  if (entry.dependencies != count_contributions(index))
    throw Error("node '{}' cannot be added to this backward: some of what leads to it does not run",
                node.name());
  entry.runs = true;
  ++left_;
}

std::vector<const Node*> GraphTask::nodes() const {
  std::vector<const Node*> list;
  Lock lock(*this);
  for (const TaskNode& n : nodes_)
    if (n.runs) list.push_back(n.node);
  return list;
}

Device GraphTask::device_of(const Node& node) const {
  if (!node.accelerated()) return {};
  for (size_t i = 0; i < node.inputs(); ++i)
    if (node.input_metadata(i).device.kind != DeviceKind::cpu) return node.input_metadata(i).device;
  return {};
}

bool GraphTask::worth_a_worker(const TaskNode& entry) const {
  if (!entry.heavy || !entry.node->is_thread_safe()) return false;
  const Hooks* hooks = entry.node->hooks_if_any();
  return !hooks || hooks->thread_safe();
}

// With create_graph the order in which nodes are made decides the order of later sums, so that all
// of it runs in one order, on one thread (but for accelerators' nodes, which have threads of their
// own).
void GraphTask::decide_threads(bool multithreading) {
  exclusive_ = true;
  if (!multithreading) return;
  size_t worth = 0;
  bool accelerated = false;
  for (const TaskNode& n : nodes_) {
    if (n.accelerated) {
      host_.device_queue(device_of(*n.node));  // starts the threads, before anything runs
      accelerated = true;
    }
    worth += n.heavy && worth < 2 && worth_a_worker(n);
  }
  bool parallel = worth >= 2 && !options_.create_graph;
  exclusive_ = !accelerated && !parallel;
  // Asked now, since a node's answer is user code and no lock is held.
  if (parallel)
    for (TaskNode& n : nodes_) n.parallel = worth_a_worker(n);
}

ThreadState GraphTask::state_of_nodes() const {
  ThreadState state = caller_state_;
  state.mode = options_.create_graph ? GradMode::enabled : GradMode::no_grad;
  return state;
}

}  // namespace gradus::autograd
