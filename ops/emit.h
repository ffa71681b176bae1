// Operators named by their types: emit<Exp>(x).
//
// A rule needs of an operator that it emits no more than the declaration. In the tree
// ops/declared.h has those of other families; who gives attributes includes the family's header. A
// rule of one's own names its own operators so, and those of Gradus by ops/rules.h, or as
// find("exp") of ops/registry.h.
#pragma once

#include "ops/value.h"

#pragma GCC visibility push(default)

namespace gradus::ops {

// Its address stands for the struct: the record has it, and rules find the record by it.
template <class Op>
inline char type_key = 0;

// The table's record with this key. An InternalError, which shows `who`, if there is none: no
// family lists the operator, or it is to be registered and was not.
const Operator& record_of(const void* key, std::string_view who);

// The record of an operator, of which the declaration is enough: the table holds it, and only the
// file of its family makes it.
template <class Op>
const Operator& record() {
  static const Operator& found = record_of(&type_key<Op>, __PRETTY_FUNCTION__);
  return found;
}

// Emits an operator in the world of its operands, of which one is a tensor; its first result.
Value emit(const Operator& op, Attributes attributes, std::span<const Value> operands);
Value emit(const Operator& op, std::span<const Value> operands);  // with all attributes' defaults

// The gradient of an operator that is its own adjoint: the same call, of the cotangent.
Value emit_again(VjpCall& d);

// emit<Exp>(x), emit<Hypot>(x, y)
template <class Op>
Value emit(const Value& x) {
  return emit(record<Op>(), {&x, 1});
}
template <class Op>
Value emit(const Value& x, const Value& y) {
  return emit(record<Op>(), std::array{x, y});
}
// emit<Where>({condition, x, y})
template <class Op>
Value emit(std::initializer_list<Value> operands) {
  return emit(record<Op>(), {operands.begin(), operands.size()});
}
// emit<Sum>({x}, {.dim = dims, .keepdim = true})
template <class Op>
Value emit(std::initializer_list<Value> operands, typename Op::Attr attributes) {
  return emit(record<Op>(), make_attributes(std::move(attributes)),
              {operands.begin(), operands.size()});
}

// The same in a world that is named, since there may be no operand to take it from: all results.
template <class Op>
SmallVector<Value, 2> emit_all(World& world, std::span<const Value> operands) {
  return world.emit(record<Op>(), record<Op>().read({}), operands);
}
template <class Op>
SmallVector<Value, 2> emit_all(World& world, std::span<const Value> operands,
                               typename Op::Attr attributes) {
  return world.emit(record<Op>(), make_attributes(std::move(attributes)), operands);
}

}  // namespace gradus::ops

#pragma GCC visibility pop
