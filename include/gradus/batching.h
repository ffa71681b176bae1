// Calls of operators for many operands at once.
#pragma once

#include "gradus/value.h"

#pragma GCC visibility push(default)

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

  template <class A>
  const A& attr() const {
    return attributes_as<A>(attributes);
  }
  // Operand i's rank without the added dimension.
  int own_rank(size_t i) const { return operands[i].rank() - (batched[i] ? 1 : 0); }
  // These sizes after the added one.
  Dims with_batch(const Dims& dims) const;
  // Operand i, which has the added dimension, with `rank` others: sizes of 1 where it has fewer.
  Value aligned(size_t i, int rank) const;
  // Operand i with the added dimension, also where it has it not.
  Value stretched(size_t i) const;
  // Likewise, with one dimension of size 1 where it is 0-d.
  Value rows(size_t i) const;
};

// A rule emits the call for the whole batch: its results have the added dimension in front, and for
// each index the bits of a call for that index alone.
using BatchedResults = SmallVector<Value, 2>;

// Rules that operators share: `static constexpr auto batch = batch_last_dimensions;`
// Of pointwise operators, which have it by their kind.
BatchedResults batch_pointwise(const BatchedCall& c);
// The operator works on the last dimensions and takes what is before.
BatchedResults batch_last_dimensions(const BatchedCall& c);
// The result is a reshape of the operand.
BatchedResults batch_reshape(const BatchedCall& c);
// Operand 0 and the results are samples, worked on one by one: there are more of them,
// [B, N, ..] -> [B N, ..]. Other operands are the same for the whole batch.
BatchedResults batch_samples(const BatchedCall& c);

// Of an operator without a rule: an Error that names it and says `reason`.
[[noreturn]] void refuse_batch(const BatchedCall& c, std::string_view reason);

// Emits what computes the call for each index of the added dimension; every result has it in front.
// Throws Error for an operator without a rule.
SmallVector<Value, 2> emit_batched(const BatchedCall& call);

}  // namespace gradus::ops

#pragma GCC visibility pop
