#include "autograd/task_graph.h"

#include <algorithm>
#include <atomic>

#include "autograd/hooks.h"

namespace gradus::autograd {

namespace {

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

TaskGraph::TaskGraph(std::span<const Edge> from, std::span<const Capture> outputs, bool into_leaves)
    : serial(next_serial()),
      accumulate(into_leaves),
      roots(from.begin(), from.end()),
      captures(outputs.begin(), outputs.end()),
      accumulated(outputs.size()),
      all_run(outputs.empty()) {}

void TaskGraph::prepare(TaskTables empty) {
  TaskTables::operator=(std::move(empty));
  if (!all_run) {
    least_topological_number = UINT64_MAX;
    for (const Capture& c : captures)
      if (c.edge.valid())
        least_topological_number =
            std::min(least_topological_number, c.edge.node->topological_number());
  }
  discover_all();
  if (!all_run) {
    mark_wanted();
    spread_wanted();
  }
  for (TaskNode& n : nodes) n.runs |= all_run;
}

TaskTables TaskGraph::let_go() {
  constexpr size_t ahead = 8;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (i + ahead < nodes.size()) nodes[i + ahead].node->prefetch_mark();
    if (nodes[i].marked) nodes[i].node->mark_.store(0, std::memory_order_release);
  }
  clear();
  captures.clear();
  roots.clear();
  return std::move(static_cast<TaskTables&>(*this));
}

uint32_t TaskGraph::find(const Node* node) const {
  uint64_t mark = node->mark_.load(std::memory_order_acquire);
  if (mark >> 32 == serial) return static_cast<uint32_t>(mark);
  if (foreign.empty()) return none;
  auto it = foreign.find(node);
  return it == foreign.end() ? none : it->second;
}

// The node's index; a new one gets slots for its inputs.
uint32_t TaskGraph::discover(Node* node) {
  if (uint32_t known = find(node); known != none) return known;
  const size_t inputs = node->inputs();
  if (nodes.size() >= none || slots.size() + inputs >= none)
    throw Error("this graph has more nodes than one backward can run (2^32)");
  auto index = static_cast<uint32_t>(nodes.size());
  TaskNode& entry = nodes.emplace_back();
  entry.node = node;
  entry.first_slot = static_cast<uint32_t>(slots.size());
  entry.selective = node->selective();
  entry.accelerated = node->accelerated();
  // Waking a thread costs some microseconds: about what this many elements cost.
  constexpr int64_t least_elements = 8192;
  entry.heavy = node->elements() >= least_elements;
  for (size_t i = 0; i < inputs; ++i) slots.emplace_back();
  uint64_t free = 0;
  entry.marked =
      node->mark_.compare_exchange_strong(free, mark_of(serial, index), std::memory_order_acq_rel);
  if (!entry.marked) foreign.emplace(node, index);
  return index;
}

// Nodes to be walked from, later made ones first. Those that come in the order of a stack, as they
// mostly do, cost no more than one.
class TaskGraph::Open {
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
TaskEdge TaskGraph::reach(const Edge& edge, Open& open) {
  if (!edge.valid() || edge.node->topological_number() < least_topological_number) return {};
  const size_t known = nodes.size();
  const uint32_t index = discover(edge.node.get());
  TaskNode& entry = nodes[index];
  if (edge.input >= edge.node->inputs())
    throw Error("an edge leads to input {} of node '{}', which has {} inputs", edge.input,
                edge.node->name(), edge.node->inputs());
  TaskSlot& slot = slots[entry.first_slot + edge.input];
  downward &= !entry.walked;
  // Another input of a selective node may lead on to more.
  bool more = entry.walked && entry.selective && slot.contributions == 0;
  if (nodes.size() > known || more) open.push(edge.node->sequence_number(), index);
  ++entry.dependencies;
  return {index, slot.contributions++};
}

// Walks down from the roots, later made nodes first, counting what will arrive at each input.
void TaskGraph::discover_all() {
  Open open;
  for (const Edge& root : roots) root_ordinals.push_back(reach(root, open).ordinal);
  while (!open.empty()) walk_from(open.pop(), open);
}

void TaskGraph::walk_from(uint32_t index, Open& open) {
  auto next = nodes[index].node->next_edges();
  if (!nodes[index].walked) {
    nodes[index].walked = true;
    nodes[index].first_edge = static_cast<uint32_t>(edges.size());
    nodes[index].edges = static_cast<uint32_t>(next.size());
    walk.push_back(index);
    if (!nodes[index].selective) {
      for (const Edge& edge : next) edges.push_back(reach(edge, open));
      return;
    }
    for (size_t e = 0; e < next.size(); ++e) edges.emplace_back();
  }
  if (nodes[index].selective) walk_selectively(index, open);
}

// Along edges to which something leads from an input where something arrives.
void TaskGraph::walk_selectively(uint32_t index, Open& open) {
  const Node& node = *nodes[index].node;
  for (size_t e = 0; e < nodes[index].edges; ++e) {
    const size_t place = nodes[index].first_edge + e;
    bool leads = false;
    for (size_t i = 0; edges[place].target == none && i < node.inputs() && !leads; ++i)
      leads = slots[nodes[index].first_slot + i].contributions != 0 && node.leads(i, e);
    if (leads) edges[place] = reach(node.next_edge(e), open);
  }
}

void TaskGraph::mark_wanted() {
  for (uint32_t k = 0; k < captures.size(); ++k) {
    const Edge& edge = captures[k].edge;
    uint32_t index = edge.valid() ? find(edge.node.get()) : none;
    if (index == none) continue;  // no path: undefined
    if (edge.input >= edge.node->inputs())
      throw Error("a gradient at input {} of node '{}' is asked for, which has {} inputs",
                  edge.input, edge.node->name(), edge.node->inputs());
    TaskNode& n = nodes[index];
    if (accumulate && edge.node->accumulates_into().defined()) {
      n.runs = accumulated[k] = true;
      continue;
    }
    n.captured = true;
    captures_by_node.emplace_back(index, k);
  }
  std::ranges::sort(captures_by_node);
}

// A node runs if something wanted lies below it. Lower topological numbers first: what lies below
// has been decided.
void TaskGraph::spread_wanted() {
  // Walks mostly go downward; where nodes were made on several threads they may not.
  if (downward) {
    for (size_t i = walk.size(); i-- > 0;) spread_to(walk[i]);
    return;
  }
  std::vector<uint32_t> upward(walk.rbegin(), walk.rend());
  std::ranges::stable_sort(upward, {},
                           [&](uint32_t i) { return nodes[i].node->topological_number(); });
  for (uint32_t i : upward) spread_to(i);
}

void TaskGraph::spread_to(uint32_t index) {
  TaskNode& entry = nodes[index];
  if (entry.selective) return spread_selectively(index);
  for (size_t e = 0; e < entry.edges && !entry.runs; ++e) entry.runs = is_used(entry, e);
}

// A selective node waits only for the inputs that bear on what is wanted.
void TaskGraph::spread_selectively(uint32_t index) {
  TaskNode& entry = nodes[index];
  const Node& node = *entry.node;
  uint32_t dependencies = 0;
  for (uint32_t i = 0; i < node.inputs(); ++i) {
    TaskSlot& slot = slots[entry.first_slot + i];
    bool runs = false, captured = false;
    for (size_t e = 0; e < entry.edges && !runs; ++e) runs = node.leads(i, e) && is_used(entry, e);
    if (entry.captured) {
      auto at = std::ranges::lower_bound(captures_by_node, std::pair(index, 0u));
      for (; at != captures_by_node.end() && at->first == index; ++at)
        captured |= captures[at->second].edge.input == i;
    }
    entry.runs |= runs && slot.contributions != 0;
    slot.idle = !runs && !captured;
    if (!slot.idle) dependencies += slot.contributions;
  }
  // Asked for where nothing arrives.
  if (dependencies == 0) entry.runs = entry.captured = false;
  if (entry.runs || entry.captured) entry.dependencies = dependencies;
}

bool TaskGraph::is_used(uint32_t target, uint32_t input) const {
  const TaskNode& to = nodes[target];
  if (!to.runs && !to.captured) return false;
  return !to.selective || !slots[to.first_slot + input].idle;
}

bool TaskGraph::is_used(const TaskNode& from, size_t edge) const {
  uint32_t target = edges[from.first_edge + edge].target;
  if (target == none) return false;
  const TaskNode& to = nodes[target];
  if (!to.selective) return to.runs || to.captured;
  return is_used(target, from.node->next_edge(edge).input);
}

bool TaskGraph::is_used(const Node& node, size_t edge) const {
  const uint32_t index = find(&node);
  if (index != none && edge < nodes[index].edges) return is_used(nodes[index], edge);
  // Of a node that is not here, but whose edges lead here.
  const Edge& next = node.next_edge(edge);
  const uint32_t target = next.valid() ? find(next.node.get()) : none;
  return target != none && is_used(target, next.input);
}

uint32_t TaskGraph::count_contributions(uint32_t target) const {
  uint32_t n = 0;
  for (const TaskNode& from : nodes) {
    if (!from.runs) continue;
    for (size_t e = 0; e < from.edges; ++e) n += edges[from.first_edge + e].target == target;
  }
  return n;
}

Device device_of(const Node& node) {
  if (!node.accelerated()) return {};
  for (size_t i = 0; i < node.inputs(); ++i)
    if (node.input_metadata(i).device.kind != DeviceKind::cpu) return node.input_metadata(i).device;
  return {};
}

bool worth_a_worker(const TaskNode& entry) {
  if (!entry.heavy || !entry.node->is_thread_safe()) return false;
  const Hooks* hooks = entry.node->hooks_if_any();
  return !hooks || hooks->thread_safe();
}

}  // namespace gradus::autograd
