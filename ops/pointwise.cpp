#include "gradus/pointwise.h"

#include <algorithm>

#include "ops/bind_work.h"

namespace gradus::ops {

namespace {

// Joins neighbouring dimensions that all operands walk in one stride.
void join(work::Pointwise& p) {
  SmallVector<Sizes*, 3> strides;
  for (work::PointwiseOperand& o : p.operands) strides.push_back(&o.strides);
  join_dimensions(p.shape, strides);
}

}  // namespace

work::Pointwise pointwise_work(const PointwiseInfo& info, const BindCall& call) {
  SmallVector<ir::Type, 3> types;
  SmallVector<ir::OperandType, 3> operands;
  for (size_t i = 0; i < call.in.size(); ++i) {
    Dims dims;
    for (int64_t n : call.in[i].shape) dims.push_back(n);
    types.emplace_back(call.in[i].dtype, dims);
  }
  for (size_t i = 0; i < call.in.size(); ++i) {
    ir::OperandType t;
    t.kind = call.number[i] ? ir::OperandType::Kind::number : ir::OperandType::Kind::tensor;
    t.type = &types[i];
    t.category = category_of(call.in[i].dtype);
    operands.push_back(t);
  }
  ir::InferCall infer{call.op, operands, call.attributes, {}, nullptr};
  Compute compute = pointwise_compute(info, infer, call.out[0].dtype);
  work::Pointwise w{{&call.op, call.attributes}, compute, call.out[0].shape};
  w.out = call.out[0].dtype;
  for (const Layout& in : call.in) {
    work::PointwiseOperand o{in.dtype, Sizes(w.shape.size(), 0)};
    size_t lead = w.shape.size() - in.shape.size();
    for (size_t d = 0; d < in.shape.size(); ++d)
      o.strides[lead + d] = in.shape[d] == 1 ? 0 : in.strides[d];
    w.operands.push_back(std::move(o));
  }
  if (call.out[0].numel() == 0) {
    w.shape.assign(1, 0);
    for (auto& o : w.operands) o.strides.assign(1, 0);
  } else {
    join(w);
  }
  return w;
}

void bind_pointwise(const PointwiseInfo& info, BindCall& call) {
  call.set_work(pointwise_work(info, call));
}

}  // namespace gradus::ops
