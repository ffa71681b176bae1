#include "ops/identity.h"

#include <algorithm>
#include <array>

#include "ops/arithmetic.h"
#include "ops/creation.h"
#include "ops/matmul.h"
#include "ops/shape.h"

namespace gradus::ops {

bool changes_nothing(const ir::Node& node, const ir::Type& x, const ir::Type& y) {
  // All of these keep the elements' order, so that types say the rest. (A transpose does not.)
  static const std::array operators{&record<Reshape>(), &record<Squeeze>(), &record<Expand>(),
                                    &record<Cast>()};
  return std::ranges::count(operators, node.op) != 0 && node.operands.size() == 1 && x == y;
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
