// Calls of operators for many operands at once.
#pragma once

#include "ops/value.h"

namespace gradus::ops {

// A call whose operands may have one more dimension than it was written for: in front, of `size`.
struct BatchedCall {
  const Operator& op;
  const Attributes& attributes;
  World& world;
  std::span<const Value> operands;
  std::span<const bool> batched;  // which operands have the dimension; at least one
  std::span<const Type> results;  // what the call gives without it
  const Dim& size;
};

// Emits what computes the call for each index of the added dimension; every result has it in front.
// An operator that has no rule here is called once for each index, where `size` is a constant;
// otherwise, and for opaque operators, an Error that names the operator.
SmallVector<Value, 2> emit_batched(const BatchedCall& call);

}  // namespace gradus::ops
