#include "ops/element_losses.h"

#include <algorithm>
#include <numbers>

#include "gradus/rules.h"
#include "ops/comparison.h"
#include "ops/declared.h"
#include "ops/operands.h"
#include "ops/reduction_rules.h"

namespace gradus::ops {

namespace {

// x - target, wide.
Value difference(const ComposeCall& c) {
  return widened(floating_operand(c, 0) - floating_operand(c, 1));
}

void give_reduced(ComposeCall& c, const Value& losses, Reduction r) {
  c.give(cast(reduced(losses, r), c.x(0).dtype()));
}

constexpr std::array divergence_reductions{"none"sv, "mean"sv, "sum"sv, "batchmean"sv};

Value bounded_log(const Value& x) { return at_least(emit<Log>(x), -100); }
// The same, with the derivative 0 where x is 0: there it is 0 times the infinite one of log.
Value flat_bounded_log(const Value& x) {
  Value none = eq(x, num(0.0));
  Value log = bounded_log(where(none, num(1.0), x));
  return where(none, num(-100.0), log);
}

// x within [-bound, bound]. Its square is finite and has a derivative where x is infinite, so that
// the derivative of what is selected instead is not lost to 0 * inf.
Value within(const Value& x, double bound) {
  return emit<Clamp>({x}, {.min = -bound, .max = bound});
}

}  // namespace

bool read_literal(const Literal& l, DivergenceReduction& r, std::string& what) {
  what = "\"mean\", \"batchmean\", \"sum\" or \"none\"";
  const std::string* s = std::get_if<std::string>(&l.value);
  const auto found = s ? std::ranges::find(divergence_reductions, *s) : divergence_reductions.end();
  if (found == divergence_reductions.end()) return false;
  r = static_cast<DivergenceReduction>(found - divergence_reductions.begin());
  return true;
}
Literal write_literal(const DivergenceReduction& r) {
  return std::string(divergence_reductions[static_cast<size_t>(r)]);
}

void L1Loss::compose(ComposeCall& c, const Attr& a) {
  give_reduced(c, emit<Abs>(difference(c)), a.reduction);
}

// The square is of the difference, not of its magnitude: at 0, too, it has a second derivative.
void SmoothL1Loss::compose(ComposeCall& c, const Attr& a) {
  if (!(a.beta >= 0)) c.fail("'beta' is {}; it must not be negative", a.beta);
  Value d = difference(c);
  Value z = emit<Abs>(d);
  if (a.beta == 0) return give_reduced(c, z, a.reduction);
  Value inner = emit<Square>(within(d, a.beta)) * (0.5 / a.beta);
  give_reduced(c, where(lt(z, num(a.beta)), inner, z - 0.5 * a.beta), a.reduction);
}

void HuberLoss::compose(ComposeCall& c, const Attr& a) {
  if (!(a.delta > 0)) c.fail("'delta' is {}; it must be positive", a.delta);
  Value d = difference(c);
  Value z = emit<Abs>(d);
  Value inner = emit<Square>(within(d, a.delta)) * 0.5;
  Value outer = (z - 0.5 * a.delta) * a.delta;
  give_reduced(c, where(le(z, num(a.delta)), inner, outer), a.reduction);
}

void SoftMarginLoss::compose(ComposeCall& c, const Attr& a) {
  Value product = widened(floating_operand(c, 0)) * widened(floating_operand(c, 1));
  give_reduced(c, -emit<Logsigmoid>(product), a.reduction);
}

void Bce::compose(ComposeCall& c, const Attr& a) {
  Value p = widened(floating_operand(c, 0)), t = widened(floating_operand(c, 1));
  Value inside = t * bounded_log(p), outside = (1.0 - t) * bounded_log(1.0 - p);
  Value losses = -(inside + outside);
  if (c.given(2)) losses = losses * widened(floating_operand(c, 2));
  give_reduced(c, losses, a.reduction);
}

// The losses of all, and then the reduction of each one's own.
BatchedResults Bce::batch(const BatchedCall& c, const Attr& a) {
  int rank = 0;
  for (size_t i = 0; i < c.operands.size(); ++i)
    if (c.operands[i].is_tensor()) rank = std::max(rank, c.own_rank(i));
  SmallVector<Value, 3> in(c.operands);
  for (size_t i = 0; i < in.size(); ++i) {
    if (c.batched[i]) in[i] = c.aligned(i, rank);
    if (in[i].is_tensor()) in[i] = widened(in[i]);
  }
  Value losses = emit_all<Bce>(c.world, in, {.reduction = Reduction::none})[0];
  Ints own;
  for (int d = 1; d <= rank; ++d) own.push_back(d);
  if (a.reduction == Reduction::sum && rank > 0) losses = sum(losses, own, false);
  if (a.reduction == Reduction::mean && rank > 0) losses = emit<Mean>({losses}, {.dim = own});
  return {cast(losses, c.results[0].dtype)};
}

void Bce::vjp(VjpCall& d) {
  Value p = widened(d.x(0)), t = widened(d.x(1)), dy = widened(d.dy());
  const bool weighted = d.given(2);
  // One for each loss, of the shape that all operands broadcast to.
  Value each = ones_like(p + t);
  if (weighted) each = ones_like(each + widened(d.x(2)));
  Value unit = weighted ? each * widened(d.x(2)) : each;
  if (d.attr<LossAttr>().reduction == Reduction::mean) dy = over_count(dy, ir::numel(each.dims()));
  Value scale = dy * unit;
  d.give(0, [&] {
    Value spread = at_least(p * (1.0 - p), 1e-12);
    Value slope = (p - t) / spread;
    return scale * slope;
  });
  d.give(1, [&] {
    Value outside = flat_bounded_log(1.0 - p);
    return scale * (outside - flat_bounded_log(p));
  });
  if (weighted)
    d.give(2, [&] {
      Value inside = t * flat_bounded_log(p), outside = (1.0 - t) * flat_bounded_log(1.0 - p);
      return dy * each * -(inside + outside);
    });
}

void KlDiv::compose(ComposeCall& c, const Attr& a) {
  Value logq = widened(floating_operand(c, 0)), p = widened(floating_operand(c, 1));
  Value losses;
  if (a.log_target)
    losses = emit<Exp>(p) * (p - logq);
  else
    losses = emit<Xlogy>(p, p) - p * logq;
  if (a.reduction != DivergenceReduction::batchmean)
    return give_reduced(c, losses, static_cast<Reduction>(a.reduction));
  Value total = sum_all(losses);
  if (c.x(0).rank() > 0) total = over_count(total, c.x(0).dims()[0]);
  c.give(cast(total, c.x(0).dtype()));
}

void PoissonNllLoss::compose(ComposeCall& c, const Attr& a) {
  Value x = widened(floating_operand(c, 0)), t = widened(floating_operand(c, 1));
  Value losses = a.log_input ? emit<Exp>(x) - t * x : x - t * emit<Log>(x + a.eps);
  if (a.full) {  // for targets above 1; a 1 keeps the logarithms of the others from mattering
    Value large = gt(t, num(1.0));
    Value safe = where(large, t, num(1.0));
    Value log = emit<Log>(safe);
    Value half = emit<Log>(safe * (2 * std::numbers::pi)) * 0.5;
    losses = losses + keep_where(large, safe * log - safe + half);
  }
  give_reduced(c, losses, a.reduction);
}

void GaussianNllLoss::compose(ComposeCall& c, const Attr& a) {
  if (!(a.eps > 0)) c.fail("'eps' is {}; it must be positive", a.eps);
  Value d = difference(c), var = widened(floating_operand(c, 2));
  if (var.rank() + 1 == d.rank()) var = unsqueeze(var, -1);  // one for a whole row
  Value raise = detach(at_least(var, a.eps) - var);
  Value v = var + raise;
  Value losses = (emit<Log>(v) + emit<Square>(d) / v) * 0.5;
  give_reduced(c, losses, a.reduction);
}

void HingeEmbeddingLoss::compose(ComposeCall& c, const Attr& a) {
  Value x = widened(floating_operand(c, 0));
  const Value& t = tensor_operand(c, 1);
  Value apart = at_least(a.margin - x, 0);
  Value unlike = keep_where(ne(t, num(1.0)), apart), like = keep_where(ne(t, num(-1.0)), x);
  give_reduced(c, unlike + like, a.reduction);
}

}  // namespace gradus::ops
