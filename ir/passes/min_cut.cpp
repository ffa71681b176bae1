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

// Sets labels to the distances from the sink over edges with something left.
void FlowNetwork::find_labels() {
  const auto far = static_cast<uint32_t>(nodes());
  label_.assign(nodes(), far);
  label_[sink_] = 0;
  order_.assign(1, sink_);
  for (size_t q = 0; q < order_.size(); ++q)
    for (uint32_t e = first_[order_[q]]; e != none; e = edges_[e].next) {
      ++work_;
      const uint32_t from = edges_[e].to;
      if (edges_[e ^ 1].capacity == 0 || label_[from] != far || from == source_) continue;
      label_[from] = label_[order_[q]] + 1;
      order_.push_back(from);
    }
}

// Sends on what waits at the node, one label down.
void FlowNetwork::discharge(uint32_t node) {
  for (uint32_t e = first_[node]; e != none && excess_[node] > 0; e = edges_[e].next) {
    ++work_;
    if (label_[edges_[e].to] + 1 != label_[node]) continue;
    const auto flow = static_cast<int64_t>(std::min<Excess>(excess_[node], edges_[e].capacity));
    edges_[e].capacity -= flow;
    edges_[e ^ 1].capacity += flow;
    excess_[node] -= flow;
    excess_[edges_[e].to] += flow;
  }
}

std::vector<bool> FlowNetwork::sink_side(uint32_t source, uint32_t sink) {
  source_ = source;
  sink_ = sink;
  excess_.assign(nodes(), 0);
  for (uint32_t e = first_[source]; e != none; e = edges_[e].next) {
    excess_[edges_[e].to] += edges_[e].capacity;
    edges_[e ^ 1].capacity += edges_[e].capacity;
    edges_[e].capacity = 0;
  }
  // What still waits then has no way to the sink: those that have one are on its side.
  for (bool waits = true; waits;) {
    find_labels();
    waits = false;
    for (size_t i = order_.size(); i-- > 1;) {
      waits |= excess_[order_[i]] > 0;
      discharge(order_[i]);
    }
  }
  std::vector<bool> side(nodes(), false);
  for (const uint32_t n : order_) side[n] = true;
  return side;
}

}  // namespace gradus::ir
