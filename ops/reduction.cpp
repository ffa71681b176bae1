#include "ops/reduction.h"

#include "gradus/rules.h"
#include "ops/declared.h"
#include "ops/extremum.h"
#include "ops/families.h"
#include "ops/scan.h"
#include "ops/statistics.h"

namespace gradus::ops {

namespace {

DType sum_dtype(DType x) { return is_floating(x) ? x : DType::i64; }

}  // namespace

void Sum::infer(InferCall& call, const Attr& a) {
  infer_reduction(call, a, sum_dtype(call.tensor(0).dtype));
}
Value Sum::dx(VjpCall& d, const Attr& a) {
  const Type& x = d.x_type();
  Value dy = restore_dims(d.dy(), reduced_dims(a, x.rank()), a.keepdim, x.rank());
  return expand(dy, x.dims);
}

void Mean::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  if (!x.is_floating())
    call.fail("'x' is {}; a mean takes a floating dtype, cast it first", to_string(x));
  infer_reduction(call, a, x.dtype);
}
void Mean::compose(ComposeCall& c, const Attr& a) {
  const Value& x = c.x();
  Ints dims = reduced_dims(a, x.rank());
  Value total = sum(widened(x), dims, a.keepdim);
  Value mean = over_count(total, reduced_count(x.dims(), dims));
  c.give(cast(mean, x.dtype()));
}

void Prod::infer(InferCall& call, const Attr& a) {
  infer_reduction(call, a, sum_dtype(call.tensor(0).dtype));
}
Value Prod::dx(VjpCall& d, const Attr& a) {
  const Type& type = d.x_type();
  Ints dims = reduced_dims(a, type.rank());
  Value dy = restore_dims(d.dy(), dims, a.keepdim, type.rank());
  if (type.rank() == 0) return dy;
  // Over several dimensions: as one row.
  Value x = widened(d.x());
  int64_t dim = a.dim ? *a.dim : 0;
  if (!a.dim) x = reshape(x, {numel(type.dims)});
  auto others = [&](bool after) {
    return emit<CumProd>({x}, {.dim = dim, .exclusive = true, .reverse = after});
  };
  Value before = others(false), after = others(true);
  Value rest = reshape(before * after, type.dims);
  return dy * rest;
}

void AnyExtremum::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  infer_reduction(call, a, x.dtype);
  if (!a.allow_empty) refuse_empty(call, x.dims, reduced_dims(a, x.rank()));
}
// The divisor is counted in f32 at least.
Value AnyExtremum::dx(VjpCall& d, const Attr& a) {
  const Value& x = d.x();
  Ints dims = reduced_dims(a, x.rank());
  Value y = restore_dims(d.y(), dims, a.keepdim, x.rank());
  Value dy = widened(restore_dims(d.dy(), dims, a.keepdim, x.rank()));
  Value mask = cast(eq(x, y), dy.dtype());
  Value count = sum(mask, dims, true);
  Value masked = dy * mask;
  return masked / count;
}

void MaxAll::compose(ComposeCall& c) { c.give(emit<Amax>(c.x())); }
void MinAll::compose(ComposeCall& c) { c.give(emit<Amin>(c.x())); }

namespace {

template <class... Op>
std::optional<ReductionCall> call_of(std::tuple<Op...>*, const ir::Operator& op,
                                     const ir::Attributes& attributes, int rank) {
  std::optional<ReductionCall> call;
  auto look = [&]<class O>(O*) {
    if constexpr (requires { O::reducer; }) {
      if (&op != &record<O>()) return;
      const FromFront<typename O::Attr> a(attributes, rank);
      call = {O::reducer, reduced_dims(*a, rank), (*a).keepdim};
    }
  };
  (look(static_cast<Op*>(nullptr)), ...);
  return call;
}

}  // namespace

std::optional<ReductionCall> reduction_call(const ir::Operator& op,
                                            const ir::Attributes& attributes, int rank) {
  return call_of(static_cast<ReductionOperators*>(nullptr), op, attributes, rank);
}

Family reduction_family() {
  return fold<decltype(std::tuple_cat(ReductionOperators(), StatisticsOperators(),
                                      ExtremumOperators()))>();
}

}  // namespace gradus::ops
