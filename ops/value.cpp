#include "gradus/value.h"

#include "gradus/registry.h"
#include "gradus/rules.h"

namespace gradus::ops {

std::optional<double> Value::constant() const {
  if (const auto* n = std::get_if<ir::Number>(&operand)) return n->as_double();
  return std::nullopt;
}

ir::OperandType Value::operand_type() const {
  ir::OperandType t;
  if (is_number()) {
    t.kind = ir::OperandType::Kind::number;
    const auto* n = std::get_if<ir::Number>(&operand);
    t.category = n ? n->category : Category::integral;
  } else if (world) {
    t.kind = ir::OperandType::Kind::tensor;
    t.type = &type;
  }
  return t;
}

Value VjpCall::dy(size_t i) {
  return cotangents[i].defined() ? cotangents[i] : zeros_of(world, results[i].type);
}

Value TypeWorld::input(Type type) {
  Value v;
  v.world = this;
  v.type = std::move(type);
  return v;
}

std::optional<bool> World::truth(const Value&) { return std::nullopt; }
std::shared_ptr<void> World::enter_step(std::string_view, size_t) { return nullptr; }

SmallVector<Value, 2> World::emit_results(const Operator& op, Attributes attributes,
                                          std::span<const Value> operands, size_t results) {
  auto values = emit(op, std::move(attributes), operands);
  if (values.size() != results)
    throw Error("{}: its handle cannot be had here: it stands in a program that is compiled",
                op.name);
  return values;
}

SmallVector<Value, 2> TypeWorld::emit(const Operator& op, Attributes attributes,
                                      std::span<const Value> operands) {
  return emit_results(op, std::move(attributes), operands, ir::any_results);
}

SmallVector<Value, 2> TypeWorld::emit_results(const Operator& op, Attributes attributes,
                                              std::span<const Value> operands, size_t results) {
  SmallVector<ir::OperandType, 4> types;
  for (const Value& v : operands) types.push_back(v.operand_type());
  SmallVector<Value, 2> values;
  for (Type& t : infer_part(op, types, attributes, equalities_, results))
    values.push_back(input(std::move(t)));
  return values;
}

void infer_by_composing(ir::InferCall& call) {
  TypeWorld world(call.equalities);
  SmallVector<Value, 4> operands;
  for (size_t i = 0; i < call.operands(); ++i) {
    if (call.is_number(i)) {
      Category c = call.in[i].category;
      operands.push_back(c == Category::floating ? Value::number(1.0) : Value::number(int64_t{1}));
    } else if (call.given(i)) {
      operands.push_back(world.input(call.tensor(i)));
    } else {
      operands.emplace_back();
    }
  }
  ComposeCall compose{call.op, world, operands, call.attributes, {}};
  try {
    call.op.compose(compose);
  } catch (const Error& e) {
    std::string prefix = std::string(call.op.name) + ": ";
    if (e.bare().starts_with(prefix)) throw;
    throw Error(prefix + e.bare());
  }
  for (const Value& v : compose.results) call.out.push_back(v.type);
}

}  // namespace gradus::ops
