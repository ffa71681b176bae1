// sinh, cosh, tanh, their inverses, sigmoid, logsigmoid and log1p_exp.
//
// Method: e^|x| or e^-|x| as a pair from exp_reduced, the closed formula on pairs, and one division
// with a correction by its remainder. Each function therefore rounds about once. The inverses are
// closed formulas on pairs, and log1p_pair.
#pragma once

#include "gradus/scalar/exp.h"
#include "gradus/scalar/log.h"

namespace gradus::scalar {

// e^x - 1 as a pair, for x <= 0 where 2^k is normal.
template <Floating S>
GRADUS_INLINE Pair<S> expm1_pair_below(S x) {
  ExpReduced<S> e = exp_reduced(x);
  S scale = exp2_of_bits<S>(e.k_bits);
  Pair<S> rise = quick_two_sum(like(x, -1.0), scale);
  S part = scale * e.p.hi;
  Pair<S> s = quick_two_sum(rise.hi, part);
  return {s.hi, fma(scale, e.p.lo, s.lo + rise.lo)};
}

// e^x as a pair for x <= 0, including subnormal results and 0.
template <Floating S>
GRADUS_INLINE Pair<S> exp_pair_below(S x) {
  constexpr double bottom = by_width<S>(-105.0, -750.0);
  ExpReduced<S> e = exp_reduced(select(x < bottom, bottom, x));
  Pair<S> m = quick_two_sum(like(x, 1.0), e.p.hi);
  S lo = m.lo + e.p.lo;
  return {scale_by_exp2(m.hi, e.k), scale_by_exp2(lo, e.k)};
}

// With t = e^(-2|x|) - 1: tanh |x| = -t / (2 + t).
template <Floating S>
GRADUS_INLINE S tanh(S x) {
  constexpr double bottom = by_width<S>(-20.0, -40.0);  // 1 from this value on
  S falling = abs(x) * -2.0;
  Pair<S> t = expm1_pair_below(select(falling < bottom, bottom, falling));
  S denominator = t.hi + 2.0;
  S denominator_lo = 2.0 - denominator + t.hi + t.lo;
  return copysign(quotient(-t, Pair<S>{denominator, denominator_lo}), x);
}

// 1 / (1 + e^-x). With e = e^-|x|: 1 / (1 + e) or e / (1 + e).
template <Floating S>
GRADUS_INLINE S sigmoid(S x) {
  Pair<S> e = exp_pair_below(-abs(x));
  S denominator = e.hi + 1.0;
  S denominator_lo = 1.0 - denominator + e.hi + e.lo;
  typename S::Bool negative = x < 0.0;
  Pair<S> numerator{select(negative, e.hi, 1.0), select(negative, e.lo, 0.0)};
  return quotient(numerator, Pair<S>{denominator, denominator_lo});
}

// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), which is softplus with beta 1.
template <Floating S>
GRADUS_INLINE S log1p_exp(S x) {
  Pair<S> l = log1p_pair(exp_pair_below(-abs(x)));
  S positive = select(x < 0.0, 0.0, x);
  Pair<S> sum = quick_two_sum(positive, l.hi);
  S y = sum.hi + (sum.lo + l.lo);
  return select(x < std::numeric_limits<double>::infinity(), y, x);
}

// log(1 / (1 + e^-x)).
template <Floating S>
GRADUS_INLINE S logsigmoid(S x) {
  return -log1p_exp(-x);
}

// (e^|x| - e^-|x|) / 2.
template <Floating S>
GRADUS_INLINE S sinh(S x) {
  constexpr double top = by_width<S>(89.5, 710.5);
  S magnitude = abs(x);
  S bounded = select(magnitude > top, top, magnitude);
  ExpReduced<S> e = exp_reduced(bounded);
  // With h = 2^(k-2) and p = e^r - 1: e^x - 1 = 4 h p + 4 h - 1, and sinh x = (t + t / (1 + t)) /
  // 2.
  S quarter = exp2_of_bits<S>(e.k_bits - 2);
  Pair<S> t = two_sum(quarter - 0.25, quarter * e.p.hi);
  S t_lo = fma(quarter, e.p.lo, t.lo);
  S sum = t.hi + 0.25;
  S sum_lo = select(t.hi < 0.25, 0.25 - sum + t.hi, t.hi - sum + 0.25) + t_lo;
  Pair<S> q = div(Pair<S>{t.hi * 0.25, t_lo * 0.25}, Pair<S>{sum, sum_lo});
  Pair<S> total = two_sum(t.hi, q.hi);
  S y = total.hi + (total.lo + (t_lo + q.lo));
  S doubled = y * 2.0;
  S result = select(magnitude < by_width<S>(0x1p-13, 0x1p-28), magnitude, doubled);
  return copysign(result, x);
}

// (e^|x| + e^-|x|) / 2.
template <Floating S>
GRADUS_INLINE S cosh(S x) {
  constexpr double top = by_width<S>(89.5, 710.5);
  S magnitude = abs(x);
  S bounded = select(magnitude > top, top, magnitude);
  ExpReduced<S> e = exp_reduced(bounded);
  S quarter = exp2_of_bits<S>(e.k_bits - 2);
  Pair<S> m = quick_two_sum(like(x, 1.0), e.p.hi);
  S hi = m.hi * quarter;
  S lo = (m.lo + e.p.lo) * quarter;
  S small = 0.0625 / hi;
  Pair<S> total = quick_two_sum(hi, small);
  S y = total.hi + (total.lo + lo);
  return y * 2.0;
}

// sign(x) log1p(|x| + x^2 / (1 + sqrt(1 + x^2))).
template <Floating S>
GRADUS_INLINE S asinh(S x) {
  constexpr double big = by_width<S>(0x1p30, 0x1p60);
  constexpr double inf = std::numeric_limits<double>::infinity();
  S magnitude = abs(x);
  typename S::Bool far = magnitude > big;
  S near = select(far, 1.0, magnitude);
  Pair<S> square = two_prod(near, near);
  Pair<S> under = add(square, like(x, 1.0));
  Pair<S> root = sqrt_pair(under);
  Pair<S> below = add(root, like(x, 1.0));
  Pair<S> fraction = div(square, quick_two_sum(below.hi, below.lo));
  Pair<S> argument = add(fraction, near);
  // For large |x|: log(2|x|) = log1p(|x|) + ln 2, to the last bit.
  S finite = select(magnitude < inf, magnitude, 1.0);
  Pair<S> a{select(far, finite, argument.hi), select(far, 0.0, argument.lo)};
  Pair<S> l = log1p_pair(a);
  S more = select(far, 0x1.62e42fefa39efp-1, like(x, 0.0));
  Pair<S> sum = quick_two_sum(l.hi, more);
  S y = sum.hi + (sum.lo + l.lo);
  S tiny = select(magnitude < by_width<S>(0x1p-13, 0x1p-28), magnitude, y);
  return copysign(select(magnitude < inf, tiny, magnitude), x);
}

// log1p(t + sqrt(2t + t^2)) with t = x - 1. NaN below 1.
template <Floating S>
GRADUS_INLINE S acosh(S x) {
  constexpr double big = by_width<S>(0x1p30, 0x1p60);
  constexpr double inf = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  typename S::Bool far = x > big;
  S near = select(far | !(x >= 1.0), 1.0, x);
  Pair<S> t = two_sum(near, like(x, -1.0));
  Pair<S> square = mul(t, t);
  Pair<S> under = add(Pair<S>{t.hi * 2.0, t.lo * 2.0}, square);
  Pair<S> root = sqrt_pair(under);
  Pair<S> argument = add(root, t);
  S finite = select(x < inf, x, 1.0);
  Pair<S> a{select(far, finite, argument.hi), select(far, 0.0, argument.lo)};
  Pair<S> l = log1p_pair(a);
  S more = select(far, 0x1.62e42fefa39efp-1, like(x, 0.0));
  Pair<S> sum = quick_two_sum(l.hi, more);
  S y = sum.hi + (sum.lo + l.lo);
  return select(x >= 1.0, select(x < inf, y, x), nan);
}

// log1p(2|x| / (1 - |x|)) / 2. +-1 gives +-inf, |x| > 1 gives NaN.
template <Floating S>
GRADUS_INLINE S atanh(S x) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  S magnitude = abs(x);
  S inside = select(magnitude < 1.0, magnitude, 0.0);
  Pair<S> rest = two_sum(like(x, 1.0), -inside);
  Pair<S> a = div(Pair<S>{inside * 2.0, like(x, 0.0)}, rest);
  Pair<S> l = log1p_pair(a);
  S y = select(magnitude < by_width<S>(0x1p-13, 0x1p-28), magnitude, l.hi * 0.5);
  S edge = select(magnitude == 1.0, inf, like(x, nan));
  return copysign(select(magnitude < 1.0, y, edge), x);
}

}  // namespace gradus::scalar
