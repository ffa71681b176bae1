#include "ops/sorting.h"

#include <algorithm>

#include "gradus/rules.h"
#include "ops/bind_work.h"
#include "ops/declared.h"
#include "ops/extremum.h"
#include "ops/families.h"
#include "ops/operands.h"

namespace gradus::ops {

namespace {

void bind_sort(BindCall& call, int64_t dim, bool descending) {
  const Layout& x = call.in[0];
  const int rank = x.rank();
  work::Sort p;
  p.rows = 1;
  p.x.dtype = x.dtype;
  p.descending = descending;
  for (int64_t d = 0; d < rank; ++d) {
    if (d == dim) continue;
    p.x.shape.push_back(x.shape[d]);
    p.x.strides.push_back(x.strides[d]);
    p.rows *= x.shape[d];
    if (d > dim) p.inner *= x.shape[d];
  }
  const int64_t length = rank == 0 ? 1 : x.shape[dim];
  p.kept = rank == 0 ? 1 : call.out[0].shape[dim];
  if (p.kept < 0 || p.kept > length)
    call.fail("'k' is {}, dimension {} of 'x' {} has {} elements", p.kept, dim, to_string(x.shape),
              length);
  p.x.shape.push_back(length);
  p.x.strides.push_back(rank == 0 ? 1 : x.strides[dim]);
  p.step = p.inner;
  p.outer_stride = p.inner * p.kept;
  if (p.rows == 0 || p.kept == 0) p.rows = 0;
  p.inner = std::max<int64_t>(p.inner, 1);
  call.set_work(std::move(p));
}

}  // namespace

void Sort::infer(InferCall& call) {
  const Type& x = call.tensor(0);
  call.out.push_back(x);
  call.out.emplace_back(DType::i64, x.dims, x.device);
}
void Sort::bind(BindCall& call, const Attr& a) { bind_sort(call, a.dim, a.descending); }
Value Sort::dx(VjpCall& d, const Attr& a) { return given_back(d, a.dim); }

void Topk::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  Dims dims = x.dims;
  Dim n = x.rank() == 0 ? Dim(1) : x.dims[a.dim];
  if (a.k.is_constant() && (a.k.value() < 0 || (n.is_constant() && a.k.value() > n.value())))
    call.fail("'k' is {}; it must be from 0 to the size of dimension {} of 'x', {}", a.k.value(),
              a.dim, to_string(x));
  if (x.rank() > 0) dims[a.dim] = a.k;
  if (x.rank() == 0 && a.k != Dim(1))
    call.fail("'k' is {}; of a 0-d tensor it can only be 1", a.k.to_string());
  call.out.emplace_back(x.dtype, dims, x.device);
  call.out.emplace_back(DType::i64, std::move(dims), x.device);
}
void Topk::bind(BindCall& call, const Attr& a) { bind_sort(call, a.dim, a.largest); }
Value Topk::dx(VjpCall& d, const Attr& a) { return given_back(d, a.dim); }

void Argsort::compose(ComposeCall& c, const Attr& a) {
  SmallVector<Value, 1> in{tensor_operand(c, 0)};
  c.give(emit_all<Sort>(c.world, in, {.dim = a.dim, .descending = a.descending})[1]);
}

void Kthvalue::compose(ComposeCall& c, const Attr& a) {
  const Value& x = tensor_operand(c, 0);
  if (a.k.is_constant() && a.k.value() < 1) c.fail("'k' is {}; it counts from 1", a.k.value());
  SmallVector<Value, 1> in{x};
  auto least = emit_all<Topk>(c.world, in, {.k = a.k, .dim = a.dim, .largest = false});
  for (const Value& v : least) c.give(x.rank() == 0 ? v : select(v, a.dim, a.k - 1));
}

void MedianDim::compose(ComposeCall& c, const Attr& a) {
  const Value& x = tensor_operand(c, 0);
  if (x.rank() == 0) {
    Value place = emit<ArgMax>(x);
    c.give(x);
    c.give(place);
    return;
  }
  const Dim& n = x.dims()[a.dim];
  if (n == Dim(0))
    c.fail("dimension {} of 'x' {} is empty; it has no median", a.dim, to_string(x.type));
  const Dim half = floor_div(n + 1, 2);
  SmallVector<Value, 1> in{x};
  Value least = emit_all<Topk>(c.world, in, {.k = half, .dim = a.dim, .largest = false})[1];
  Value place = unsqueeze(select(least, a.dim, half - 1), a.dim);
  if (x.type.is_floating()) {
    Value bad = cast(emit<Isnan>(x), DType::u8);
    Value first = emit<ArgMax>({bad}, {.dim = a.dim, .keepdim = true});
    Value any = emit<Any>({bad}, {.dim = a.dim, .keepdim = true});
    place = where(any, first, place);
  }
  Value value = gather(x, place, a.dim);
  c.give(a.keepdim ? value : squeeze(value, a.dim));
  c.give(a.keepdim ? place : squeeze(place, a.dim));
}

Family sorting_family() { return fold<SortingOperators>(); }

}  // namespace gradus::ops
