// lgamma, digamma, trigamma and polygamma.
//
// Methods: recurrences up to where the asymptotic series holds (Abramowitz and Stegun 6.1.15,
// 6.1.41, 6.3.5, 6.3.18, 6.4.6, 6.4.11), and reflection below zero (6.1.17, 6.3.7, 6.4.7). Between
// 1 and 2, lgamma is (x - 1)(x - 2) times a minimax polynomial, so that its zeros are exact. Near
// the other zeros (those of lgamma below zero and those of digamma), errors are absolute:
// docs/math-functions.md.
#pragma once

#include "gradus/scalar/pow.h"
#include "gradus/scalar/trig.h"

namespace gradus::scalar {

// |sin(pi x)| and |cos(pi x)|, from the distance to the nearest integer, which is exact.
template <Floating S>
struct SinCosPi {
  Pair<S> sine;    // >= 0
  Pair<S> cosine;  // >= 0
  // x - round(x). Its sign is that of the tangent.
  S fraction;
};
template <Floating S>
GRADUS_INLINE SinCosPi<S> sin_cos_pi(S x) {
  S fraction = x - round_even(x);
  S magnitude = abs(fraction);
  typename S::Bool swap = magnitude > 0.25;
  S angle = select(swap, 0.5 - magnitude, magnitude);
  Pair<S> pi{like(x, kHalfPiHi<S> * 2.0), like(x, kHalfPiLo<S> * 2.0)};
  Pair<S> r = mul(pi, angle);
  Pair<S> s = sin_kernel(r);
  Pair<S> c = cos_kernel(r);
  s = quick_two_sum(s.hi, s.lo);
  c = quick_two_sum(c.hi, c.lo);
  Pair<S> sine{select(swap, c.hi, s.hi), select(swap, c.lo, s.lo)};
  Pair<S> cosine{select(swap, s.hi, c.hi), select(swap, s.lo, c.lo)};
  return {sine, cosine, fraction};
}

// log Gamma(x) for x > 0.
template <Floating S>
GRADUS_INLINE Pair<S> lgamma_positive(S x) {
  constexpr int top = 8;  // Stirling's series from this value on
  constexpr double last = top;
  // y in [1, 2] (or x itself for x >= top), and the product of the steps.
  S product = like(x, 1.0);
  S y = x;
  unroll<top - 2>([&](auto) GRADUS_INLINE_LAMBDA {
    typename S::Bool step = (y > 2.0) & (x < last);
    S lower = y - 1.0;
    product = select(step, product * lower, product);
    y = select(step, lower, y);
  });
  typename S::Bool below = x < 1.0;
  typename S::Bool far = x >= last;
  // Below 1: log Gamma(x) = log Gamma(x + 1) - log x.
  Pair<S> raised = two_sum(y, select(below, 1.0, like(x, 0.0)));
  S argument = select(below, x, select(far, x, product));
  Pair<S> l = log_precise(argument);
  // Between 1 and 2.
  Pair<S> u = quick_two_sum(raised.hi - 1.5, raised.lo);
  S near_u = select(far, 0.0, u.hi);
  S series = [&]() GRADUS_INLINE_LAMBDA {
    if constexpr (S::bits == 64) {
      return poly(near_u, 0x1.eeb95b094c191p-2, -0x1.2aed059bd608ap-3, 0x1.01af62a2929eap-4,
                  -0x1.007aa83cee101p-5, 0x1.13342352788eap-6, -0x1.34dbda14a5988p-7,
                  0x1.64f06652bb48bp-8, -0x1.a5035229aaa02p-9, 0x1.f814b77c8022dp-10,
                  -0x1.313e8bc65fef9p-10, 0x1.750af179509e8p-11, -0x1.cb448e727386p-12,
                  0x1.1c73409b5f854p-12, -0x1.62443bb1ebf7cp-13, 0x1.bb2cd922e9fb5p-14,
                  -0x1.1535190efaf3ep-14, 0x1.5c990f70431afp-15, -0x1.cb08ff3d79fc6p-16,
                  0x1.26ea7aced8046p-16, -0x1.0edabbef7f1a6p-17, 0x1.3d988ea0ba444p-18,
                  -0x1.0ba5fffcabd17p-17, 0x1.69f78dd1092f3p-18);
    } else {
      return poly(near_u, 0x1.eeb95cp-2, -0x1.2aed06p-3, 0x1.01af68p-4, -0x1.0079a2p-5,
                  0x1.133062p-6, -0x1.35362ap-7, 0x1.65cfacp-8, -0x1.987aa2p-9, 0x1.e0954ep-10,
                  -0x1.8fe266p-10, 0x1.01f034p-10);
    }
  }();
  Pair<S> from_one = add(u, like(x, 0.5));
  Pair<S> from_two = add(u, like(x, -0.5));
  Pair<S> parabola = mul(from_one, from_two);
  Pair<S> middle = mul(parabola, series);
  Pair<S> signed_log{select(below, -l.hi, l.hi), select(below, -l.lo, l.lo)};
  Pair<S> near = add(signed_log, middle);
  // Stirling's series: (x - 1/2)(log x - 1) - 1/2 + log(2 pi)/2 + 1/(12 x) - ...
  S inverse = 1.0 / x;
  S inverse_square = inverse * inverse;
  S correction = [&]() GRADUS_INLINE_LAMBDA {
    if constexpr (S::bits == 64) {
      return poly(inverse_square, 0x1.5555555555555p-4, -0x1.6c16c16c16c17p-9,
                  0x1.a01a01a01a01ap-11, -0x1.3813813813814p-11, 0x1.b951e2b18ff23p-11,
                  -0x1.f6ab0d9993c7dp-10, 0x1.a41a41a41a41ap-8, -0x1.e4286cb0f5398p-6,
                  0x1.6fe96381e068p-3, -0x1.6476701181f3ap+0);
    } else {
      return poly(inverse_square, 0x1.5555555555555p-4, -0x1.6c16c16c16c17p-9,
                  0x1.a01a01a01a01ap-11, -0x1.3813813813814p-11);
    }
  }();
  constexpr double tail_hi = by_width<S>(0x1.acfe3ap-2, 0x1.acfe390c97d69p-2);
  constexpr double tail_lo = by_width<S>(-0x1.e6d052p-27, 0x1.3494bc9001442p-56);
  Pair<S> less = add(l, like(x, -1.0));
  Pair<S> half_down = two_sum(x, like(x, -0.5));
  Pair<S> main = mul(less, half_down);
  Pair<S> small = quick_two_sum(like(x, tail_hi), fma(inverse, correction, tail_lo));
  Pair<S> stirling = add(main, small);
  return {select(far, stirling.hi, near.hi), select(far, stirling.lo, near.lo)};
}

// log |Gamma(x)|. Poles (0, -1, ...) and infinities give +inf.
template <Floating S>
GRADUS_INLINE S lgamma(S x) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  constexpr double smallest = by_width<S>(0x1p-40, 0x1p-70);
  constexpr double top =
      by_width<S>(0x1.895f1cp121, 0x1.754d9278b51a8p1014);  // the first value that overflows
  S magnitude = abs(x);
  typename S::Bool inside = (magnitude > smallest) & (magnitude < top);
  S a = select(inside, magnitude, 1.0);
  Pair<S> positive = lgamma_positive(a);
  // Below zero: log(pi / (|x| |sin pi x|)) - log Gamma(|x|).
  SinCosPi<S> angle = sin_cos_pi(a);
  Pair<S> product = mul(angle.sine, a);
  typename S::Bool pole = product.hi == 0.0;
  S safe = select(pole, 1.0, product.hi);
  Pair<S> l = log_precise(safe);
  constexpr double log_pi_hi = by_width<S>(0x1.250d04p0, 0x1.250d048e7a1bdp0);
  constexpr double log_pi_lo = by_width<S>(0x1.1cf438p-25, 0x1.7abf2ad8d5088p-57);
  Pair<S> log_product{l.hi, l.lo + product.lo / safe};
  Pair<S> sum = add(positive, log_product);
  Pair<S> mirrored = add(Pair<S>{like(x, log_pi_hi), like(x, log_pi_lo)}, -sum);
  S y = select(x < 0.0, mirrored.hi + mirrored.lo, positive.hi + positive.lo);
  y = select((x < 0.0) & pole, inf, y);
  // Near zero: -log |x|. Far below zero, every number is an integer, that is, a pole.
  S edge = select(magnitude <= smallest, -log(magnitude), like(x, inf));
  return select(is_nan(x), x, select(inside, y, edge));
}

