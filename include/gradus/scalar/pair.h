// Parts of the mathematical functions: polynomials, powers of two, and pairs.
//
// A Pair is an unevaluated sum hi + lo with |lo| at most about one ulp of hi. It has twice the
// precision of S. Its arithmetic uses the error-free transformations of Dekker and Knuth (T. J.
// Dekker, "A floating-point technique for extending the available precision", 1971; D. E. Knuth,
// TAOCP 2, 4.2.2), with fma for products.
#pragma once

#include <utility>

#include "gradus/scalar/num.h"

namespace gradus::scalar {

// Calls f(integral_constant<int, 0>) to N - 1 in order: a loop that is fully unrolled, so that the
// compiler vectorises around it. The body is a lambda with GRADUS_INLINE_LAMBDA.
#define GRADUS_INLINE_LAMBDA __attribute__((always_inline))
template <int N, class F>
GRADUS_INLINE void unroll(F f) {
  [&]<int... I>(std::integer_sequence<int, I...>) GRADUS_INLINE_LAMBDA {
    (f(std::integral_constant<int, I>{}), ...);
  }
  (std::make_integer_sequence<int, N>{});
}

// c0 + c1 x + c2 x^2 + ... by Horner's scheme, with one fma per step.
template <Floating S>
GRADUS_INLINE S horner(S x, double c0) {
  return like(x, c0);
}
template <Floating S>
GRADUS_INLINE S horner(S x, double c0, double c1) {
  return fma(x, c1, c0);
}
template <Floating S, class... C>
GRADUS_INLINE S horner(S x, double c0, double c1, double c2, C... rest) {
  S tail = horner(x, c1, c2, rest...);
  return fma(x, tail, c0);
}

// c0 + c2 x^2 + ..., with every other coefficient.
template <Floating S>
GRADUS_INLINE S every_other(S x, S, double c0) {
  return like(x, c0);
}
template <Floating S>
GRADUS_INLINE S every_other(S x, S, double c0, double) {
  return like(x, c0);
}
template <Floating S>
GRADUS_INLINE S every_other(S, S square, double c0, double, double c2) {
  return fma(square, c2, c0);
}
template <Floating S>
GRADUS_INLINE S every_other(S, S square, double c0, double, double c2, double) {
  return fma(square, c2, c0);
}
template <Floating S, class... C>
GRADUS_INLINE S every_other(S x, S square, double c0, double, double c2, double c3, double c4,
                            C... rest) {
  S tail = every_other(x, square, c2, c3, c4, rest...);
  return fma(square, tail, c0);
}

// The same polynomial with half the latency: c0 + x (c1 + c3 x^2 + ... + x (c2 + c4 x^2 + ...)).
// The first coefficient is added last, for accuracy.
template <Floating S, class... C>
GRADUS_INLINE S poly(S x, double c0, double c1, double c2, C... rest) {
  if constexpr (sizeof...(rest) < 3) {
    return horner(x, c0, c1, c2, rest...);
  } else {
    S square = x * x;
    S odd = every_other(x, square, c1, c2, rest...);
    S even = every_other(x, square, c2, rest...);
    S tail = fma(x, even, odd);
    return fma(x, tail, c0);
  }
}

// Returns the constant for the width of S.
template <Floating S>
constexpr double by_width(double f32, double f64) {
  return S::bits == 32 ? f32 : f64;
}

// The width of the stored mantissa, and the bits of 1.0.
template <Floating S>
inline constexpr int kMantissa = S::bits == 64 ? 52 : 23;
template <Floating S>
inline constexpr int64_t kOneBits = S::bits == 64 ? 0x3ff0000000000000 : 0x3f800000;
// Adding this constant rounds to an integer, which is then in the low bits.
template <Floating S>
inline constexpr double kShift = S::bits == 64 ? 0x1.8p52 : 0x1.8p23;

// 2^k for the integer k in the low bits of k_bits. 2^k must be normal.
template <Floating S>
GRADUS_INLINE S exp2_of_bits(typename S::Int k_bits) {
  return from_bits((k_bits << kMantissa<S>)+kOneBits<S>);
}

// x * 2^k for integral k, |k| <= 2000 (f64) or 250 (f32), with overflow, gradual underflow and one
// rounding.
template <Floating S>
GRADUS_INLINE S scale_by_exp2(S x, S k) {
  S whole = k + kShift<S>;
  S half = fma(k, 0.5, kShift<S>);
  typename S::Int half_bits = bits(half);
  typename S::Int rest_bits = bits(whole) - half_bits;
  return x * exp2_of_bits<S>(half_bits) * exp2_of_bits<S>(rest_bits);
}

template <Floating S>
struct Pair {
  S hi;
  S lo;
};

// a + b exactly, for |a| >= |b| or a = 0.
template <Floating S>
GRADUS_INLINE Pair<S> quick_two_sum(S a, S b) {
  S hi = a + b;
  S back = hi - a;
  return {hi, b - back};
}

// a + b exactly.
template <Floating S>
GRADUS_INLINE Pair<S> two_sum(S a, S b) {
  S hi = a + b;
  S b_part = hi - a;
  S a_part = hi - b_part;
  S b_error = b - b_part;
  S a_error = a - a_part;
  return {hi, a_error + b_error};
}

// a * b exactly.
template <Floating S>
GRADUS_INLINE Pair<S> two_prod(S a, S b) {
  S hi = a * b;
  return {hi, fma(a, b, -hi)};
}

template <Floating S>
GRADUS_INLINE Pair<S> operator-(Pair<S> a) {
  return {-a.hi, -a.lo};
}

// A sum with a relative error of a few 2^-2p, if there is no heavy cancellation.
template <Floating S>
GRADUS_INLINE Pair<S> add(Pair<S> a, Pair<S> b) {
  Pair<S> s = two_sum(a.hi, b.hi);
  S low = a.lo + b.lo;
  return quick_two_sum(s.hi, s.lo + low);
}
template <Floating S>
GRADUS_INLINE Pair<S> add(Pair<S> a, S b) {
  Pair<S> s = two_sum(a.hi, b);
  return quick_two_sum(s.hi, s.lo + a.lo);
}

template <Floating S>
GRADUS_INLINE Pair<S> mul(Pair<S> a, Pair<S> b) {
  Pair<S> p = two_prod(a.hi, b.hi);
  S cross = fma(a.hi, b.lo, a.lo * b.hi);
  return quick_two_sum(p.hi, p.lo + cross);
}
template <Floating S>
GRADUS_INLINE Pair<S> mul(Pair<S> a, S b) {
  Pair<S> p = two_prod(a.hi, b);
  return quick_two_sum(p.hi, fma(a.lo, b, p.lo));
}

// a / b as a pair, with one division.
template <Floating S>
GRADUS_INLINE Pair<S> div(Pair<S> a, Pair<S> b) {
  S inverse = 1.0 / b.hi;
  S q = a.hi * inverse;
  S rest = fma(-q, b.hi, a.hi);
  S low = fma(-q, b.lo, a.lo);
  return {q, (rest + low) * inverse};
}

// a / b, rounded once, almost always correctly.
template <Floating S>
GRADUS_INLINE S quotient(Pair<S> a, Pair<S> b) {
  S inverse = 1.0 / b.hi;
  S q = a.hi * inverse;
  S rest = fma(-q, b.hi, a.hi);
  S low = fma(-q, b.lo, a.lo);
  return fma(rest + low, inverse, q);
}

// sqrt(a) as a pair, for normal a > 0. 0 gives 0.
template <Floating S>
GRADUS_INLINE Pair<S> sqrt_pair(Pair<S> a) {
  S root = sqrt(a.hi);
  S rest = fma(-root, root, a.hi) + a.lo;
  S twice = root + root;
  return {root, rest / select(root == 0.0, 1.0, twice)};
}

}  // namespace gradus::scalar
