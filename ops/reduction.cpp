#include "ops/reduction.h"

#include "ops/extremum.h"
#include "ops/families.h"
#include "ops/rules.h"
#include "ops/scan.h"
#include "ops/statistics.h"

namespace gradus::ops {

namespace {

DType sum_dtype(DType x) { return is_floating(x) ? x : DType::i64; }

template <class A>
const A& attr(const Attributes& a) {
  return attributes_as<A>(a);
}

// dx = dy * [x = y] / (how many x = y), the divisor counted in f32 at least.
void share_evenly(VjpCall& d) {
  const auto& a = d.attr<ExtremumAttr>();
  d.give(0, [&] {
    const Value& x = d.x();
    Ints dims = reduced_dims(a.dim, x.rank());
    Value y = restore_dims(d.y(), dims, a.keepdim, x.rank());
    Value dy = widened(restore_dims(d.dy(), dims, a.keepdim, x.rank()));
    Value mask = cast(eq(x, y), dy.dtype());
    Value count = sum(mask, dims, true);
    Value masked = dy * mask;
    return masked / count;
  });
}

void infer_extremum(InferCall& call) {
  const auto& a = attr<ExtremumAttr>(call.attributes);
  const Type& x = call.tensor(0);
  infer_reduction(call, a.dim, a.keepdim, x.dtype);
  if (!a.allow_empty) refuse_empty(call, x.dims, reduced_dims(a.dim, x.rank()));
}

void bind_extremum(BindCall& call, work::Reducer reducer) {
  const auto& a = attr<ExtremumAttr>(call.attributes);
  Ints dims = reduced_dims(a.dim, call.in[0].rank());
  if (!a.allow_empty) refuse_empty(call, call.in[0], dims);
  bind_reduction(call, reducer, dims);
}

}  // namespace

void Sum::infer(InferCall& call) {
  const Attr& a = attr<Attr>(call.attributes);
  infer_reduction(call, a.dim, a.keepdim, sum_dtype(call.tensor(0).dtype));
}
void Sum::bind(BindCall& call) {
  const Attr& a = attr<Attr>(call.attributes);
  bind_reduction(call, reducer, reduced_dims(a.dim, call.in[0].rank()));
}
void Sum::vjp(VjpCall& d) {
  const Attr& a = d.attr<Attr>();
  d.give(0, [&] {
    const Type& x = d.x_type();
    Value dy = restore_dims(d.dy(), reduced_dims(a.dim, x.rank()), a.keepdim, x.rank());
    return expand(dy, x.dims);
  });
}
// Without `dim`, over all dimensions but the added one.
BatchedResults Sum::batch(const BatchedCall& c) {
  const int rank = c.own_rank(0);
  if (rank == 0) return {c.operands[0]};
  Attr a = c.attr<Attr>();
  if (!a.dim || a.dim->empty()) a.dim = normalised_dims(std::nullopt, rank);
  for (int64_t& d : *a.dim) d = c.moved(d);
  return {emit<Sum>({c.operands[0]}, a)};
}

void Mean::infer(InferCall& call) {
  const Attr& a = attr<Attr>(call.attributes);
  const Type& x = call.tensor(0);
  if (!x.is_floating())
    call.fail("'x' is {}; a mean wants a floating dtype, cast it first", to_string(x));
  infer_reduction(call, a.dim, a.keepdim, x.dtype);
}
void Mean::compose(ComposeCall& c) {
  const Attr& a = c.attr<Attr>();
  const Value& x = c.x();
  Ints dims = reduced_dims(a.dim, x.rank());
  Value total = sum(widened(x), dims, a.keepdim);
  Value mean = over_count(total, reduced_count(x.dims(), dims));
  c.give(cast(mean, x.dtype()));
}

void Prod::infer(InferCall& call) {
  const Attr& a = attr<Attr>(call.attributes);
  infer_reduction(call, one_dim(a.dim), a.keepdim, sum_dtype(call.tensor(0).dtype));
}
void Prod::bind(BindCall& call) {
  const Attr& a = attr<Attr>(call.attributes);
  bind_reduction(call, reducer, reduced_dims(one_dim(a.dim), call.in[0].rank()));
}
void Prod::vjp(VjpCall& d) {
  const Attr& a = d.attr<Attr>();
  d.give(0, [&] {
    const Type& type = d.x_type();
    Ints dims = reduced_dims(one_dim(a.dim), type.rank());
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
  });
}

void Amax::infer(InferCall& call) { infer_extremum(call); }
void Amax::bind(BindCall& call) { bind_extremum(call, reducer); }
void Amax::vjp(VjpCall& d) { share_evenly(d); }

void Amin::infer(InferCall& call) { infer_extremum(call); }
void Amin::bind(BindCall& call) { bind_extremum(call, reducer); }
void Amin::vjp(VjpCall& d) { share_evenly(d); }

void MaxAll::compose(ComposeCall& c) { c.give(emit<Amax>(c.x())); }
void MinAll::compose(ComposeCall& c) { c.give(emit<Amin>(c.x())); }

void All::infer(InferCall& call) {
  const Attr& a = attr<Attr>(call.attributes);
  infer_reduction(call, one_dim(a.dim), a.keepdim, DType::boolean);
}
void All::bind(BindCall& call) {
  const Attr& a = attr<Attr>(call.attributes);
  bind_reduction(call, reducer, reduced_dims(one_dim(a.dim), call.in[0].rank()));
}

void Any::infer(InferCall& call) {
  const Attr& a = attr<Attr>(call.attributes);
  infer_reduction(call, one_dim(a.dim), a.keepdim, DType::boolean);
}
void Any::bind(BindCall& call) {
  const Attr& a = attr<Attr>(call.attributes);
  bind_reduction(call, reducer, reduced_dims(one_dim(a.dim), call.in[0].rank()));
}

namespace {

std::optional<Ints> dims_of(const std::optional<Ints>& dims) { return dims; }
std::optional<Ints> dims_of(const std::optional<int64_t>& dim) { return one_dim(dim); }

template <class... Op>
std::optional<ReductionCall> call_of(std::tuple<Op...>*, const ir::Operator& op,
                                     const ir::Attributes& attributes, int rank) {
  std::optional<ReductionCall> call;
  auto look = [&]<class O>(O*) {
    if constexpr (requires { O::reducer; }) {
      if (&op != &record<O>()) return;
      const auto& a = attr<typename O::Attr>(attributes);
      call = {O::reducer, reduced_dims(dims_of(a.dim), rank), a.keepdim};
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
