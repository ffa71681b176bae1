#include "gradus/dimension.h"

#include "gradus/rules.h"

namespace gradus::ops {

void check_dimension(const Operator& op, int64_t dim, int rank) {
  const int n = nameable(rank);
  if (dim < -n || dim >= n)
    throw Error("{}: dimension {} is out of range for a tensor of rank {} (from {} to {})", op.name,
                dim, rank, -n, n - 1);
}

void check_least_rank(const Operator& op, const Type& x, int least) {
  if (x.rank() < least)
    throw Error("{}: operand 'x' is {}; it needs at least {}", op.name, to_string(x),
                least == 1 ? "one dimension" : "two dimensions");
}

void refuse_repeated(const InferCall& call, const Ints& dims) {
  for (auto d = dims.begin(); d != dims.end(); ++d)
    if (std::find(dims.begin(), d, *d) != d)
      call.fail("dimension {} is listed twice in 'dims'", *d);
}

Type resized(Type x, int64_t dim, const Dim& size) {
  x.dims[dim] = size;
  return x;
}

BatchedResults batch_stretched(const BatchedCall& c, Attributes attributes) {
  SmallVector<Value, 4> operands;
  for (size_t i = 0; i < c.operands.size(); ++i) operands.push_back(c.rows(i));
  BatchedResults results = c.world.emit(c.op, std::move(attributes), operands);
  for (size_t r = 0; r < results.size(); ++r)
    results[r] = reshape(results[r], c.with_batch(c.results[r].dims));
  return results;
}

}  // namespace gradus::ops
