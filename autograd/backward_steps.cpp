#include <queue>

#include "autograd/task_graph.h"
#include "gradus/engine.h"

namespace gradus::autograd {

namespace {

// As the only thread of a task takes them: what is ready, later made nodes first.
std::vector<uint32_t> execution(const TaskGraph& g) {
  std::vector<uint32_t> left(g.nodes.size());
  std::priority_queue<TaskTurn> ready;
  auto arrive = [&](uint32_t i) {
    if (--left[i] == 0) ready.push({g.nodes[i].node->sequence_number(), i});
  };
  for (size_t i = 0; i < g.nodes.size(); ++i) left[i] = g.nodes[i].dependencies;
  // A selective node that takes part waits for what is used; what does not, never runs.
  auto arrives = [&](uint32_t i, uint32_t input) {
    const TaskNode& n = g.nodes[i];
    return !(n.runs || n.captured) || g.is_used(i, input);
  };
  for (const Edge& root : g.roots)
    if (uint32_t i = root.valid() ? g.find(root.node.get()) : TaskGraph::none; i != TaskGraph::none)
      if (arrives(i, root.input)) arrive(i);
  std::vector<uint32_t> list;
  while (!ready.empty()) {
    uint32_t index = ready.top().index;
    const TaskNode& n = g.nodes[index];
    ready.pop();
    if (n.runs || n.captured) list.push_back(index);
    if (!n.runs) continue;
    for (size_t e = 0; e < n.edges; ++e)
      if (uint32_t i = g.edges[n.first_edge + e].target; i != TaskGraph::none)
        if (arrives(i, n.node->next_edge(e).input)) arrive(i);
  }
  return list;
}

}  // namespace

std::vector<const Node*> order_of(const TaskGraph& g) {
  std::vector<const Node*> list;
  for (uint32_t i : execution(g))
    if (g.nodes[i].runs) list.push_back(g.nodes[i].node);
  return list;
}

std::vector<BackwardStep> steps_of(const TaskGraph& g) {
  std::vector<uint32_t> list = execution(g);
  std::vector<uint32_t> step_of(g.nodes.size(), TaskGraph::none);
  std::vector<BackwardStep> steps(list.size());
  for (uint32_t s = 0; s < list.size(); ++s) {
    const TaskNode& n = g.nodes[list[s]];
    step_of[list[s]] = s;
    steps[s].node = n.node;
    steps[s].runs = n.runs;
    steps[s].inputs.resize(n.node->inputs());
    for (size_t i = 0; i < n.node->inputs(); ++i)
      if (const TaskSlot& slot = g.slots[n.first_slot + i]; !slot.idle)
        steps[s].inputs[i].resize(slot.contributions);
  }
  // Whether what goes along the edge is used.
  auto arrives = [&](const Edge& edge, uint32_t ordinal, BackwardStep::Contribution c) {
    uint32_t index = edge.valid() ? g.find(edge.node.get()) : TaskGraph::none;
    if (index == TaskGraph::none || step_of[index] == TaskGraph::none ||
        !g.is_used(index, edge.input))
      return false;
    steps[step_of[index]].inputs[edge.input][ordinal] = c;
    return true;
  };
  for (uint32_t r = 0; r < g.roots.size(); ++r)
    arrives(g.roots[r], g.root_ordinals[r], {BackwardStep::root, r});
  for (uint32_t s = 0; s < list.size(); ++s) {
    const TaskNode& n = g.nodes[list[s]];
    if (!n.runs) continue;
    for (uint32_t i = 0; i < n.edges; ++i) {
      TaskEdge walked = g.edges[n.first_edge + i];
      steps[s].wanted.push_back(walked.target != TaskGraph::none &&
                                arrives(n.node->next_edge(i), walked.ordinal, {s, i}));
    }
  }
  return steps;
}

}  // namespace gradus::autograd
