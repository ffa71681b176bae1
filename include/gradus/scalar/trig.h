// sin, cos, tan, asin, acos, atan and atan2.
#pragma once

#include "gradus/scalar/trig_reduction.h"

namespace gradus::scalar {

// sin(r) - r.hi and cos(r), for |r| <= pi/4.
template <Floating S>
GRADUS_INLINE Pair<S> sin_kernel(Pair<S> r) {
  S z = r.hi * r.hi;
  S series = [&]() GRADUS_INLINE_LAMBDA {
    if constexpr (S::bits == 64) {
      return poly(z, -0x1.5555555555555p-3, 0x1.111111111110bp-7, -0x1.a01a01a018b33p-13,
                  0x1.71de3a533e21p-19, -0x1.ae64529cb7febp-26, 0x1.612094bdc04b8p-33,
                  -0x1.aaa5f8a2ea901p-41);
    } else {
      return poly(z, -0x1.555556p-3, 0x1.111108p-7, -0x1.a00fa2p-13, 0x1.6cd89cp-19);
    }
  }();
  S cube = z * r.hi;
  S cosine = fma(z, -0.5, 1.0);
  S low = r.lo * cosine;
  return {r.hi, fma(cube, series, low)};
}
template <Floating S>
GRADUS_INLINE Pair<S> cos_kernel(Pair<S> r) {
  S z = r.hi * r.hi;
  S series = [&]() GRADUS_INLINE_LAMBDA {
    if constexpr (S::bits == 64) {
      return poly(z, 0x1.5555555555555p-5, -0x1.6c16c16c16c13p-10, 0x1.a01a01a0193ffp-16,
                  -0x1.27e4fb7659633p-22, 0x1.1eed8d002a2edp-29, -0x1.939397358f985p-37,
                  0x1.aaeccd8c5d706p-45);
    } else {
      return poly(z, 0x1.555556p-5, -0x1.6c16b8p-10, 0x1.a0114ap-16, -0x1.243234p-22);
    }
  }();
  S half = z * 0.5;
  S half_lo = fma(r.hi * 0.5, r.hi, -half);
  S hi = 1.0 - half;
  S lost = 1.0 - hi - half - half_lo;
  S fourth = z * z;
  S low = fma(fourth, series, -(r.hi * r.lo));
  return {hi, lost + low};
}

template <Floating S>
GRADUS_INLINE S select_sign(typename S::Int quadrant, S y) {
  return from_bits(bits(y) ^ ((quadrant & 2) << (S::bits - 2)));
}

// The last steps after the reduction of the angle.
template <Floating S>
GRADUS_INLINE S sin_of(S x, const TrigReduced<S>& t) {
  Pair<S> s = sin_kernel(t.r);
  Pair<S> c = cos_kernel(t.r);
  S sine = s.hi + s.lo;
  S y = select(odd_quadrant(t), c.hi + c.lo, sine);
  return select(x == 0.0, x, select_sign(t.quadrant, y));
}
template <Floating S>
GRADUS_INLINE S cos_of(const TrigReduced<S>& t) {
  Pair<S> s = sin_kernel(t.r);
  Pair<S> c = cos_kernel(t.r);
  S sine = s.hi + s.lo;
  S y = select(odd_quadrant(t), sine, c.hi + c.lo);
  return select_sign(t.quadrant + 1, y);
}
template <Floating S>
GRADUS_INLINE S tan_of(S x, const TrigReduced<S>& t) {
  Pair<S> s = sin_kernel(t.r);
  Pair<S> c = cos_kernel(t.r);
  s = quick_two_sum(s.hi, s.lo);
  c = quick_two_sum(c.hi, c.lo);
  typename S::Bool swap = odd_quadrant(t);
  Pair<S> n{select(swap, -c.hi, s.hi), select(swap, -c.lo, s.lo)};
  Pair<S> d{select(swap, s.hi, c.hi), select(swap, s.lo, c.lo)};
  return select(x == 0.0, x, quotient(n, d));
}

// -0 gives -0, infinities give NaN.
template <Floating S>
GRADUS_INLINE S sin(S x) {
  return sin_of(x, trig_reduced(x));
}
template <Floating S>
GRADUS_INLINE S cos(S x) {
  return cos_of(trig_reduced(x));
}
template <Floating S>
GRADUS_INLINE S tan(S x) {
  return tan_of(x, trig_reduced(x));
}

// Bit-identical to sin if is_moderate_angle(x), otherwise undefined. A loop that checked its block
// uses these functions, so that it is vectorised.
template <Floating S>
GRADUS_INLINE S sin_moderate(S x) {
  return sin_of(x, reduce_moderate(x));
}
template <Floating S>
GRADUS_INLINE S cos_moderate(S x) {
  return cos_of(reduce_moderate(x));
}
template <Floating S>
GRADUS_INLINE S tan_moderate(S x) {
  return tan_of(x, reduce_moderate(x));
}

// (asin(s) - s) / s^3 in z = s^2 <= 1/4.
template <Floating S>
GRADUS_INLINE S asin_series(S z) {
  if constexpr (S::bits == 64) {
    return poly(z, 0x1.555555555557p-3, 0x1.333333332ec8ap-4, 0x1.6db6db71a76c7p-5,
                0x1.f1c71ab6006f9p-6, 0x1.6e8bdbcbe4d05p-6, 0x1.1c4a200f3029bp-6,
                0x1.ca1ba6379cc73p-7, 0x1.75a1b902a3c1ap-7, 0x1.60b00ed0f77bbp-7,
                0x1.ed607c737cc35p-9, 0x1.619568dc89f53p-6, -0x1.55671825c4dd1p-6,
                0x1.0a8b7e0a76be4p-5);
  } else {
    return poly(z, 0x1.55554cp-3, 0x1.333868p-4, 0x1.6cb0c8p-5, 0x1.04871ep-5, 0x1.d9802ap-7,
                0x1.33444cp-5);
  }
}

// pi/2 as a pair of constants.
template <Floating S>
inline constexpr double kHalfPiHi = S::bits == 64 ? 0x1.921fb54442d18p0 : 0x1.921fb6p0;
template <Floating S>
inline constexpr double kHalfPiLo = S::bits == 64 ? 0x1.1a62633145c07p-54 : -0x1.777a5cp-25;

// |x| <= 1/2: x + x^3 R(x^2). Otherwise: asin x = pi/2 - 2 asin(sqrt((1 - x) / 2)).
template <Floating S>
struct AsinParts {
  typename S::Bool small;
  // asin(|x|), or asin(sqrt((1 - |x|) / 2)); s.lo is small
  Pair<S> s;
};
template <Floating S>
GRADUS_INLINE AsinParts<S> asin_parts(S magnitude) {
  typename S::Bool small = magnitude < 0.5;
  S square = magnitude * magnitude;
  S under = fma(magnitude, -0.5, 0.5);
  S z = select(small, square, under);
  Pair<S> root = sqrt_pair(Pair<S>{under, like(under, 0.0)});
  S s = select(small, magnitude, root.hi);
  S s_lo = select(small, 0.0, root.lo);
  S cube = s * z;
  return {small, {s, fma(cube, asin_series(z), s_lo)}};
}

template <Floating S>
GRADUS_INLINE S asin(S x) {
  AsinParts<S> a = asin_parts(abs(x));
  S near = a.s.hi + a.s.lo;
  Pair<S> rest = quick_two_sum(like(x, kHalfPiHi<S>), a.s.hi * -2.0);
  S low = fma(a.s.lo, -2.0, kHalfPiLo<S>);
  S far = rest.hi + (rest.lo + low);
  return copysign(select(a.small, near, far), x);
}

template <Floating S>
GRADUS_INLINE S acos(S x) {
  AsinParts<S> a = asin_parts(abs(x));
  typename S::Bool negative = x < 0.0;
  // |x| < 1/2: pi/2 - x - ...
  S s = select(negative, -a.s.hi, a.s.hi);
  S s_lo = select(negative, -a.s.lo, a.s.lo);
  Pair<S> rest = quick_two_sum(like(x, kHalfPiHi<S>), -s);
  S near = rest.hi + (rest.lo + (kHalfPiLo<S> - s_lo));
  // 2s, or pi - 2s.
  S twice = (a.s.hi + a.s.lo) * 2.0;
  Pair<S> back = quick_two_sum(like(x, kHalfPiHi<S> * 2.0), a.s.hi * -2.0);
  S low = fma(a.s.lo, -2.0, kHalfPiLo<S> * 2.0);
  S far = select(negative, back.hi + (back.lo + low), twice);
  return select(a.small, near, far);
}

// The angle of (d, n), for n and d >= 0, or pi minus the angle if `left`.
template <Floating S>
GRADUS_INLINE S atan_quadrants(S n, S d, typename S::Bool left) {
  typename S::Bool swap = n > d;
  S low = select(swap, d, n);
  S high = select(swap, n, d);
  // low / high is in [0, 1]. Above tan(pi/8) its angle is pi/4 + atan((low - high) / (low + high)).
  typename S::Bool turn = low > high * 0.41421356237309503;
  Pair<S> difference = two_sum(low, -high);
  Pair<S> sum = two_sum(low, high);
  Pair<S> top{select(turn, difference.hi, low), select(turn, difference.lo, 0.0)};
  Pair<S> bottom{select(turn, sum.hi, high), select(turn, sum.lo, 0.0)};
  S t = top.hi / bottom.hi;
  S t_lo = (fma(-t, bottom.hi, top.hi) + fma(-t, bottom.lo, top.lo)) / bottom.hi;
  S z = t * t;
  S series = [&]() GRADUS_INLINE_LAMBDA {
    if constexpr (S::bits == 64) {
      return poly(z, -0x1.5555555555555p-2, 0x1.9999999999782p-3, -0x1.249249247d115p-3,
                  0x1.c71c71ba64e6bp-4, -0x1.745d1519a2a9bp-4, 0x1.3b137592e26bfp-4,
                  -0x1.110cd3886d2c6p-4, 0x1.e178a160f0d85p-5, -0x1.aba419e5205afp-5,
                  0x1.717c54a09d2cap-5, -0x1.136941d239381p-5, 0x1.f6619c029be3p-7);
    } else {
      return poly(z, -0x1.55554ap-2, 0x1.999218p-3, -0x1.23bd02p-3, 0x1.b24f96p-4, -0x1.f3a518p-5);
    }
  }();
  S low_part = fma(t * z, series, t_lo);
  // The angle is base * pi/4 plus or minus (t + low_part).
  S zero = like(n, 0.0);
  S base = select(turn, 1.0, zero);
  S mirrored = select(swap, 2.0 - base, base);
  S whole = select(left, 4.0 - mirrored, mirrored);
  typename S::Bool minus = swap ^ left;
  S signed_t = select(minus, -t, t);
  S signed_low = select(minus, -low_part, low_part);
  Pair<S> angle = quick_two_sum(whole * (kHalfPiHi<S> * 0.5), signed_t);
  return angle.hi + (angle.lo + fma(whole, kHalfPiLo<S> * 0.5, signed_low));
}

template <Floating S>
GRADUS_INLINE S atan(S x) {
  constexpr double big = by_width<S>(0x1p60, 0x1p500);
  S magnitude = abs(x);
  S bounded = select(magnitude > big, big, magnitude);
  S y = atan_quadrants(bounded, like(x, 1.0), like(x < x, false));
  return copysign(select(is_nan(x), x, y), x);
}

// The angle of the point (x, y): C's atan2.
template <Floating S>
GRADUS_INLINE S atan2(S y, S x) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  constexpr double big = by_width<S>(0x1p100, 0x1p1000);
  constexpr double small = by_width<S>(0x1p-60, 0x1p-500);
  constexpr double down = by_width<S>(0x1p-40, 0x1p-100);
  constexpr double up = by_width<S>(0x1p80, 0x1p500);
  S ay = abs(y);
  S ax = abs(x);
  S larger = select(ay > ax, ay, ax);
  S scale = select(larger > big, down, select(larger < small, up, like(x, 1.0)));
  typename S::Bool infinite = larger == inf;
  S n = select(infinite, select(ay == inf, 1.0, like(x, 0.0)), ay * scale);
  S d = select(infinite, select(ax == inf, 1.0, like(x, 0.0)), ax * scale);
  S divisor = select(larger == 0.0, 1.0, d);  // 0 / 0 has the angle 0 or pi
  S angle = atan_quadrants(n, divisor, sign_bit_set(x));
  return copysign(select(is_nan(x) | is_nan(y), x + y, angle), y);
}

}  // namespace gradus::scalar
