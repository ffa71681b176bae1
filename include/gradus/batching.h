// Batch rules: calls of an operator for a whole batch of operands.
#pragma once

#include "gradus/value.h"

#pragma GCC visibility push(default)

namespace gradus::ops {

// A call whose operands may have one additional dimension, the first one, of size `size`.
struct BatchedCall {
  const Operator& op;
  const Attributes& attributes;
  World& world;
  std::span<const Value> operands;
  std::span<const bool> batched;  // operands that have the dimension; at least one
  std::span<const Type> results;  // the types of the call's results without the dimension
  const Dim& size;

  template <class A>
  const A& attr() const {
    return attributes_as<A>(attributes);
  }
  // The rank of operand i without the additional dimension.
  int own_rank(size_t i) const { return operands[i].rank() - (batched[i] ? 1 : 0); }
  // Returns these sizes after the additional one.
  Dims with_batch(const Dims& dims) const;
  // Returns operand i, which must have the additional dimension, with `rank` further dimensions.
  // Missing dimensions have size 1.
  Value aligned(size_t i, int rank) const;
  // Returns operand i with the additional dimension, expanded if the operand does not have it.
  Value stretched(size_t i) const;
  // Like `stretched`, with a dimension of size 1 if the operand is otherwise 0-d.
  Value rows(size_t i) const;
};

// A rule emits the call for the whole batch. Its results have the additional dimension first. For
// each index, they are bit-identical to a call for that index.
using BatchedResults = SmallVector<Value, 2>;

// Rules that operators share: `static constexpr auto batch = batch_last_dimensions;`

// The rule of pointwise operators, which all of them have.
BatchedResults batch_pointwise(const BatchedCall& c);
// For operators that work on the last dimensions and accept any dimensions before them.
BatchedResults batch_last_dimensions(const BatchedCall& c);
// For operators whose result is a reshape of the operand.
BatchedResults batch_reshape(const BatchedCall& c);
// For operators whose operand 0 and results consist of independent samples: the batch is joined
// with the samples, [B, N, ..] -> [B N, ..]. The other operands must be the same for the whole
// batch.
BatchedResults batch_samples(const BatchedCall& c);

// Throws the Error of an operator without a rule. The message names the operator and states
// `reason`.
[[noreturn]] void refuse_batch(const BatchedCall& c, std::string_view reason);

// Emits the call for each index of the additional dimension; all results have this dimension first.
// Throws Error for an operator without a rule.
SmallVector<Value, 2> emit_batched(const BatchedCall& call);

}  // namespace gradus::ops

#pragma GCC visibility pop
