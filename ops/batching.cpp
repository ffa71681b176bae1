#include "gradus/batching.h"

#include <algorithm>

#include "gradus/error.h"
#include "gradus/pointwise.h"
#include "gradus/rules.h"

namespace gradus::ops {

Dims BatchedCall::with_batch(const Dims& dims) const {
  Dims all{size};
  all.append(dims.begin(), dims.end());
  return all;
}

Value BatchedCall::aligned(size_t i, int rank) const {
  const Value& x = operands[i];
  const int own = x.rank() - 1;
  Dims dims{size};
  for (int d = own; d < rank; ++d) dims.push_back(1);
  dims.append(x.dims().begin() + 1, x.dims().end());
  return reshape(x, dims);
}

Value BatchedCall::stretched(size_t i) const {
  const Value& x = operands[i];
  return batched[i] || !x.is_tensor() ? x : expand(x, with_batch(x.dims()));
}

Value BatchedCall::rows(size_t i) const {
  return operands[i].is_tensor() && own_rank(i) == 0 ? reshape(stretched(i), {size, 1})
                                                     : stretched(i);
}

namespace {

// What a pointwise call computes in, for one index.
DType computed_dtype(const BatchedCall& c) {
  SmallVector<Type, 4> types;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    types.push_back(c.operands[i].type);
    if (c.batched[i]) types.back().dims.erase(types.back().dims.begin());
  }
  SmallVector<ir::OperandType, 4> operands;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    operands.push_back(c.operands[i].operand_type());
    if (c.operands[i].is_tensor()) operands.back().type = &types[i];
  }
  const InferCall call{c.op, operands, c.attributes, {}, nullptr};
  return dtype_of(pointwise_compute(c.op.pointwise(), call, c.results[0].dtype));
}

// The operands of a pointwise call that decide its dtype.
SmallVector<size_t, 4> deciding_operands(const BatchedCall& c) {
  SmallVector<size_t, 4> found;
  for (size_t i = 0; i < c.operands.size(); ++i)
    if (c.operands[i].is_tensor() && c.op.pointwise().roles[i] == Role::value) found.push_back(i);
  return found;
}

}  // namespace

// What is 0-d for one index, and not for the batch, has another say in the dtype then: operands of
// several dtypes are brought to the one that the call computes in.
BatchedResults batch_pointwise(const BatchedCall& c) {
  SmallVector<Value, 4> operands;
  for (size_t i = 0; i < c.operands.size(); ++i)
    operands.push_back(c.batched[i] ? c.aligned(i, c.results[0].rank()) : c.operands[i]);
  const auto deciding = deciding_operands(c);
  if (std::any_of(deciding.begin(), deciding.end(),
                  [&](size_t i) { return operands[i].dtype() != operands[deciding[0]].dtype(); }))
    for (size_t i : deciding) operands[i] = cast(operands[i], computed_dtype(c));
  Value y = c.world.emit(c.op, c.attributes, operands)[0];
  return {cast(y, c.results[0].dtype)};
}

BatchedResults batch_last_dimensions(const BatchedCall& c) {
  SmallVector<Value, 4> operands;
  for (size_t i = 0; i < c.operands.size(); ++i) operands.push_back(c.stretched(i));
  return c.world.emit(c.op, c.attributes, operands);
}

BatchedResults batch_reshape(const BatchedCall& c) {
  return {reshape(c.operands[0], c.with_batch(c.results[0].dims))};
}

BatchedResults batch_samples(const BatchedCall& c) {
  const Value x = c.stretched(0);
  Dims longer(x.dims().begin() + 1, x.dims().end());
  longer[0] = c.size * longer[0];
  SmallVector<Value, 4> operands(c.operands);
  operands[0] = reshape(x, longer);
  BatchedResults results = c.world.emit(c.op, c.attributes, operands);
  for (size_t r = 0; r < results.size(); ++r)
    results[r] = reshape(results[r], c.with_batch(c.results[r].dims));
  return results;
}

void refuse_batch(const BatchedCall& c, std::string_view reason) {
  throw Error("{}: takes no batch: {}", c.op.name, reason);
}

SmallVector<Value, 2> emit_batched(const BatchedCall& call) {
  if (call.op.traits.opaque)
    throw Error("{}: its function takes no batch; take derivatives of one cotangent at a time",
                call.op.name);
  GRADUS_CHECK(call.op.batch);
  return call.op.batch(call);
}

}  // namespace gradus::ops
