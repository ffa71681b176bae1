#include "ops/comparison.h"

#include <cmath>

#include "ops/families.h"

namespace gradus::ops {

namespace {

void require_condition(const InferCall& call, size_t i) {
  if (!call.given(i) || call.is_number(i)) return;
  const Type& t = call.tensor(i);
  if (t.dtype != DType::boolean && t.dtype != DType::u8)
    call.fail("{} is {}; a condition is bool, as comparisons give it: ne(%{}, 0)",
              call.name_of_operand(i), to_string(t), call.op.operand(i).name);
}

}  // namespace

void Where::infer(InferCall& call) {
  require_condition(call, 0);
  PointwiseEntry<Where>::infer(call);
}

void MaskedFill::infer(InferCall& call) {
  require_condition(call, 1);
  call.tensor(0);
  PointwiseEntry<MaskedFill>::infer(call);
}

void Clamp::infer(InferCall& call, const Attr& a) {
  if (!a.min && !a.max)
    call.fail("attributes 'min' and 'max' are both absent; at least one is needed");
  PointwiseEntry<Clamp>::infer(call);
  // The bounds have a say as numbers in operands' places have.
  DType& dtype = call.out[0].dtype;
  for (const auto& bound : {a.min, a.max}) {
    if (!bound || is_floating(dtype)) continue;
    if (bound->is_floating())
      dtype = DType::f32;
    else if (dtype == DType::boolean)
      dtype = DType::i64;
  }
}

Value Clamp::dx(VjpCall& d, const Attr& a) {
  auto above = [&] { return ge(d.x(), num(a.min->as_double())); };
  auto below = [&] { return le(d.x(), num(a.max->as_double())); };
  if (!a.max) return keep_where(above(), d.dy());
  if (!a.min) return keep_where(below(), d.dy());
  Value inside = above();
  inside = logical_and(inside, below());
  return keep_where(inside, d.dy());
}

Family comparison_family() { return fold<ComparisonOperators>(); }

}  // namespace gradus::ops
