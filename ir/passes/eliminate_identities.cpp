#include "gradus/passes.h"
#include "gradus/rewrite.h"
#include "ops/identity.h"

namespace gradus::ir {

namespace {

// Whether its operands may be absent, and its results: few operators tell that from zeros. All
// others read zeros, and give a value, also where they change nothing.
bool knows_absence(const Node& node) {
  const OperatorTraits& traits = node.op->traits;
  return traits.accumulates || traits.opaque || traits.loop || traits.structural;
}

// Which values are read where an absent one is no zero.
std::vector<bool> told_from_zeros(const Graph& graph) {
  std::vector<bool> told(graph.values.size());
  for (const Stage& stage : graph.stages) {
    for (const Node& node : stage.nodes)
      if (knows_absence(node))
        for (const Operand& o : node.operands)
          if (const ValueId v = value_in(o); v != no_value) told[index_of(v)] = true;
    for (const Result& r : stage.results)
      if (r.value != no_value) told[index_of(r.value)] = true;
  }
  return told;
}

// The operand that is the node's result, where that is there; or no value.
ValueId given_again(const Graph& graph, const Node& node, FunctionRef<bool(ValueId)> is_ones) {
  if (node.operands.empty()) return no_value;
  const Type& y = graph[node.results[0]].type;
  if (const ValueId x = ops::multiplied_by_ones(node, is_ones); x != no_value && graph[x].type == y)
    return x;
  const ValueId x = value_in(node.operands[0]);
  return x != no_value && ops::changes_nothing(node, graph[x].type, y) ? x : no_value;
}

}  // namespace

void eliminate_identities(Graph& graph) {
  Substitute substitute(graph);
  const std::vector<bool> told = told_from_zeros(graph);
  std::vector<bool> ones(graph.values.size()), absent(graph.values.size());
  auto is_ones = [&](ValueId v) { return v != no_value && ones[index_of(v)]; };
  for (Stage& stage : graph.stages) {
    if (&stage != &graph.stages.front())
      for (ValueId v : stage.inputs) absent[index_of(v)] = true;
    std::erase_if(stage.nodes, [&](Node& node) {
      substitute.apply(node);
      if (ops::becomes_mul(node, graph)) return false;
      if (knows_absence(node))
        for (ValueId v : node.results) absent[index_of(v)] = true;
      if (node.results.size() != 1) return false;
      const ValueId y = node.results[0];
      const ValueId x = given_again(graph, node, is_ones);
      if (x == no_value || (absent[index_of(x)] && told[index_of(y)])) {
        ones[index_of(y)] = ops::gives_ones(node, is_ones);
        return false;
      }
      ones[index_of(y)] = ones[index_of(x)];
      substitute.replace(y, x);
      hand_name_over(graph, y, x);
      return true;
    });
    substitute.apply(stage.results);
  }
}

}  // namespace gradus::ir
