// Substitution of values while a pass rebuilds stages.
#pragma once

#include "gradus/graph.h"

#pragma GCC visibility push(default)

namespace gradus::ir {

// A map from values to their replacements.
class Substitute {
 public:
  explicit Substitute(const Graph& graph) : to_(graph.values.size(), no_value) {}

  // Replaces `value` by `by`, or by the replacement of `by`. The values must differ.
  void replace(ValueId value, ValueId by) {
    GRADUS_CHECK(value != by);
    if (index_of(value) >= to_.size()) to_.resize(index_of(value) + 1, no_value);
    to_[index_of(value)] = by;
  }
  // The replacement of a value, or the value itself.
  ValueId operator()(ValueId v) const {
    ValueId end = v;
    while (next(end) != no_value) end = next(end);
    // Shortens chains of replacements, so that each is followed once: nested calls replace a result
    // at every level.
    while (v != end) v = std::exchange(to_[index_of(v)], end);
    return end;
  }
  // Replaces the operands of a node, or the values of results.
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

// Moves the name of `from` to `to`, if `to` has no name.
inline void hand_name_over(Graph& graph, ValueId from, ValueId to) {
  if (graph[to].name.empty()) graph[to].name = std::exchange(graph[from].name, {});
}

// Whether the graph has a `grad` node.
bool has_grad(const Graph& graph);

// Appends the nodes of a composition to `nodes`. Their results replace those of `node`.
void take_apart(Graph& graph, size_t stage, const Node& node, std::vector<Node>& nodes,
                Substitute& substitute);

// The compositions that `decompose_nodes` keeps: none, those with a derivative rule, or those with
// a derivative rule and a batch rule, and calls with a derivative graph.
enum class Kept : uint8_t { none, differentiable, batched };

// Returns the nodes with their compositions expanded (see `decompose`), in order.
std::vector<Node> decompose_nodes(Graph& graph, size_t stage, std::vector<Node> nodes,
                                  Substitute& substitute, Kept kept);

}  // namespace gradus::ir

#pragma GCC visibility pop
