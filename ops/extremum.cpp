#include "ops/extremum.h"

#include "gradus/rules.h"
#include "ops/bind_work.h"

namespace gradus::ops {

void AnyExtremumAlong::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  const Ints dims{a.dim};
  infer_reduction(call, dims, a.keepdim, x.dtype);
  infer_reduction(call, dims, a.keepdim, DType::i64);
  refuse_empty(call, x.dims, reduced_dims(dims, x.rank()));
}
void AnyExtremumAlong::bind(BindCall& call, const Attr& a, bool greatest) {
  Ints dims = reduced_dims(Ints{a.dim}, call.in[0].rank());
  refuse_empty(call, call.in[0], dims);
  call.set_work(work::extremum(greatest, call.in[0], dims, 0, 1));
}
Value AnyExtremumAlong::dx(VjpCall& d, const Attr& a) {
  if (!d.has_dy(0)) return {};
  const Type& x = d.x_type();
  if (x.rank() == 0) return d.dy(0);
  Value zeros = zeros_to_fill(d.world, x);
  Value at = restore_dims(d.y(1), {a.dim}, a.keepdim, x.rank());
  Value dy = restore_dims(d.dy(0), {a.dim}, a.keepdim, x.rank());
  return scatter_add(zeros, at, dy, a.dim);
}

void AnyPlace::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  infer_reduction(call, a, DType::i64);
  refuse_empty(call, x.dims, reduced_dims(a, x.rank()));
}
void AnyPlace::bind(BindCall& call, const Attr& a, bool greatest) {
  Ints dims = reduced_dims(a, call.in[0].rank());
  refuse_empty(call, call.in[0], dims);
  call.set_work(work::extremum(greatest, call.in[0], dims, -1, 0));
}

}  // namespace gradus::ops
