// Emitting operators by their names, as importers do: theirs come from files. Rules name types
// instead (gradus/rules.h), which the compiler knows.
#pragma once

#include "gradus/value.h"

namespace gradus::ops {

// Emits the operator of that name in `world` and returns its results. An InternalError where there
// is none.
SmallVector<Value, 2> emit_all(World& world, std::string_view op, std::span<const Value> operands,
                               const LiteralList& attributes = {});
// Its first result, in the world of the operands, of which one is a tensor.
Value emit(std::string_view op, std::initializer_list<Value> operands,
           const LiteralList& attributes = {});
Value unary(std::string_view op, const Value& x);
Value binary(std::string_view op, const Value& a, const Value& b);

}  // namespace gradus::ops
