// Replacing values by others while a pass rebuilds the stages.
#pragma once

#include "gradus/graph.h"

#pragma GCC visibility push(default)

namespace gradus::ir {

class Substitute {
 public:
  explicit Substitute(const Graph& graph) : to_(graph.values.size(), no_value) {}

  // From now on `by`, or what replaces that, stands where `value` stood.
  void replace(ValueId value, ValueId by) {
    GRADUS_CHECK(value != by);
    if (index_of(value) >= to_.size()) to_.resize(index_of(value) + 1, no_value);
    to_[index_of(value)] = by;
  }
  ValueId operator()(ValueId v) const {
    ValueId end = v;
    while (next(end) != no_value) end = next(end);
    // Chains are walked once: a call of a call of a call replaces its result at every level.
    while (v != end) v = std::exchange(to_[index_of(v)], end);
    return end;
  }
  void apply(Node& node) const {
    for (Operand& o : node.operands)
      if (ValueId* v = std::get_if<ValueId>(&o)) *v = (*this)(*v);
  }
  void apply(std::vector<Result>& results) const {
    for (Result& r : results) r.value = (*this)(r.value);
  }

 private:
  ValueId next(ValueId v) const {
    return v == no_value || index_of(v) >= to_.size() ? no_value : to_[index_of(v)];
  }
  mutable std::vector<ValueId> to_;
};

// The name goes with the meaning: `to` takes over the name of `from` if it has none of its own.
inline void hand_name_over(Graph& graph, ValueId from, ValueId to) {
  if (graph[to].name.empty()) graph[to].name = std::exchange(graph[from].name, {});
}

bool has_grad(const Graph& graph);

// Emits what a composition is composed of at the end of `nodes`; its results replace the node's.
void take_apart(Graph& graph, size_t stage, const Node& node, std::vector<Node>& nodes,
                Substitute& substitute);

// The nodes with their compositions taken apart (see `decompose`), in order.
std::vector<Node> decompose_nodes(Graph& graph, size_t stage, std::vector<Node> nodes,
                                  Substitute& substitute, bool keep_differentiable);

}  // namespace gradus::ir

#pragma GCC visibility pop
