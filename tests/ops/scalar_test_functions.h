// The list of the scalar world's functions that its tests walk over: what each is called, how far
// off it may be, what it is (in long double), and where it is worth looking.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "gradus/scalar/math.h"

namespace gradus::scalar::test {

using Wide = long double;
static_assert(std::numeric_limits<Wide>::digits > 60, "the references need more than double");

inline Wide sigmoid_reference(Wide x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
inline Wide log1p_exp_reference(Wide x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}
inline Wide logsigmoid_reference(Wide x) { return -log1p_exp_reference(-x); }

// Newton's method on erf, or on erfc in the tail.
inline Wide erfinv_reference(Wide x) {
  Wide a = fabsl(x);
  if (!(a < 1)) return a == 1 ? copysignl(INFINITY, x) : NAN;
  const Wide half_root_pi = 0.886226925452758013649083741670572591L;
  if (a < 1e-6L) return x * half_root_pi * (1 + 0.261799387799149436538553615273291907L * a * a);
  Wide l = log1pl(-a * a);
  Wide b = 4.330746750799873L + l / 2;
  Wide y = sqrtl(sqrtl(b * b - l * 6.802721088435375L) - b);
  for (int i = 0; i < 6; ++i) {
    Wide error = a < 0.5L ? a - erfl(y) : erfcl(y) - (1 - a);
    Wide step = error * expl(y * y) * half_root_pi;
    y += step / (1 - y * step);
  }
  return copysignl(y, x);
}

// psi_n by its recurrence and the Euler-Maclaurin sum, below zero by reflection (n <= 2).
inline Wide polygamma_reference(int n, Wide x) {
  const Wide pi = 3.14159265358979323846264338327950288L;
  if (x <= 0) {
    Wide f = x - rintl(x);
    if (n == 0 && x == 0) return copysignl(INFINITY, -x);
    if (f == 0) return n == 0 ? NAN : n == 1 ? INFINITY : -INFINITY;
    Wide s = sinl(pi * f), c = cosl(pi * f);
    if (n == 0) return polygamma_reference(0, 1 - x) - pi * c / s;
    if (n == 1) return -polygamma_reference(1, 1 - x) + pi * pi / (s * s);
    return polygamma_reference(2, 1 - x) - 2 * pi * pi * pi * c / (s * s * s);
  }
  // B_2j / (2j)!
  const Wide b[] = {1.0L / 12,          -1.0L / 720,
                    1.0L / 30240,       -1.0L / 1209600,
                    1.0L / 47900160,    -691.0L / 1307674368000,
                    1.0L / 74724249600, -3617.0L / 10670622842880000};
  Wide sum = 0, z = x;
  for (; z < 40; z += 1) sum += powl(z, -n - 1);
  if (n == 0) {
    Wide tail = logl(z) - 1 / (2 * z), factor = 1;  // (2j - 1)!
    for (int j = 0; j < 8; ++j) {
      tail -= b[j] * factor * powl(z, -2 * (j + 1));
      factor *= Wide(2 * j + 2) * (2 * j + 3);
    }
    return tail - sum;
  }
  Wide s = n + 1, rising = s;
  sum += powl(z, 1 - s) / (s - 1) + powl(z, -s) / 2;
  for (int j = 0; j < 8; ++j) {
    sum += b[j] * rising * powl(z, -s - 2 * j - 1);
    rising *= (s + 2 * j + 1) * (s + 2 * j + 2);
  }
  return n == 1 ? sum : -2 * sum;
}

// Where a function is looked at: [low, high] in units, or by exponent.
struct Range {
  double low, high;
};

// Of one argument. `ulp32` and `ulp64` bound the error where `away` is zero; elsewhere the error
// may also be `away` ulp of 1 (functions with roots that floats cannot name).
#define GRADUS_SCALAR_UNARY_TESTS(X)                                          \
  X(exp, std::exp, 0.97, 0.97, 0)                                             \
  X(exp2, std::exp2, 1.0, 1.0, 0)                                             \
  X(expm1, std::expm1, 1.05, 1.05, 0)                                         \
  X(log, std::log, 0.66, 0.62, 0)                                             \
  X(log1p, std::log1p, 0.7, 0.7, 0)                                           \
  X(log2, std::log2, 0.7, 0.65, 0)                                            \
  X(log10, std::log10, 0.65, 0.62, 0)                                         \
  X(sin, std::sin, 0.8, 0.8, 0)                                               \
  X(cos, std::cos, 0.8, 0.8, 0)                                               \
  X(tan, std::tan, 0.95, 0.95, 0)                                             \
  X(asin, std::asin, 0.65, 0.65, 0)                                           \
  X(acos, std::acos, 0.65, 0.65, 0)                                           \
  X(atan, std::atan, 0.85, 0.85, 0)                                           \
  X(sinh, std::sinh, 1.05, 1.05, 0)                                           \
  X(cosh, std::cosh, 0.9, 0.9, 0)                                             \
  X(tanh, std::tanh, 0.85, 0.85, 0)                                           \
  X(asinh, std::asinh, 0.7, 0.7, 0)                                           \
  X(acosh, std::acosh, 0.7, 0.7, 0)                                           \
  X(atanh, std::atanh, 0.7, 0.7, 0)                                           \
  X(sigmoid, ::gradus::scalar::test::sigmoid_reference, 0.8, 0.8, 0)          \
  X(logsigmoid, ::gradus::scalar::test::logsigmoid_reference, 1.1, 1.1, 0)    \
  X(log1p_exp, ::gradus::scalar::test::log1p_exp_reference, 1.1, 1.1, 0)      \
  X(erf, std::erf, 1.4, 1.4, 0)                                               \
  X(erfc, std::erfc, 1.7, 2.0, 0)                                             \
  X(erfinv, ::gradus::scalar::test::erfinv_reference, 2.0, 2.0, 0)            \
  X(lgamma, std::lgamma, 1.5, 1.5, 2)                                         \
  X(digamma, ::gradus::scalar::test::digamma_reference, 1.5, 1.5, 1)          \
  X(trigamma, ::gradus::scalar::test::trigamma_reference, 6.0, 6.0, 0)        \
  X(polygamma2, ::gradus::scalar::test::polygamma2_reference, 7.0, 7.0, 7)    \
  X(fast_exp, std::exp, 1.1, 0.97, 1e-30)                                     \
  X(fast_tanh, std::tanh, 2.6, 0.85, 0)                                       \
  X(fast_sigmoid, ::gradus::scalar::test::sigmoid_reference, 2.5, 0.8, 1e-30) \
  X(sqrt, std::sqrt, 0.5, 0.5, 0)                                             \
  X(floor, std::floor, 0, 0, 0)                                               \
  X(ceil, std::ceil, 0, 0, 0)                                                 \
  X(trunc, std::trunc, 0, 0, 0)                                               \
  X(round_even, std::rint, 0, 0, 0)

#define GRADUS_SCALAR_BINARY_TESTS(X) \
  X(pow, powl, 0.95, 0.95)            \
  X(atan2, atan2l, 1.1, 1.1)          \
  X(hypot, hypotl, 0.8, 0.8)          \
  X(fmod, fmodl, 0, 0)                \
  X(remainder, ::gradus::scalar::test::remainder_reference, 0.5, 0.5)

inline Wide digamma_reference(Wide x) { return polygamma_reference(0, x); }
inline Wide trigamma_reference(Wide x) { return polygamma_reference(1, x); }
inline Wide polygamma2_reference(Wide x) { return polygamma_reference(2, x); }

inline Wide remainder_reference(Wide a, Wide b) {
  Wide r = fmodl(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
template <Floating S>
GRADUS_INLINE S polygamma2(S x) {
  return polygamma(2, x);
}

// The error of `got` in units of the last place of the exact `want`; huge for a wrong special value
// or a zero of the wrong sign.
template <class T>
double ulp_error(T got, Wide want) {
  const double wrong = 1e30;
  if (std::isnan(want)) return std::isnan(got) ? 0 : wrong;
  if (std::isnan(got)) return wrong;
  T rounded = static_cast<T>(want);
  if (got == 0 && rounded == 0 && std::signbit(got) != std::signbit(rounded)) return wrong;
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0 : wrong;
  int exponent = rounded == 0 ? std::numeric_limits<T>::min_exponent - 1 : std::ilogb(rounded);
  int last = std::max(exponent, std::numeric_limits<T>::min_exponent - 1) -
             std::numeric_limits<T>::digits + 1;
  return static_cast<double>(fabsl(ldexpl(static_cast<Wide>(got) - want, -last)));
}

// Numbers worth trying: specials, powers of two and their neighbours, multiples of pi/2 and of 1/2,
// neighbours of 1, then uniform in several ranges and in every exponent. Always the same ones.
template <class T>
std::vector<T> inputs(int random_count) {
  using Limits = std::numeric_limits<T>;
  std::vector<T> v;
  auto around = [&](T x) {
    for (T y : {x, std::nextafter(x, Limits::infinity()), std::nextafter(x, -Limits::infinity())}) {
      v.push_back(y);
      v.push_back(-y);
    }
  };
  for (T x : {T(0), Limits::infinity(), Limits::quiet_NaN(), Limits::max(), Limits::min(),
              Limits::denorm_min()}) {
    v.push_back(x);
    v.push_back(-x);
  }
  for (int e = Limits::min_exponent - Limits::digits; e < Limits::max_exponent;
       e += std::is_same_v<T, float> ? 3 : 17) {
    around(std::ldexp(T(1), e));
  }
  for (int i = 1; i <= 24; ++i) around(T(i) / 2);
  for (int i = 1; i < 40000; i = i * 3 / 2 + 1) around(static_cast<T>(i * 1.5707963267948966));
  for (T x : {0.25,
              0.41421356,
              0.6,
              0.7071067811865476,
              1.4142135623730951,
              0.34657359,
              1.0397,
              9.01,
              19.06,
              16.635,
              36.7,
              88.72284,
              89.4159,
              103.97,
              104.0,
              709.7827,
              710.4758,
              744.44,
              745.13,
              708.4,
              87.34,
              26.54,
              10.05,
              5.86,
              3.83,
              8192.0,
              1073741824.0}) {
    around(static_cast<T>(x));
  }
  std::mt19937_64 generator(20);
  std::uniform_real_distribution<double> unit(-1, 1);
  for (int i = 0; i < random_count; ++i) {
    for (double scale : {1.0, 4.0, 12.0, 100.0, 800.0})
      v.push_back(static_cast<T>(scale * unit(generator)));
    double wide = (Limits::max_exponent - Limits::min_exponent + Limits::digits) / 2.0;
    double middle = (Limits::max_exponent + Limits::min_exponent - Limits::digits) / 2.0;
    v.push_back(static_cast<T>(std::exp2(middle + wide * unit(generator))));
    v.push_back(static_cast<T>(std::copysign(std::exp2(10 * unit(generator)), unit(generator))));
  }
  return v;
}

}  // namespace gradus::scalar::test
