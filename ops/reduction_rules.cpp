#include "ops/reduction_rules.h"

#include <algorithm>
#include <numeric>

#include "gradus/rules.h"
#include "ops/bind_work.h"

namespace gradus::ops {

Ints reduced_dims(const std::optional<Ints>& dim, int rank) {
  if (rank == 0) return {};  // dimension 0 of a 0-d tensor is no dimension
  Ints dims = dim.value_or(Ints());
  if (dims.empty()) {
    dims.resize(static_cast<size_t>(rank));
    std::iota(dims.begin(), dims.end(), 0);
  }
  std::sort(dims.begin(), dims.end());
  return dims;
}

Dims reduced_shape(const Dims& shape, const Ints& dims, bool keepdim) {
  Dims out;
  for (size_t d = 0; d < shape.size(); ++d) {
    bool reduced = std::binary_search(dims.begin(), dims.end(), static_cast<int64_t>(d));
    if (!reduced)
      out.push_back(shape[d]);
    else if (keepdim)
      out.push_back(1);
  }
  return out;
}

void infer_reduction(ir::InferCall& call, const std::optional<Ints>& dim, bool keepdim,
                     DType result) {
  const ir::Type& x = call.tensor(0);
  Ints named = dim.value_or(Ints());
  std::sort(named.begin(), named.end());
  if (auto twice = std::adjacent_find(named.begin(), named.end()); twice != named.end())
    call.fail("dimension {} is given twice in 'dim'; name each dimension once", *twice);
  Ints dims = reduced_dims(dim, x.rank());
  call.out.emplace_back(result, reduced_shape(x.dims, dims, keepdim), x.device);
}

void bind_reduction(BindCall& call, work::Reducer reducer, const Ints& dims) {
  call.set_work(work::reduce(reducer, call.in[0], dims, call.out[0].dtype));
}

void refuse_empty(const ir::InferCall& call, const Dims& shape, const Ints& dims) {
  for (int64_t d : dims)
    if (shape[static_cast<size_t>(d)] == Dim(0))
      call.fail("dimension {} of 'x', whose shape is {}, has no elements to choose from", d,
                to_string(shape));
}

void refuse_empty(const BindCall& call, const Layout& in, const Ints& dims) {
  for (int64_t d : dims)
    if (in.shape[static_cast<size_t>(d)] == 0)
      call.fail("dimension {} of 'x', whose shape is {}, has no elements to choose from", d,
                to_string(in.shape));
}

Dim reduced_count(const Dims& shape, const Ints& dims) {
  Dim n = 1;
  for (int64_t d : dims) n = n * shape[static_cast<size_t>(d)];
  return n;
}

Value over_count(const Value& total, const Dim& n) {
  if (n.is_constant() && n.value() == 0) return total + std::numeric_limits<double>::quiet_NaN();
  return total / n;
}

Value widened(const Value& x) { return cast(x, dtype_of(compute_of(x.dtype()))); }

}  // namespace gradus::ops