// Gamma'(x) / Gamma(x), with the special values of ATen: +-0 gives -+inf, negative integers and
// -inf give NaN.
template <Floating S>
GRADUS_INLINE S digamma(S x) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr int steps = S::bits == 64 ? 10 : 6;
  typename S::Bool below = x < 0.0;
  // For x < 0: psi(x) = psi(1 - x) - pi / tan(pi x), and psi(1 - x) = psi(-x) + 1 / -x.
  S a = select(x == 0.0, 1.0, abs(x));
  typename S::Bool near = a < static_cast<double>(steps);
  // The sum of 1 / (a + i), as numerator / denominator.
  S first = select(near, a, 1.0);
  Pair<S> numerator{like(x, 1.0), like(x, 0.0)};
  Pair<S> denominator{first, like(x, 0.0)};
  unroll<steps - 1>([&](auto i) GRADUS_INLINE_LAMBDA {
    Pair<S> term = two_sum(first, like(x, 1.0 + i));
    numerator = add(mul(numerator, term), denominator);
    denominator = mul(denominator, term);
  });
  Pair<S> steps_sum = div(numerator, denominator);
  Pair<S> shifted = two_sum(a, like(x, static_cast<double>(steps)));
  S z = select(near, shifted.hi, a);
  S z_lo = select(near, shifted.lo, 0.0);
  Pair<S> l = log_precise(select(z < inf, z, 1.0));
  Pair<S> inverse = div(Pair<S>{like(x, 1.0), like(x, 0.0)}, Pair<S>{z, z_lo});
  S square = inverse.hi * inverse.hi;
  S series = [&]() GRADUS_INLINE_LAMBDA {
    if constexpr (S::bits == 64) {
      return poly(square, 0x1.5555555555555p-4, -0x1.1111111111111p-7, 0x1.041041041041p-8,
                  -0x1.1111111111111p-8, 0x1.f07c1f07c1f08p-8, -0x1.5995995995996p-6,
                  0x1.5555555555555p-4, -0x1.c5e5e5e5e5e5ep-2, 0x1.86e7f9b9fe6e8p+1);
    } else {
      return poly(square, 0x1.5555555555555p-4, -0x1.1111111111111p-7, 0x1.041041041041p-8,
                  -0x1.1111111111111p-8);
    }
  }();
  Pair<S> half{inverse.hi * -0.5, inverse.lo * -0.5};
  Pair<S> sum = add(l, half);
  S low = fma(-square, series, z_lo * inverse.hi);
  sum = add(sum, low);
  Pair<S> less = add(sum, Pair<S>{-steps_sum.hi, -steps_sum.lo});
  Pair<S> psi{select(near, less.hi, sum.hi), select(near, less.lo, sum.lo)};
  // The reflection.
  SinCosPi<S> angle = sin_cos_pi(a);
  Pair<S> cotangent = div(angle.cosine, angle.sine);
  Pair<S> pi{like(x, kHalfPiHi<S> * 2.0), like(x, kHalfPiLo<S> * 2.0)};
  Pair<S> turned = mul(cotangent, pi);
  typename S::Bool minus = angle.fraction < 0.0;
  Pair<S> image{select(minus, -turned.hi, turned.hi), select(minus, -turned.lo, turned.lo)};
  Pair<S> reciprocal = div(Pair<S>{like(x, 1.0), like(x, 0.0)}, Pair<S>{a, like(x, 0.0)});
  Pair<S> mirrored = add(add(psi, reciprocal), image);
  S y = select(below, mirrored.hi + mirrored.lo, psi.hi + psi.lo);
  y = select(below & (angle.fraction == 0.0), nan, y);
  // If the result is 1 / x, its correction may overflow.
  y = select(a < by_width<S>(0x1p-60, 0x1p-120), -1.0 / x, y);
  y = select(a == inf, x, y);
  y = select(x == -inf, nan, y);
  return select(x == 0.0, copysign(inf, -x), select(is_nan(x), x, y));
}

