// Minimal cuts of a network, by maximal flows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gradus::ir {

// A directed network with capacities. Flow waits at nodes (A. Karzanov's preflow, 1974), and labels
// are found anew when all of it went as far towards the sink as they let it (A. Goldberg and R.
// Tarjan, 1988). So what goes along one path moves at once, from wherever it started: the paths of
// a deep program are as long as it is, and have as many beginnings.
class FlowNetwork {
 public:
  // An edge of so much is in no minimal cut, if there is a cut without such edges. All other
  // capacities together must be less.
  static constexpr int64_t unlimited = int64_t{1} << 61;

  uint32_t add_node();
  void add_edge(uint32_t from, uint32_t to, int64_t capacity);  // capacity >= 0
  size_t nodes() const { return first_.size(); }

  // Given   a source and a sink; called once
  // Result  by node, whether it is on the sink's side of a minimal cut: of all, the one with the
  //         fewest nodes there
  std::vector<bool> sink_side(uint32_t source, uint32_t sink);
  // How many edges that looked at.
  size_t work() const { return work_; }

 private:
  static constexpr uint32_t none = UINT32_MAX;
  struct Edge {
    uint32_t to;
    uint32_t next;     // of the same node; none: the last
    int64_t capacity;  // what is left of it
  };
  __extension__ using Excess = __int128;  // many unlimited edges may lead to a node
  void find_labels();
  void discharge(uint32_t node);
  // Edges lie in pairs: e ^ 1 goes back.
  std::vector<Edge> edges_;
  std::vector<uint32_t> first_;  // by node

  uint32_t source_ = none, sink_ = none;
  // By node: how many edges it is from the sink (nodes() where there is no way), and what came in
  // and has not gone out.
  std::vector<uint32_t> label_;
  std::vector<Excess> excess_;
  std::vector<uint32_t> order_;  // those with a way to the sink, nearest first
  size_t work_ = 0;
};

}  // namespace gradus::ir
