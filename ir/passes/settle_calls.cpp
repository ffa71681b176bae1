// `settle_calls`: makes called graphs fit to be inlined anywhere, and graphs of solvers.
#include <unordered_map>

#include "gradus/passes.h"
#include "gradus/rewrite.h"
#include "ir/passes/graph_world.h"
#include "ir/passes/solvers.h"
#include "ops/structural.h"

namespace gradus::ir {

namespace {

using Shared = std::shared_ptr<const Graph>;

// The graphs below one program, each looked at once. Calls are nested at most `deepest_call` deep,
// which the verifier holds.
class Callees {
 public:
  struct Settled {
    Shared graph;      // the graph itself where there was nothing to do
    size_t nodes = 0;  // with everything inlined; at most a little over most_nodes
  };

  // Settles the calls of the nodes. Returns the number of nodes with everything inlined.
  size_t settle(const Graph& graph, std::vector<Node>& nodes, bool& changed) {
    size_t size = 0;
    for (Node& node : nodes) {
      ++size;
      changed |= settle_solver(graph, node);
      SmallVector<Shared, 2> graphs;
      size_t inlined = 0;
      bool same = true;
      for (const ops::GraphName* named : ops::graphs_in(node)) {
        Settled s = settled(named->graph);
        same &= s.graph == named->graph;
        inlined = std::max(inlined, s.nodes);
        graphs.push_back(std::move(s.graph));
      }
      if (ops::is_call(node)) size += inlined;
      if (size > most_nodes)
        throw graph.error_at(node.where, fmt::format("calls, inlined, give more than {} nodes; the "
                                                     "graphs call one another too often",
                                                     most_nodes));
      if (same) continue;
      node.attributes = ops::with_graphs(node, graphs);
      changed = true;
    }
    return size;
  }

 private:
  Settled settled(const Shared& graph) {
    if (auto it = done_.find(graph); it != done_.end()) return it->second;
    Graph copy = *graph;
    bool changed = false;
    Settled s{graph, settle(copy, copy.stages[0].nodes, changed)};
    if (has_grad(copy)) {
      expand_grad(copy);
      changed = true;
      s.nodes = std::max(s.nodes, copy.stages[0].nodes.size());
    }
    if (changed) s.graph = std::make_shared<const Graph>(std::move(copy));
    return done_.emplace(graph, std::move(s)).first->second;
  }

  // Keeps what it has met: a graph of a solver that is settled away leaves its address to another.
  std::unordered_map<Shared, Settled> done_;
};

}  // namespace

bool has_grad(const Graph& graph) {
  for (const Stage& stage : graph.stages)
    for (const Node& node : stage.nodes)
      if (ops::is_gradient(node)) return true;
  return false;
}

void settle_calls(Graph& graph) {
  Callees callees;
  for (Stage& stage : graph.stages) {
    bool changed = false;
    callees.settle(graph, stage.nodes, changed);
  }
}

}  // namespace gradus::ir
