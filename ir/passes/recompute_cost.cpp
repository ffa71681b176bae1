#include "ir/passes/recompute_cost.h"

#include <unordered_map>

#include "ops/families.h"

namespace gradus::ir {

namespace {

struct Weight {
  ops::Family (*family)();
  int64_t weight;
  bool views = false;
};

// A later line wins.
constexpr Weight weights[] = {
    {ops::shape_family, 1, true},    {ops::slicing_family, 1, true},
    {ops::window_family, 1, true},   {ops::assemble_family, 1, true},
    {ops::creation_family, 1, true}, {ops::arithmetic_family, 1},
    {ops::rounding_family, 1},       {ops::comparison_family, 1},
    {ops::reduction_family, 2},      {ops::elementary_family, 4},
    {ops::special_family, 4},        {ops::power_operators, 4},
    {ops::activation_family, 4},     {ops::normalization_family, 4},
    {ops::matmul_family, costly},    {ops::convolution_family, costly},
};

const std::unordered_map<const Operator*, Weight>& table() {
  static const auto found = [] {
    std::unordered_map<const Operator*, Weight> map;
    for (const Weight& w : weights)
      for (const Operator* op : w.family()) map.insert_or_assign(op, w);
    return map;
  }();
  return found;
}

}  // namespace

std::optional<int64_t> recompute_cost(const Graph& graph, const Node& node) {
  const auto w = table().find(node.op);
  if (w == table().end() || node.op->data_sized || node.op->traits.opaque) return std::nullopt;
  for (ValueId y : node.results) {
    const Type& type = graph[y].type;
    const bool integral = !type.is_floating() && type.dtype != DType::boolean;
    if (!type.is_tensor() || (integral && node.op->pointwise)) return std::nullopt;
  }
  return w->second.weight;
}

bool may_be_view(const Operator* op) {
  const auto w = table().find(op);
  return w != table().end() && w->second.views;
}

}  // namespace gradus::ir
