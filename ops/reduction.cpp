#include "ops/reduction.h"

#include "ops/families.h"
#include "ops/rules.h"

namespace gradus::ops {

namespace {

DType sum_dtype(DType x) { return is_floating(x) ? x : DType::i64; }

}  // namespace

void Sum::infer(InferCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
  infer_reduction(call, a.dim, a.keepdim, sum_dtype(call.tensor(0).dtype));
}
void Sum::bind(BindCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
  bind_reduction(call, Reducer::sum, call.in[0], reduced_dims(a.dim, call.in[0].rank()));
}
void Sum::vjp(VjpCall& d) {
  const Attr& a = d.attr<Attr>();
  d.give(0, [&] {
    const Type& x = d.x_type();
    return expand(restore_dims(d.dy(), reduced_dims(a.dim, x.rank()), a.keepdim, x.rank()), x.dims);
  });
}

Family reduction_family() { return fold<ReductionOperators>(); }

}  // namespace gradus::ops
