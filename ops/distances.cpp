#include "ops/distances.h"

#include "gradus/rules.h"
#include "ops/declared.h"
#include "ops/operands.h"
#include "ops/reduction_rules.h"
#include "ops/statistics.h"

namespace gradus::ops {

namespace {

Value norm(const Value& x, double p, int64_t dim, bool keepdim) {
  return emit<Norm>({x}, {.p = p, .dim = Ints{dim}, .keepdim = keepdim});
}

Value distance(const Value& x, const Value& y, double p, double eps) {
  return norm(x - y + eps, p, -1, false);
}

// x's length along dim, at least eps; its derivative is that of the length itself.
Value bounded_length(const Value& x, int64_t dim, double eps) {
  Value squares = sum(emit<Square>(x), {dim}, true);
  Value raise = detach(at_least(squares, eps * eps) - squares);
  return emit<Sqrt>(squares + raise);
}

}  // namespace

void Normalize::compose(ComposeCall& c, const Attr& a) {
  const Value& x = floating_operand(c, 0);
  Value wide = widened(x);
  Value length = at_least(norm(wide, a.p, a.dim, true), a.eps);
  c.give(cast(wide / length, x.dtype()));
}

void CosineSimilarity::compose(ComposeCall& c, const Attr& a) {
  const Value &x = floating_operand(c, 0), &y = floating_operand(c, 1);
  DType dtype = (x + y).dtype();
  Value u = widened(x), v = widened(y);
  Value product = (u / bounded_length(u, a.dim, a.eps)) * (v / bounded_length(v, a.dim, a.eps));
  c.give(cast(sum(product, {a.dim}, false), dtype));
}

void PairwiseDistance::compose(ComposeCall& c, const Attr& a) {
  const Value &x = floating_operand(c, 0), &y = floating_operand(c, 1);
  Value d = distance(widened(x), widened(y), a.p, a.eps);
  c.give(cast(d, (x + y).dtype()));
}

void TripletMarginLoss::compose(ComposeCall& c, const Attr& a) {
  Value anchor = widened(floating_operand(c, 0));
  Value like = distance(anchor, widened(floating_operand(c, 1)), a.p, 1e-6);
  Value unlike = distance(anchor, widened(floating_operand(c, 2)), a.p, 1e-6);
  Value losses = at_least(like - unlike + a.margin, 0);
  c.give(cast(reduced(losses, a.reduction), c.x(0).dtype()));
}

}  // namespace gradus::ops
