// A task before it runs: which nodes take part, in which order, and what is added up where.
#pragma once

#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gradus/engine.h"

namespace gradus::autograd {

struct TaskNode {
  Node* node = nullptr;       // kept alive by the roots
  uint32_t dependencies = 0;  // contributions that are still to be added
  uint32_t first_slot = 0;    // of its inputs
  uint32_t first_edge = 0;    // of its edges
  uint32_t edges = 0;         // how many it had when it was walked from
  bool runs = false;          // wanted: itself, not only what arrives there
  bool captured : 1 = false;
  bool walked : 1 = false;       // its edges are known
  bool selective : 1 = false;    // as the node says
  bool accelerated : 1 = false;  // of an accelerator
  bool heavy : 1 = false;        // worth a worker by its sizes
  bool marked = false;           // the node carries this task's mark
  bool parallel = false;         // a worker may run it, and it is worth one
};
// An input of a node: the sum of the first `next` contributions; some thread may be adding. At an
// idle input of a selective node nothing arrives: nothing that is wanted depends on it.
struct TaskSlot {
  Variable sum;
  uint32_t contributions = 0;
  uint32_t next : 30 = 0;
  uint32_t adding : 1 = 0;
  uint32_t idle : 1 = 0;
};
// An edge that was walked along; `target` none: one that was not.
struct TaskEdge {
  uint32_t target = UINT32_MAX;
  uint32_t ordinal = 0;  // its place in the sum
};
// A task's tables. The next task takes over their memory: fresh pages cost more than the work.
struct TaskTables {
  std::vector<TaskNode> nodes;
  std::vector<TaskSlot> slots;
  std::vector<TaskEdge> edges;
  std::vector<uint32_t> walk;  // nodes in the order in which what lies below became known
  void clear() {
    nodes.clear();
    slots.clear();
    edges.clear();
    walk.clear();
  }
};

// A node in line: later made ones come first, of those the ones that were discovered first.
struct TaskTurn {
  uint64_t sequence_number = 0;
  uint32_t index = UINT32_MAX;
  bool operator<(const TaskTurn& o) const {
    return sequence_number != o.sequence_number ? sequence_number < o.sequence_number
                                                : index > o.index;
  }
};

// Numbers: a node's index is the order in which it was discovered from the roots, later made nodes
// first. Contributions to one input of a node are added in the order in which the edges were
// discovered, whatever order they arrive in: so a gradient's bits do not depend on threads.
// Nodes carry the mark of the graph that they are in, until it lets them go.
struct TaskGraph : TaskTables {
  static constexpr uint32_t none = UINT32_MAX;

  // `accumulate`: what is asked for at a leaf's accumulator goes into the leaf.
  TaskGraph(std::span<const Edge> roots, std::span<const Capture> outputs, bool accumulate);
  TaskGraph(const TaskGraph&) = delete;
  ~TaskGraph() { let_go(); }
  // Finds the nodes that take part, in empty tables. Throws Error for edges to inputs that are not
  // there.
  void prepare(TaskTables empty = {});
  // Returns the tables, empty again.
  TaskTables let_go();

  // The node's index, or `none`.
  uint32_t find(const Node* node) const;
  // Whether what arrives at an input is used. A node may have got more inputs since.
  bool is_used(uint32_t target, uint32_t input) const;
  // The same of what goes along an edge.
  bool is_used(const TaskNode& from, size_t edge) const;
  // The same of an edge of a node, which may be none of these.
  bool is_used(const Node& node, size_t edge) const;
  // What would arrive at a node from those that run.
  uint32_t count_contributions(uint32_t target) const;

  const uint32_t serial;
  const bool accumulate;
  SmallVector<Edge, 2> roots;
  SmallVector<uint32_t, 2> root_ordinals;  // their places in the sums
  std::vector<Capture> captures;
  std::vector<std::pair<uint32_t, uint32_t>> captures_by_node;  // (node, index in captures)
  std::vector<bool> accumulated;                      // by capture: goes into a leaf instead
  std::unordered_map<const Node*, uint32_t> foreign;  // nodes that another graph has marked
  bool all_run;
  bool downward = true;  // every node was walked from before all that lies below it
  uint64_t least_topological_number = 0;

 private:
  class Open;
  uint32_t discover(Node* node);
  TaskEdge reach(const Edge& edge, Open& open);
  void discover_all();
  void walk_from(uint32_t index, Open& open);
  void walk_selectively(uint32_t index, Open& open);
  void mark_wanted();
  void spread_wanted();
  void spread_to(uint32_t index);
  void spread_selectively(uint32_t index);
};

// The accelerator that a node works on, or the host.
Device device_of(const Node& node);
bool worth_a_worker(const TaskNode& entry);

// The nodes of a prepared graph in the order in which one thread would run them; and with what it
// would add up. In backward_steps.cpp.
std::vector<const Node*> order_of(const TaskGraph& graph);
std::vector<BackwardStep> steps_of(const TaskGraph& graph);

}  // namespace gradus::autograd
