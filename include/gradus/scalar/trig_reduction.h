// The argument reduction of sin, cos and tan: x = quadrant * pi/2 + r with |r| <= pi/4, for every
// finite x.
//
// Below 2^30 (f64) or 2^13 (f32): Cody and Waite, with pi/2 in three parts and products that are
// exact with fma. Above: M. H. Payne and R. N. Hanek, "Radian reduction for trigonometric
// functions" (1983). 2/pi is stored in pieces of p bits, where p is the precision of S. Pieces
// whose product with x is a multiple of 4 are skipped: selects on the size of x shift the row of
// pieces and scale x down. The products of the next five pieces are exact as pairs, and are added
// in three levels.
#pragma once

#include "gradus/scalar/pair.h"

namespace gradus::scalar {

// x = quadrant * pi/2 + r.hi + r.lo. Only the two low bits of the quadrant matter.
template <Floating S>
struct TrigReduced {
  Pair<S> r;
  typename S::Int quadrant;
};

// A shift into the sign bit, because g++ 12 does not vectorise a test of the lowest bit.
template <Floating S>
GRADUS_INLINE typename S::Bool odd_quadrant(const TrigReduced<S>& t) {
  return (t.quadrant << (S::bits - 1)) < 0;
}

template <Floating S>
GRADUS_INLINE TrigReduced<S> reduce_moderate(S x) {
  constexpr double p1 = by_width<S>(0x1.921fb6p0, 0x1.921fb54442d18p0);
  constexpr double p2 = by_width<S>(-0x1.777a5cp-25, 0x1.1a62633145c07p-54);
  constexpr double p3 = by_width<S>(-0x1.ee59dap-50, -0x1.f1976b7ed8fbcp-110);
  S shifted = fma(x, 0x1.45f306dc9c883p-1, kShift<S>);
  S k = shifted - kShift<S>;
  S near = fma(k, -p1, x);
  // Near a multiple of pi/2 the remainder is small, so no bit may be lost.
  Pair<S> second = two_prod(k, like(x, p2));
  // Exact for any order of the magnitudes: if |near| is smaller, both are multiples of one ulp.
  Pair<S> rest = quick_two_sum(near, -second.hi);
  S lo = fma(k, -p3, rest.lo - second.lo);
  return {quick_two_sum(rest.hi, lo), bits(shifted)};
}

// 2/pi in pieces of 53 and of 24 bits, each in [0, 1): 2/pi = sum of piece[j] 2^(-p j).
template <Floating S>
struct TwoOverPi;
template <Floating S>
requires(S::bits == 64) struct TwoOverPi<S> {
  static constexpr int precision = 53;
  static constexpr int levels = 5;  // shifts by 16, 8, 4, 2, 1 pieces
  static constexpr double piece[] = {
      0x1.45f306dc9c882p-1, 0x1.4a7f09d5f47d4p-1, 0x1.a6ee06db14accp-1, 0x1.3c439041fe516p-1,
      0x1.d5ef5de2b0db8p-3, 0x1.2371d2126e97p-2,  0x1.924bba82746p-8,   0x1.21cfe1deb1cb1p-1,
      0x1.4d39f74411af8p-3, 0x1.4baed1213a671p-1, 0x1.8135a2fbf209cp-1, 0x1.91d639835339fp-1,
      0x1.272117e2ef7e4p-2, 0x1.41d8ffc4bffeep-2, 0x1.02cc07f79788cp-1, 0x1.6b414da3eda6cp-2,
      0x1.fb3c9f2c26dd2p-2, 0x1.d18fd9a797fa8p-1, 0x1.6ba93dd63f5f2p-1, 0x1.f17b3d0739f78p-1,
      0x1.4a525d4d7f6bfp-1, 0x1.88fc6ae842bp-2,   0x1.98237e3db5d5fp-1};
};
template <Floating S>
requires(S::bits == 32) struct TwoOverPi<S> {
  static constexpr int precision = 24;
  static constexpr int levels = 3;
  static constexpr double piece[] = {0x1.45f306p-1, 0x1.b9391p-2,  0x1.529fcp-4,
                                     0x1.3abe88p-3, 0x1.ea69bap-1, 0x1.81b6c4p-1,
                                     0x1.2b3278p-1, 0x1.0e4104p-2, 0x1.fca2c6p-1};
};

// 2^n as a double, at compile time.
constexpr double two_to(int n) {
  double r = 1;
  for (int i = 0; i < (n < 0 ? -n : n); ++i) r *= n < 0 ? 0.5 : 2.0;
  return r;
}

// For any finite |x| >= 1. Infinities and NaN give NaN.
template <Floating S>
GRADUS_INLINE TrigReduced<S> reduce_huge(S x) {
  using Table = TwoOverPi<S>;
  constexpr int p = Table::precision;
  constexpr int pieces = sizeof(Table::piece) / sizeof(double);
  constexpr int window = 5;
  S zero = like(x, 0.0);
  // If |x| >= 2^(p + 1 + p n), the products of the first n pieces are multiples of 4.
  S y = abs(x);
  S row[pieces];
  unroll<pieces>([&](auto j) GRADUS_INLINE_LAMBDA { row[j] = like(zero, Table::piece[j]); });
  unroll<Table::levels>([&](auto level) GRADUS_INLINE_LAMBDA {
    constexpr int n = 1 << (Table::levels - 1 - level);
    typename S::Bool shift = y >= two_to(p + 1 + p * n);
    y = select(shift, y * two_to(-p * n), y);
    // After this level, up to n - 1 pieces may still be skipped.
    unroll<window + n - 1>([&](auto j) GRADUS_INLINE_LAMBDA {
      if constexpr (j + n < pieces) row[j] = select(shift, row[j + n], row[j]);
    });
  });
  // Products with the next pieces: exact pairs of decreasing size.
  Pair<S> product[window];
  unroll<window>([&](auto j)
                     GRADUS_INLINE_LAMBDA { product[j] = two_prod(y, row[j] * two_to(-p * j)); });
  // v - 4 trunc(v / 4). It has the sign of v, so it is also exact for small v.
  auto modulo_4 = [&](S v) GRADUS_INLINE_LAMBDA { return fma(trunc(v * 0.25), -4.0, v); };
  // First level: each addend is below 4. The errors belong to the second level, about 2^-p, and the
  // rest to the third.
  Pair<S> a = two_sum(modulo_4(product[0].hi), modulo_4(product[0].lo));
  Pair<S> b = two_sum(a.hi, modulo_4(product[1].hi));
  Pair<S> c = two_sum(b.hi, product[1].lo);
  Pair<S> d = two_sum(c.hi, product[2].hi);
  Pair<S> e = two_sum(a.lo, b.lo);
  Pair<S> f = two_sum(e.hi, c.lo);
  Pair<S> g = two_sum(f.hi, d.lo);
  Pair<S> h = two_sum(g.hi, product[2].lo);
  Pair<S> i = two_sum(h.hi, product[3].hi);
  S third = e.lo + f.lo + g.lo + h.lo + i.lo + product[3].lo + product[4].hi;
  S shifted = d.hi + kShift<S>;
  S fraction = d.hi - (shifted - kShift<S>);
  Pair<S> sum = two_sum(fraction, i.hi);
  Pair<S> turn = quick_two_sum(sum.hi, sum.lo + third);
  constexpr double half_pi_hi = by_width<S>(0x1.921fb6p0, 0x1.921fb54442d18p0);
  constexpr double half_pi_lo = by_width<S>(-0x1.777a5cp-25, 0x1.1a62633145c07p-54);
  Pair<S> r = mul(turn, Pair<S>{like(x, half_pi_hi), like(x, half_pi_lo)});
  // Restores the sign of x: the angle and the quadrant change sign.
  typename S::Int quadrant = bits(shifted);
  typename S::Bool negative = x < 0.0;
  return {{select(negative, -r.hi, r.hi), select(negative, -r.lo, r.lo)},
          select(negative, -quadrant, quadrant)};
}

// Selects between two reductions, lane by lane.
template <Floating S>
GRADUS_INLINE TrigReduced<S> select(typename S::Bool c, TrigReduced<S> a, TrigReduced<S> b) {
  return {{select(c, a.r.hi, b.r.hi), select(c, a.r.lo, b.r.lo)},
          select(c, a.quadrant, b.quadrant)};
}

// Whether reduce_moderate is valid: |x| below 2^13 (f32) or 2^30 (f64), or NaN.
template <Floating S>
GRADUS_INLINE typename S::Bool is_moderate_angle(S x) {
  return !(abs(x) >= by_width<S>(0x1p13, 0x1p30));
}

template <Floating S>
GRADUS_INLINE TrigReduced<S> trig_reduced(S x) {
  TrigReduced<S> near = reduce_moderate(x);
  typename S::Bool huge = !is_moderate_angle(x);
  return select_rare(
      huge, [x]() GRADUS_INLINE_LAMBDA { return reduce_huge(x); }, near);
}

}  // namespace gradus::scalar
