#include "ops/pointwise.h"

#include <algorithm>

namespace gradus::ops {

namespace {

// Joins neighbouring dimensions that all operands walk in one stride.
void join(work::Pointwise& p) {
  Sizes shape;
  SmallVector<Sizes, 3> strides(p.operands.size());
  for (size_t d = 0; d < p.shape.size(); ++d) {
    int64_t n = p.shape[d];
    if (n == 1) continue;
    bool joins = !shape.empty();
    for (size_t k = 0; k < p.operands.size() && joins; ++k)
      joins = strides[k].back() == p.operands[k].strides[d] * n;
    if (joins) {
      shape.back() *= n;
      for (size_t k = 0; k < p.operands.size(); ++k) strides[k].back() = p.operands[k].strides[d];
    } else {
      shape.push_back(n);
      for (size_t k = 0; k < p.operands.size(); ++k) strides[k].push_back(p.operands[k].strides[d]);
    }
  }
  if (shape.empty()) {
    shape.push_back(1);
    for (auto& s : strides) s.push_back(1);
  }
  p.shape = std::move(shape);
  for (size_t k = 0; k < p.operands.size(); ++k) p.operands[k].strides = std::move(strides[k]);
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
