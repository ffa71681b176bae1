// Pointwise operators as ONNX nodes. Few have rules of their own, where ONNX has an operator that
// says in a word what the scalar rule says in several.
#include "fusion/rules.h"
#include "io/onnx/node_emitter.h"
#include "ops/pointwise.h"

namespace gradus::onnx {

namespace {

// x in the result's dtype through one node.
bool unary(ExportCall& c, std::string_view op, std::vector<NodeAttribute> attributes = {}) {
  c.give(c.to.node(op, {c.x(0, c.y_type().dtype)}, std::move(attributes)));
  return true;
}

bool relu(ExportCall& c) { return is_floating(c.y_type().dtype) && unary(c, "Relu"); }
// Attributes are single there: of f64 operands only those that have no more digits.
bool with_number(ExportCall& c, std::string_view op, std::string_view attribute,
                 std::string_view name) {
  double value = c.real(attribute);
  if (c.y_type().dtype == DType::f64 && static_cast<double>(single(value)) != value) return false;
  return unary(c, op, {{std::string(name), single(value)}});
}
bool leaky_relu(ExportCall& c) { return with_number(c, "LeakyRelu", "slope", "alpha"); }
bool elu(ExportCall& c) { return with_number(c, "Elu", "alpha", "alpha"); }
bool softplus(ExportCall& c) {
  // ONNX's has no threshold, beyond which Gradus gives x itself.
  return c.real("beta") == 1 && c.y_type().dtype != DType::f64 && c.real("threshold") >= 20 &&
         unary(c, "Softplus");
}
bool softsign(ExportCall& c) { return unary(c, "Softsign"); }
bool reciprocal(ExportCall& c) { return unary(c, "Reciprocal"); }
bool sign(ExportCall& c) { return unary(c, "Sign"); }
// Integral powers: the scalar rule works on bits.
bool power(ExportCall& c) {
  if (is_floating(c.y_type().dtype)) return false;
  DType wide = DType::i64;
  Wire y = c.to.node("Pow", {c.x(0, wide), c.x(1, wide)});
  c.give(c.to.cast(y, wide, c.y_type().dtype));
  return true;
}

constexpr ExportEntry own_rules[] = {
    {"relu", relu},         {"leaky_relu", leaky_relu}, {"elu", elu},   {"softplus", softplus},
    {"softsign", softsign}, {"reciprocal", reciprocal}, {"sign", sign}, {"pow", power},
};

}  // namespace

std::span<const ExportEntry> pointwise_exports() { return own_rules; }

bool export_pointwise(ExportCall& call) {
  const ir::Operator& op = *call.node.op;
  if (!op.pointwise) return false;
  const ops::PointwiseInfo& info = op.pointwise();
  SmallVector<ir::OperandType, 4> types;
  for (size_t i = 0; i < call.operands(); ++i) types.push_back(call.operand_type(i));
  ir::InferCall infer{op, types, call.node.attributes, {}, nullptr};
  DType result = call.y_type().dtype;
  Compute compute = ops::pointwise_compute(info, infer, result);
  const fusion::Rule rule = fusion::rule_of(op, compute);
  if (!rule) return false;
  NodeEmitter emitter(call.to);
  SmallVector<fusion::Emitted*, 4> operands;
  for (size_t i = 0; i < call.operands(); ++i) {
    const DType dtype = info.roles[i] == ops::Role::condition ? DType::boolean : dtype_of(compute);
    operands.push_back(emitter.operand(dtype, call.x(i, dtype)));
  }
  const Wire& y = emitter.wire(rule(emitter, operands.data(), call.node.attributes.get()));
  bool truth = info.result == ops::Result::boolean;
  call.give(call.to.cast(y, truth ? DType::boolean : dtype_of(compute), result));
  return true;
}

}  // namespace gradus::onnx
