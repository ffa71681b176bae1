#include "gradus/passes.h"
#include "gradus/rewrite.h"
#include "ops/identity.h"

namespace gradus::ir {

void eliminate_identities(Graph& graph) {
  Substitute substitute(graph);
  for (Stage& stage : graph.stages) {
    std::erase_if(stage.nodes, [&](Node& node) {
      substitute.apply(node);
      if (ops::becomes_mul(node, graph)) return false;
      if (node.operands.empty() || node.results.size() != 1) return false;
      const ValueId x = value_in(node.operands[0]), y = node.results[0];
      if (x == no_value || !ops::changes_nothing(node, graph[x].type, graph[y].type)) return false;
      substitute.replace(y, x);
      hand_name_over(graph, y, x);
      return true;
    });
    substitute.apply(stage.results);
  }
}

}  // namespace gradus::ir
