#include "ir/passes/min_cut.h"

#include <algorithm>

namespace gradus::ir {

uint32_t FlowNetwork::add_node() {
  first_.push_back(none);
  return static_cast<uint32_t>(first_.size() - 1);
}

void FlowNetwork::add_edge(uint32_t from, uint32_t to, int64_t capacity) {
  auto add = [&](uint32_t a, uint32_t b, int64_t c) {
    edges_.push_back({b, first_[a], c});
    first_[a] = static_cast<uint32_t>(edges_.size() - 1);
  };
  add(from, to, capacity);
  add(to, from, 0);
}

// Distances from the source over edges with something left. False where the sink is not reached.
bool FlowNetwork::find_levels(uint32_t source, uint32_t sink) {
  level_.assign(nodes(), none);
  std::vector<uint32_t> queue{source};
  level_[source] = 0;
  for (size_t q = 0; q < queue.size(); ++q)
    for (uint32_t e = first_[queue[q]]; e != none; e = edges_[e].next)
      if (edges_[e].capacity > 0 && level_[edges_[e].to] == none) {
        level_[edges_[e].to] = level_[queue[q]] + 1;
        queue.push_back(edges_[e].to);
      }
  return level_[sink] != none;
}

// Along shortest paths until there is none left.
void FlowNetwork::push_flows(uint32_t source, uint32_t sink) {
  at_ = first_;
  std::vector<uint32_t> path;  // edges
  uint32_t node = source;
  for (;;) {
    if (node == sink) {
      int64_t flow = unlimited;
      for (uint32_t e : path) flow = std::min(flow, edges_[e].capacity);
      size_t full = path.size();
      for (size_t i = path.size(); i-- > 0;) {
        edges_[path[i]].capacity -= flow;
        edges_[path[i] ^ 1].capacity += flow;
        if (edges_[path[i]].capacity == 0) full = i;
      }
      node = edges_[path[full] ^ 1].to;
      path.resize(full);
      continue;
    }
    uint32_t& e = at_[node];
    while (e != none && (edges_[e].capacity == 0 || level_[edges_[e].to] != level_[node] + 1))
      e = edges_[e].next;
    if (e != none) {
      path.push_back(e);
      node = edges_[e].to;
    } else {
      if (node == source) return;
      level_[node] = none;  // leads nowhere
      node = edges_[path.back() ^ 1].to;
      path.pop_back();
    }
  }
}

std::vector<bool> FlowNetwork::sink_side(uint32_t source, uint32_t sink) {
  while (find_levels(source, sink)) push_flows(source, sink);
  std::vector<bool> side(nodes(), false);
  std::vector<uint32_t> queue{sink};
  side[sink] = true;
  for (size_t q = 0; q < queue.size(); ++q)
    for (uint32_t e = first_[queue[q]]; e != none; e = edges_[e].next)
      if (edges_[e ^ 1].capacity > 0 && !side[edges_[e].to]) {
        side[edges_[e].to] = true;
        queue.push_back(edges_[e].to);
      }
  return side;
}

}  // namespace gradus::ir
