#include "ops/identity.h"

#include <algorithm>
#include <array>

#include "ops/arithmetic.h"
#include "ops/creation.h"
#include "ops/matmul.h"
#include "ops/shape.h"
#include "ops/structural.h"

namespace gradus::ops {

bool changes_nothing(const ir::Node& node, const ir::Type& x, const ir::Type& y) {
  // All of these keep the elements' order, so that types say the rest. (A transpose does not.)
  static const std::array operators{&record<Reshape>(), &record<Squeeze>(), &record<Expand>(),
                                    &record<Cast>()};
  return std::ranges::count(operators, node.op) != 0 && node.operands.size() == 1 && x == y;
}

bool gives_ones(const ir::Node& node, FunctionRef<bool(ir::ValueId)> is_ones) {
  static const std::array views{&record<Reshape>(), &record<Squeeze>(), &record<Unsqueeze>(),
                                &record<Expand>()};
  if (const Tensor* value = constant_in(node))
    return value->numel() == 1 && value->to_doubles()[0] == 1;
  return std::ranges::count(views, node.op) != 0 && is_ones(ir::value_in(node.operands[0]));
}

ir::ValueId multiplied_by_ones(const ir::Node& node, FunctionRef<bool(ir::ValueId)> is_ones) {
  if (node.op != &record<Mul>()) return ir::no_value;
  for (size_t i : {0, 1}) {
    const ir::Operand& factor = node.operands[i];
    const auto* n = std::get_if<ir::Number>(&factor);
    const ir::ValueId v = ir::value_in(factor);
    if (n ? n->as_double() == 1 : v != ir::no_value && is_ones(v))
      return ir::value_in(node.operands[1 - i]);
  }
  return ir::no_value;
}

bool becomes_mul(ir::Node& node, const ir::Graph& graph) {
  if (node.op != &record<Matmul>() || attributes_as<Matmul::Attr>(node.attributes).transpose_b)
    return false;
  for (const ir::Operand& o : node.operands)
    if (ir::value_in(o) == ir::no_value || graph.type_of(o).type->rank() < 2) return false;
  if (graph.type_of(node.operands[0]).type->dims.back() != Dim(1)) return false;
  node.op = &record<Mul>();
  node.attributes = node.op->read({});
  return true;
}

}  // namespace gradus::ops