// x^n for a constant n >= 0, by squaring.
template <Floating S>
GRADUS_INLINE S power_of(S x, int n) {
  S result = like(x, 1.0);
  S square = x;
  for (int left = n; left > 0; left /= 2) {
    if (left % 2 == 1) result = result * square;
    if (left > 1) square = square * square;
  }
  return result;
}

// The n-th derivative of digamma. n is an attribute, 0 <= n <= 30. Above zero it is (-1)^(n+1) n!
// zeta(n + 1, x), by the Euler-Maclaurin formula; below zero it uses the n-th derivative of the
// cotangent. At a pole, +inf or -inf as on the side above it.
template <Floating S>
GRADUS_INLINE S polygamma(int n, S x) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  if (n == 0) return digamma(x);
  constexpr double bernoulli[] = {
      0x1.5555555555555p-4,  -0x1.6c16c16c16c17p-10, 0x1.1566abc011567p-15, -0x1.bbd779334ef0bp-21,
      0x1.66a8f2bf70ebep-26, -0x1.22805d644267fp-31, 0x1.d6db2c4e09162p-37, -0x1.7da4e1f79955cp-42,
      0x1.355871d652e9ep-47, -0x1.f57d968caacf1p-53, 0x1.967e1f09c376fp-58, -0x1.497d9033a2b5cp-63};
  constexpr int terms = S::bits == 64 ? 9 : 5;
  const int s = n + 1;
  const int steps = (S::bits == 64 ? 10 : 5) + n;
  double factorial = 1;
  for (int i = 2; i <= n; ++i) factorial *= i;
  // For x < 0, the sum is that of 1 - x.
  typename S::Bool below = x < 0.0;
  S a = select(below, 1.0 - x, x);
  // The sum of (a + i)^-s, small terms first.
  S z = a + static_cast<double>(steps);
  S inverse = 1.0 / z;
  S inverse_square = inverse * inverse;
  S tail = like(x, 0.0);
  double rising = s;  // s (s + 1) ... with 2j factors
  double weights[terms];
  for (int j = 0; j < terms; ++j) {
    weights[j] = bernoulli[j] * rising;
    rising *= static_cast<double>(s + 2 * j + 1) * static_cast<double>(s + 2 * j + 2);
  }
  for (int j = terms - 1; j >= 0; --j) tail = fma(tail, inverse_square, weights[j]);
  // z^-n (1 / n + (1/2 + tail / z) / z)
  S head = fma(tail, inverse, 0.5);
  S scaled = power_of(inverse, n) * fma(head, inverse, 1.0 / n);
  Pair<S> sum{scaled, like(x, 0.0)};
  for (int i = steps - 1; i >= 0; --i) {
    S term = power_of(1.0 / (a + static_cast<double>(i)), s);
    Pair<S> next = quick_two_sum(term, sum.hi);
    sum = {next.hi, next.lo + sum.lo};
  }
  S sum_lo = select(is_finite(sum.lo), sum.lo, 0.0);
  S zeta = sum.hi + sum_lo;
  const double sign = n % 2 == 1 ? 1.0 : -1.0;
  S above = select(a == inf, 0.0, zeta) * (sign * factorial);
  // d^n/dt^n cot t = P_n(cot t), P_0 = c, P_(k+1) = -(1 + c^2) P_k'.
  SinCosPi<S> angle = sin_cos_pi(abs(x));
  S plain = angle.cosine.hi / angle.sine.hi;
  S exact = quotient(angle.cosine, angle.sine);
  S cotangent = select(angle.sine.hi < by_width<S>(0x1p-60, 0x1p-500), plain, exact);
  cotangent = select((angle.fraction < 0.0) ^ below, -cotangent, cotangent);
  constexpr int max_order = 30;
  double coefficients[max_order + 2] = {0, 1};
  for (int k = 1; k <= n; ++k) {
    double next[max_order + 2] = {};
    for (int i = 1; i <= k; ++i) {
      next[i - 1] -= i * coefficients[i];
      next[i + 1] -= i * coefficients[i];
    }
    for (int i = 0; i <= k + 1; ++i) coefficients[i] = next[i];
  }
  double pi_power = 3.141592653589793;
  for (int i = 0; i < n; ++i) pi_power *= 3.141592653589793;
  S derivative = like(x, coefficients[n + 1] * pi_power);
  for (int i = n; i >= 0; --i) derivative = fma(derivative, cotangent, coefficients[i] * pi_power);
  // psi_n(x) = (-1)^n psi_n(1 - x) - pi^(n+1) P_n(cot pi x)
  S mirrored = above * -sign - derivative;
  S y = select(below, mirrored, above);
  typename S::Bool pole = (x <= 0.0) & (angle.fraction == 0.0);
  y = select(pole, sign * inf, y);
  return select(is_nan(x), x, y);
}

template <Floating S>
GRADUS_INLINE S trigamma(S x) {
  return polygamma(1, x);
}

}  // namespace gradus::scalar
