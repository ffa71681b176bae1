// Minimal cuts of a network, by maximal flows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gradus::ir {

// A directed network with capacities. Dinic's algorithm (Y. Dinitz, 1970), without recursion: paths
// are as long as programs.
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

 private:
  static constexpr uint32_t none = UINT32_MAX;
  struct Edge {
    uint32_t to;
    uint32_t next;     // of the same node; none: the last
    int64_t capacity;  // what is left of it
  };
  bool find_levels(uint32_t source, uint32_t sink);
  void push_flows(uint32_t source, uint32_t sink);
  // Edges lie in pairs: e ^ 1 goes back.
  std::vector<Edge> edges_;
  std::vector<uint32_t> first_, level_, at_;  // by node
};

}  // namespace gradus::ir
