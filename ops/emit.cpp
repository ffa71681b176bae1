#include "gradus/error.h"
#include "gradus/registry.h"
#include "gradus/rules.h"
#include "ops/by_name.h"

namespace gradus::ops {

const Operator& record_of(const void* key, std::string_view who) {
  if (const Operator* op = find_type(key)) return *op;
  throw InternalError(fmt::format("a rule names an operator that no family lists: {}", who));
}

Value emit(const Operator& op, Attributes attributes, std::span<const Value> operands) {
  for (const Value& v : operands)
    if (v.world) return v.world->emit(op, std::move(attributes), operands)[0];
  throw Error("'{}' of numbers alone: one operand has to be a tensor", op.name);
}

Value emit(const Operator& op, std::span<const Value> operands) {
  return emit(op, op.read({}), operands);
}

Value emit_again(VjpCall& d) { return emit(d.op, d.attributes, std::array{d.dy()}); }

SmallVector<Value, 2> emit_all(World& world, std::string_view name, std::span<const Value> operands,
                               const LiteralList& attributes) {
  const Operator* op = find(name);
  if (!op) throw InternalError(fmt::format("there is no operator '{}' to emit", name));
  return world.emit(*op, op->read(attributes), operands);
}

Value emit(std::string_view name, std::initializer_list<Value> operands,
           const LiteralList& attributes) {
  const Operator* op = find(name);
  if (!op) throw InternalError(fmt::format("there is no operator '{}' to emit", name));
  return emit(*op, op->read(attributes), {operands.begin(), operands.size()});
}
Value unary(std::string_view op, const Value& x) { return emit(op, {x}); }
Value binary(std::string_view op, const Value& a, const Value& b) { return emit(op, {a, b}); }

}  // namespace gradus::ops
