#include "autograd/backward_steps.h"

#include <queue>

#include "autograd/graph_task.h"

namespace gradus::autograd {

// As the only thread of a task takes them: what is ready, later made nodes first.
std::vector<uint32_t> GraphTask::execution() const {
  std::vector<uint32_t> left(nodes_.size());
  std::priority_queue<TaskTurn> ready;
  auto arrive = [&](uint32_t i) {
    if (--left[i] == 0) ready.push({nodes_[i].node->sequence_number(), i});
  };
  for (size_t i = 0; i < nodes_.size(); ++i) left[i] = nodes_[i].dependencies;
  // A selective node that takes part waits for what is used; what does not, never runs.
  auto arrives = [&](uint32_t i, uint32_t input) {
    const TaskNode& n = nodes_[i];
    return !(n.runs || n.captured) || is_used(i, input);
  };
  for (const Edge& root : roots_)
    if (uint32_t i = root.valid() ? find(root.node.get()) : none; i != none)
      if (arrives(i, root.input)) arrive(i);
  std::vector<uint32_t> list;
  while (!ready.empty()) {
    uint32_t index = ready.top().index;
    const TaskNode& n = nodes_[index];
    ready.pop();
    if (n.runs || n.captured) list.push_back(index);
    if (!n.runs) continue;
    for (size_t e = 0; e < n.edges; ++e)
      if (uint32_t i = edges_[n.first_edge + e].target; i != none)
        if (arrives(i, n.node->next_edge(e).input)) arrive(i);
  }
  return list;
}

std::vector<const Node*> GraphTask::order() const {
  std::vector<const Node*> list;
  for (uint32_t i : execution())
    if (nodes_[i].runs) list.push_back(nodes_[i].node);
  return list;
}

std::vector<BackwardStep> GraphTask::steps() const {
  std::vector<uint32_t> list = execution();
  std::vector<uint32_t> step_of(nodes_.size(), none);
  std::vector<BackwardStep> steps(list.size());
  for (uint32_t s = 0; s < list.size(); ++s) {
    const TaskNode& n = nodes_[list[s]];
    step_of[list[s]] = s;
    steps[s].node = n.node;
    steps[s].runs = n.runs;
    steps[s].inputs.resize(n.node->inputs());
    for (size_t i = 0; i < n.node->inputs(); ++i)
      if (const TaskSlot& slot = slots_[n.first_slot + i]; !slot.idle)
        steps[s].inputs[i].resize(slot.contributions);
  }
  // Whether what goes along the edge is used.
  auto arrives = [&](const Edge& edge, uint32_t ordinal, BackwardStep::Contribution c) {
    uint32_t index = edge.valid() ? find(edge.node.get()) : none;
    if (index == none || step_of[index] == none || !is_used(index, edge.input)) return false;
    steps[step_of[index]].inputs[edge.input][ordinal] = c;
    return true;
  };
  for (uint32_t r = 0; r < roots_.size(); ++r)
    arrives(roots_[r], root_ordinals_[r], {BackwardStep::root, r});
  for (uint32_t s = 0; s < list.size(); ++s) {
    const TaskNode& n = nodes_[list[s]];
    if (!n.runs) continue;
    for (uint32_t i = 0; i < n.edges; ++i) {
      TaskEdge walked = edges_[n.first_edge + i];
      steps[s].wanted.push_back(walked.target != none &&
                                arrives(n.node->next_edge(i), walked.ordinal, {s, i}));
    }
  }
  return steps;
}

}  // namespace gradus::autograd
