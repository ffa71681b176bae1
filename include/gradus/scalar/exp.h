// exp, exp2 and expm1.
//
// Method: x = k ln 2 + r with |r| <= ln(2)/2 (Cody and Waite: ln 2 in two parts; the first product
// is exact with fma). e^r - 1 = r + r^2 P(r), where P is a minimax polynomial. 2^k is made from the
// bits of the exponent. The rounding errors of r and of the last sum are kept, so functions that
// use exp_reduced (tanh, sigmoid, sinh, erfc, pow) round nearly once.
#pragma once

#include "gradus/scalar/pair.h"

namespace gradus::scalar {

// e^x = 2^k (1 + p.hi + p.lo). The low bits of k_bits are k.
template <Floating S>
struct ExpReduced {
  Pair<S> p;
  S k;
  typename S::Int k_bits;
};

// e^(r + r_lo) - 1, for |r| <= 0.35.
template <Floating S>
GRADUS_INLINE Pair<S> expm1_kernel(S r, S r_lo) {
  S series = [&]() GRADUS_INLINE_LAMBDA {
    if constexpr (S::bits == 64) {
      return poly(r, 0x1p-1, 0x1.555555555555bp-3, 0x1.555555555555dp-5, 0x1.111111110ec6bp-7,
                  0x1.6c16c16c1381p-10, 0x1.a01a01b3822dcp-13, 0x1.a01a01b3bbaf2p-16,
                  0x1.71ddf008e9e35p-19, 0x1.27e4c03d6a265p-22, 0x1.af6c214b42a99p-26,
                  0x1.1f9c8eea67132p-29);
    } else {
      return poly(r, 0x1p-1, 0x1.555556p-3, 0x1.555482p-5, 0x1.11107ep-7, 0x1.6d951p-10,
                  0x1.a1b5c8p-13);
    }
  }();
  S square = r * r;
  S curve = square * series;
  S p = r + curve;
  S p_lo = r - p + curve;
  return {p, p_lo + fma(r_lo, p, r_lo)};
}

// For |x| <= 800 (f64), 110 (f32).
template <Floating S>
struct ExpArgument {
  S k;
  S r;
  S r_lo;
  typename S::Int k_bits;
};
template <Floating S>
GRADUS_INLINE ExpArgument<S> exp_argument(S x) {
  constexpr double ln2_hi = by_width<S>(0x1.62e43p-1, 0x1.62e42fefa39efp-1);
  constexpr double ln2_lo = by_width<S>(-0x1.05c61p-29, 0x1.abc9e3b39803fp-56);
  S shifted = fma(x, 0x1.71547652b82fep0, kShift<S>);
  S k = shifted - kShift<S>;
  S near = fma(k, -ln2_hi, x);
  S r = fma(k, -ln2_lo, near);
  S rest = near - r;
  return {k, r, fma(k, -ln2_lo, rest), bits(shifted)};
}
template <Floating S>
GRADUS_INLINE ExpReduced<S> exp_reduced(S x) {
  ExpArgument<S> a = exp_argument(x);
  return {expm1_kernel(a.r, a.r_lo), a.k, a.k_bits};
}
// x_lo is a correction below one or two ulp of x.
template <Floating S>
GRADUS_INLINE ExpReduced<S> exp_reduced(S x, S x_lo) {
  ExpArgument<S> a = exp_argument(x);
  return {expm1_kernel(a.r, a.r_lo + x_lo), a.k, a.k_bits};
}

// Limits x to a range outside of which e^x is certainly 0 or infinite. NaN stays NaN.
template <Floating S>
GRADUS_INLINE S clamp_exponent(S x) {
  constexpr double low = by_width<S>(-105.0, -750.0);
  constexpr double high = by_width<S>(90.0, 715.0);
  S raised = select(x < low, low, x);
  return select(raised > high, high, raised);
}

// e^(x.hi + x.lo), for any x.hi.
template <Floating S>
GRADUS_INLINE S exp(Pair<S> x) {
  ExpReduced<S> e = exp_reduced(clamp_exponent(x.hi), x.lo);
  S mantissa = 1.0 + e.p.hi;
  S low = 1.0 - mantissa + e.p.hi + e.p.lo;
  return scale_by_exp2(mantissa + low, e.k);
}

// e^x. +inf gives +inf, -inf gives 0, NaN gives NaN. Overflow gives inf; underflow is gradual.
template <Floating S>
GRADUS_INLINE S exp(S x) {
  ExpReduced<S> e = exp_reduced(clamp_exponent(x));
  return scale_by_exp2(1.0 + e.p.hi, e.k);
}

// 2^x. Exact for integers.
template <Floating S>
GRADUS_INLINE S exp2(S x) {
  constexpr double ln2_hi = by_width<S>(0x1.62e43p-1, 0x1.62e42fefa39efp-1);
  constexpr double ln2_lo = by_width<S>(-0x1.05c61p-29, 0x1.abc9e3b39803fp-56);
  constexpr double low = by_width<S>(-151.0, -1080.0);
  constexpr double high = by_width<S>(130.0, 1030.0);
  S raised = select(x < low, low, x);
  S inside = select(raised > high, high, raised);
  S k = inside + kShift<S> - kShift<S>;
  S fraction = inside - k;
  S r = fraction * ln2_hi;
  S r_lo = fma(fraction, ln2_lo, fma(fraction, ln2_hi, -r));
  Pair<S> p = expm1_kernel(r, r_lo);
  return scale_by_exp2(1.0 + p.hi, k);
}

// e^x - 1 without cancellation. -0 gives -0, -inf gives -1.
template <Floating S>
GRADUS_INLINE S expm1(S x) {
  constexpr double low = by_width<S>(-20.0, -40.0);
  constexpr double high = by_width<S>(88.8, 709.9);
  S raised = select(x < low, low, x);
  ExpReduced<S> e = exp_reduced(select(raised > high, high, raised));
  // Half of 2^k, which is finite if the result is.
  S half = exp2_of_bits<S>(e.k_bits - 1);
  // half p + (half - 1/2), times two.
  Pair<S> s = two_sum(half - 0.5, half * e.p.hi);
  S low_part = fma(half, e.p.lo, s.lo);
  S result = (s.hi + low_part) * 2.0;
  return select(abs(x) < by_width<S>(0x1p-26, 0x1p-55), x, result);
}

}  // namespace gradus::scalar
