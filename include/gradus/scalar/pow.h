// pow, fmod, remainder and hypot.
#pragma once

#include "gradus/scalar/exp.h"
#include "gradus/scalar/log.h"

namespace gradus::scalar {

// log(x) with an absolute error near 2^-2p: log m = 2 atanh(s) with s = (m - 1) / (m + 1). The
// first two terms are computed on pairs. x must be positive and finite.
template <Floating S>
GRADUS_INLINE Pair<S> log_precise(S x) {
  LogReduced<S> r = log_reduced_any(x);
  S above = r.m + 1.0;
  S above_lo = r.m - (above - 1.0);
  Pair<S> s = div(Pair<S>{r.m - 1.0, like(x, 0.0)}, Pair<S>{above, above_lo});
  S twice = s.hi * 2.0;
  Pair<S> square = two_prod(s.hi, s.hi);
  square.lo = fma(twice, s.lo, square.lo);
  S series = [&]() GRADUS_INLINE_LAMBDA {
    if constexpr (S::bits == 64) {
      return poly(square.hi, 0x1.999999999999ap-2, 0x1.2492492492548p-2, 0x1.c71c71c6e034dp-3,
                  0x1.745d178304f83p-3, 0x1.3b139296f03e4p-3, 0x1.11196a1486fd6p-3,
                  0x1.df5d4d034650dp-4, 0x1.e16174db1b0e2p-4);
    } else {
      return poly(square.hi, 0x1.9999a6p-2, 0x1.24767p-2, 0x1.d90906p-3);
    }
  }();
  // 2s + s^3 (2/3 + s^2 series)
  constexpr double third_hi = by_width<S>(0x1.555556p-1, 0x1.5555555555555p-1);
  constexpr double third_lo = by_width<S>(-0x1.555556p-26, 0x1.5555555555555p-55);
  Pair<S> inner = quick_two_sum(like(x, third_hi), fma(square.hi, series, third_lo));
  Pair<S> cube = two_prod(square.hi, s.hi);
  cube.lo = fma(square.hi, s.lo, fma(square.lo, s.hi, cube.lo));
  Pair<S> third = two_prod(cube.hi, inner.hi);
  third.lo = fma(cube.hi, inner.lo, fma(cube.lo, inner.hi, third.lo));
  Pair<S> log_m = quick_two_sum(twice, third.hi);
  S log_m_lo = fma(s.lo, 2.0, log_m.lo + third.lo);
  constexpr double ln2_hi = by_width<S>(0x1.62e4p-1, 0x1.62e42fee00000p-1);  // k ln2_hi is exact
  constexpr double ln2_lo = by_width<S>(0x1.7f7d1cp-20, 0x1.a39ef35793c76p-33);
  Pair<S> sum = quick_two_sum(r.k * ln2_hi, log_m.hi);
  return quick_two_sum(sum.hi, sum.lo + fma(r.k, ln2_lo, log_m_lo));
}

// x^y with all special cases of C's pow (Annex F.10.4.4).
template <Floating S>
GRADUS_INLINE S pow(S x, S y) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  S magnitude = abs(x);
  S y_magnitude = abs(y);
  typename S::Bool edge = (magnitude == 0.0) | (magnitude == inf) | (y_magnitude == inf);
  Pair<S> logarithm = log_precise(select(edge, 1.0, magnitude));
  Pair<S> exponent = mul(logarithm, y);
  // A product that overflows has no low part.
  S exponent_lo = select(abs(exponent.hi) < 2000.0, exponent.lo, 0.0);
  S wide = select(abs(exponent.hi) < 2000.0, exponent.hi, logarithm.hi * y);
  S result = exp(Pair<S>{wide, exponent_lo});
  S extreme = select((magnitude > 1.0) ^ (y < 0.0), inf, like(x, 0.0));
  result = select(edge, extreme, result);
  result = select(magnitude == 1.0, 1.0, result);
  S half = y * 0.5;
  typename S::Bool integral = trunc(y) == y;
  typename S::Bool odd = integral & (trunc(half) != half);
  result = select(sign_bit_set(x) & odd, -result, result);
  result = select((x < 0.0) & (magnitude < inf) & !integral, nan, result);
  result = select(is_nan(x) | is_nan(y), nan, result);
  return select((x == 1.0) | (y == 0.0), 1.0, result);
}

// a - b trunc(a / b), exactly. It has the sign of a.
template <Floating S>
GRADUS_INLINE S fmod(S a, S b) {
  // A quotient that rounding leaves its fraction is trunc(a / b), or 1 more. The rest of either is
  // a multiple of the smaller of the operands' last places, and not larger than b: it is exact.
  constexpr double most = by_width<S>(0x1p22, 0x1p51);
  S x = abs(a), y = abs(b), quotient = x / y;
  S rest = fma(-trunc(quotient), y, x);
  rest = select(rest < 0.0, rest + y, rest);
  rest = select(quotient < 1.0, x, rest);  // b may be infinite
  return select_rare(
      quotient > most, [&] { return fmod_exact(a, b); }, copysign(rest, a));
}

// a - b floor(a / b), as in ATen and Python: fmod with the sign of b.
template <Floating S>
GRADUS_INLINE S remainder(S a, S b) {
  S r = fmod(a, b);
  return select((r != 0.0) & ((b < 0.0) ^ (r < 0.0)), r + b, r);
}

// sqrt(x^2 + y^2) without overflow. inf if an operand is infinite, even if the other is NaN.
template <Floating S>
GRADUS_INLINE S hypot(S x, S y) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  constexpr double big = by_width<S>(0x1p60, 0x1p500);
  constexpr double small = by_width<S>(0x1p-40, 0x1p-450);
  constexpr double down = by_width<S>(0x1p-70, 0x1p-600);
  constexpr double up = by_width<S>(0x1p90, 0x1p600);
  S ax = abs(x);
  S ay = abs(y);
  S high = select(ax > ay, ax, ay);
  S low = select(ax > ay, ay, ax);
  S scale = select(high > big, down, select(high < small, up, like(x, 1.0)));
  S back = select(high > big, 1.0 / down, select(high < small, 1.0 / up, like(x, 1.0)));
  S h = high * scale;
  S l = low * scale;
  Pair<S> hh = two_prod(h, h);
  Pair<S> ll = two_prod(l, l);
  Pair<S> root = sqrt_pair(add(hh, ll));
  S result = (root.hi + root.lo) * back;
  return select((ax == inf) | (ay == inf), inf, select(is_nan(x) | is_nan(y), x + y, result));
}

}  // namespace gradus::scalar
