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

// x's length along dim, at least eps.
Value bounded_length(const Value& x, int64_t dim, double eps) {
  return emit<Sqrt>(at_least(sum(emit<Square>(x), {dim}, true), eps * eps));
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

void Cdist::compose(ComposeCall& c, const Attr& a) {
  const Value &x = floating_operand(c, 0), &y = floating_operand(c, 1);
  if (x.rank() < 2 || y.rank() < 2)
    c.fail("'x' is {} and 'y' is {}; both must be rows of numbers, or stacks of them",
           to_string(x.type), to_string(y.type));
  if (!(a.p >= 0)) c.fail("'p' is {}; it must not be negative", a.p);
  same_size(c, x.dims().back(), y.dims().back(), "the rows of x and y are of one length");
  Value difference = unsqueeze(widened(x), -2) - unsqueeze(widened(y), -3);
  const DType dtype = x.dtype() == y.dtype() ? x.dtype() : difference.dtype();
  // Of no numbers there is no greatest one; their sum is 0.
  const bool none = x.dims().back() == Dim(0);
  c.give(cast(norm(difference, none ? 1 : a.p, -1, false), dtype));
}

void TripletMarginLoss::compose(ComposeCall& c, const Attr& a) {
  Value anchor = widened(floating_operand(c, 0));
  Value like = distance(anchor, widened(floating_operand(c, 1)), a.p, 1e-6);
  Value unlike = distance(anchor, widened(floating_operand(c, 2)), a.p, 1e-6);
  Value losses = at_least(like - unlike + a.margin, 0);
  c.give(cast(reduced(losses, a.reduction), c.x(0).dtype()));
}

}  // namespace gradus::ops
