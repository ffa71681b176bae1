// Pointwise operators as ONNX nodes. Few have rules of their own, where ONNX has an operator that
// says in a word what the scalar rule says in several.
#include "fusion/rules.h"
#include "gradus/pointwise.h"
#include "io/onnx/node_emitter.h"

namespace gradus::onnx {

namespace {

// x in the result's dtype through one node.
Wires through(ExportCall& c, std::vector<NodeAttribute> attributes) {
  return {c.to.node(c.onnx, {c.x(0, c.y_type().dtype)}, std::move(attributes))};
}
Wires plain(ExportCall& c) { return through(c, {}); }

Wires relu(ExportCall& c) { return is_floating(c.y_type().dtype) ? plain(c) : Wires(); }
// Whose only attribute is called alpha there.
Wires with_alpha(ExportCall& c) {
  double value = c.real(c.node.op->describe()[0].name);
  return c.exact(value) ? through(c, {{"alpha", single(value)}}) : Wires();
}
// ONNX's has no threshold, beyond which Gradus gives x itself.
Wires softplus(ExportCall& c) {
  const bool same = c.real("beta") == 1 && c.real("threshold") >= 20;
  return same && c.y_type().dtype != DType::f64 ? plain(c) : Wires();
}
// Integral powers: the scalar rule works on bits.
Wires power(ExportCall& c) {
  if (is_floating(c.y_type().dtype)) return {};
  DType wide = DType::i64;
  Wire y = c.to.node(c.onnx, {c.x(0, wide), c.x(1, wide)});
  return {c.to.cast(y, wide, c.y_type().dtype)};
}

// Of bools; integers have bits, for which the operator set has no nodes.
Wires logic(ExportCall& c) {
  if (c.y_type().dtype != DType::boolean) return {};
  return {c.to.node(c.onnx, {c.x(0, DType::boolean), c.x(1, DType::boolean)})};
}

constexpr ExportEntry own_rules[] = {
    {"relu", relu, "Relu"},          {"leaky_relu", with_alpha, "LeakyRelu"},
    {"elu", with_alpha, "Elu"},      {"softplus", softplus, "Softplus"},
    {"softsign", plain, "Softsign"}, {"reciprocal", plain, "Reciprocal"},
    {"sign", plain, "Sign"},         {"pow", power, "Pow"},
    {"bitwise_and", logic, "And"},   {"bitwise_or", logic, "Or"},
    {"bitwise_xor", logic, "Xor"},
};

}  // namespace

constinit const ExportRules pointwise_exports = own_rules;

Wires export_pointwise(ExportCall& call) {
  const ir::Operator& op = *call.node.op;
  if (!op.pointwise) return {};
  const ops::PointwiseInfo& info = op.pointwise();
  SmallVector<ir::OperandType, 4> types;
  for (size_t i = 0; i < call.operands(); ++i) types.push_back(call.operand_type(i));
  ir::InferCall infer{op, types, call.node.attributes, {}, nullptr};
  DType result = call.y_type().dtype;
  Compute compute = ops::pointwise_compute(info, infer, result);
  const fusion::Rule rule = fusion::rule_of(op, compute);
  if (!rule) return {};
  NodeEmitter emitter(call.to);
  SmallVector<fusion::Emitted*, 4> operands;
  for (size_t i = 0; i < call.operands(); ++i) {
    const DType dtype = info.roles[i] == ops::Role::condition ? DType::boolean : dtype_of(compute);
    operands.push_back(emitter.operand(dtype, call.x(i, dtype)));
  }
  const Wire& y = emitter.wire(rule(emitter, operands.data(), call.node.attributes.get()));
  bool truth = info.result == ops::Result::boolean;
  return {call.to.cast(y, truth ? DType::boolean : dtype_of(compute), result)};
}

}  // namespace gradus::onnx
