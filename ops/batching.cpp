#include "gradus/batching.h"

#include <algorithm>

#include "gradus/error.h"
#include "gradus/rules.h"
#include "ops/assemble.h"

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

BatchedResults batch_pointwise(const BatchedCall& c) {
  SmallVector<Value, 4> operands;
  for (size_t i = 0; i < c.operands.size(); ++i)
    operands.push_back(c.batched[i] ? c.aligned(i, c.results[0].rank()) : c.operands[i]);
  Value y = c.world.emit(c.op, c.attributes, operands)[0];
  // What was 0-d has a say in the dtype now.
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

namespace {

// One call for each index, the results stacked.
BatchedResults one_by_one(const BatchedCall& c) {
  if (!c.size.is_constant())
    throw Error(
        "{}: cannot be run for a batch of {}, a size that only a run knows; give it "
        "constant sizes",
        c.op.name, c.size.to_string());
  SmallVector<std::vector<Value>, 2> parts(c.results.size());
  for (int64_t b = 0; b < c.size.value(); ++b) {
    SmallVector<Value, 4> operands;
    for (size_t i = 0; i < c.operands.size(); ++i)
      operands.push_back(c.batched[i] ? select(c.operands[i], 0, b) : c.operands[i]);
    BatchedResults y = c.world.emit_results(c.op, c.attributes, operands, c.results.size());
    for (size_t r = 0; r < y.size(); ++r) parts[r].push_back(y[r]);
  }
  BatchedResults stacked;
  for (size_t r = 0; r < parts.size(); ++r)
    stacked.push_back(parts[r].empty()
                          ? full(c.world, c.with_batch(c.results[r].dims), 0, c.results[r].dtype)
                          : emit_all<Stack>(c.world, parts[r])[0]);
  return stacked;
}

}  // namespace

SmallVector<Value, 2> emit_batched(const BatchedCall& call) {
  if (call.op.traits.opaque)
    throw Error("{}: its function takes no batch; take derivatives of one cotangent at a time",
                call.op.name);
  if (call.op.batch)
    if (BatchedResults y = call.op.batch(call); !y.empty()) return y;
  return one_by_one(call);
}

}  // namespace gradus::ops
