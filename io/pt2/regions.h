// Inner graphs of exported programs: those that run where they stand, loops and branches.
#pragma once

#include "io/pt2/importer.h"

namespace gradus::pt2 {

class Regions {
 public:
  explicit Regions(Importer& importer) : in_(importer) {}
  // Runs a node that has inner graphs. False where it is none that is known.
  bool run(const Node& node, Scope& scope);

 private:
  bool run_in_place(const Node& node, Scope& scope);
  // Runs an inner graph on these tensors.
  std::vector<TensorPtr> run_graph(const Subgraph& graph, std::vector<TensorPtr> inputs);
  // Within it no derivative passes.
  std::vector<TensorPtr> run_without_grad(const Subgraph& graph, std::vector<TensorPtr> inputs);
  size_t add_operands(const Node& node, size_t i, std::vector<Value>& operands) const;
  void run_scan(const Node& node, size_t lists, Scope& scope);
  void run_while(const Node& node, Scope& scope);
  void run_branch(const Node& node, Scope& scope);
  ops::GraphName graph_of(const Subgraph& region) const;
  void bind_all(const Node& node, std::span<const Value> results, Scope& scope);

  Importer& in_;
};

}  // namespace gradus::pt2
