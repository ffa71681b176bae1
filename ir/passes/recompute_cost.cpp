#include "ir/passes/recompute_cost.h"

namespace gradus::ir {

std::optional<int64_t> recompute_cost(const Graph& graph, const Node& node) {
  const Operator& op = *node.op;
  if (op.recompute_cost == again::never || op.data_sized || op.traits.opaque) return std::nullopt;
  for (ValueId y : node.results) {
    const Type& type = graph[y].type;
    const bool integral = !type.is_floating() && type.dtype != DType::boolean;
    if (!type.is_tensor() || (integral && op.pointwise)) return std::nullopt;
  }
  return op.recompute_cost;
}

}  // namespace gradus::ir
