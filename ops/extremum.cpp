#include "ops/extremum.h"

#include "ops/rules.h"

namespace gradus::ops {

namespace {

void infer_dim(InferCall& call) {
  const auto& a = attributes_as<AlongDimAttr>(call.attributes);
  const Type& x = call.tensor(0);
  infer_reduction(call, Ints{a.dim}, a.keepdim, x.dtype);
  infer_reduction(call, Ints{a.dim}, a.keepdim, DType::i64);
  refuse_empty(call, x.dims, reduced_dims(Ints{a.dim}, x.rank()));
}

void bind_dim(BindCall& call, bool greatest) {
  Ints dims =
      reduced_dims(Ints{attributes_as<AlongDimAttr>(call.attributes).dim}, call.in[0].rank());
  refuse_empty(call, call.in[0], dims);
  call.set_work(work::extremum(greatest, call.in[0], dims, 0, 1));
}

void give_back(VjpCall& d) {
  const auto& a = d.attr<AlongDimAttr>();
  if (!d.has_dy(0)) return;
  d.give(0, [&] {
    const Type& x = d.x_type();
    if (x.rank() == 0) return d.dy(0);
    Value zeros = zeros_to_fill(d.world, x);
    Value at = restore_dims(d.y(1), {a.dim}, a.keepdim, x.rank());
    Value dy = restore_dims(d.dy(0), {a.dim}, a.keepdim, x.rank());
    return scatter_add(zeros, at, dy, a.dim);
  });
}

void infer_arg(InferCall& call) {
  const auto& a = attributes_as<OneDimAttr>(call.attributes);
  const Type& x = call.tensor(0);
  infer_reduction(call, one_dim(a.dim), a.keepdim, DType::i64);
  refuse_empty(call, x.dims, reduced_dims(one_dim(a.dim), x.rank()));
}

void bind_arg(BindCall& call, bool greatest) {
  Ints dims =
      reduced_dims(one_dim(attributes_as<OneDimAttr>(call.attributes).dim), call.in[0].rank());
  refuse_empty(call, call.in[0], dims);
  call.set_work(work::extremum(greatest, call.in[0], dims, -1, 0));
}

}  // namespace

void MaxDim::infer(InferCall& call) { infer_dim(call); }
void MaxDim::bind(BindCall& call) { bind_dim(call, true); }
void MaxDim::vjp(VjpCall& d) { give_back(d); }

void MinDim::infer(InferCall& call) { infer_dim(call); }
void MinDim::bind(BindCall& call) { bind_dim(call, false); }
void MinDim::vjp(VjpCall& d) { give_back(d); }

void ArgMax::infer(InferCall& call) { infer_arg(call); }
void ArgMax::bind(BindCall& call) { bind_arg(call, true); }

void ArgMin::infer(InferCall& call) { infer_arg(call); }
void ArgMin::bind(BindCall& call) { bind_arg(call, false); }

}  // namespace gradus::ops
