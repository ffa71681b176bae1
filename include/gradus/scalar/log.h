// log, log1p, log2 and log10.
//
// Method (fdlibm's e_log.c, with a pair as result): x = 2^k (1 + f) with 1 + f in [sqrt(1/2),
// sqrt(2)), s = f / (2 + f), and log(1 + f) = f - f^2/2 + s (f^2/2 + s^2 Q(s^2)), where Q is a
// minimax polynomial.
#pragma once

#include "gradus/scalar/pair.h"

namespace gradus::scalar {

// x = 2^k m with m in [sqrt(1/2), sqrt(2)), for normal x > 0.
template <Floating S>
struct LogReduced {
  S m;
  S k;
};

template <Floating S>
GRADUS_INLINE LogReduced<S> log_reduced(S x) {
  using Int = typename S::Int;
  constexpr int mantissa = kMantissa<S>;
  constexpr int64_t root_half = S::bits == 64 ? 0x3fe6a09e667f3bcd : 0x3f3504f3;
  constexpr int64_t two = int64_t{1} << (S::bits - 2);  // the exponent of 2.0, followed by zeros
  constexpr double bias = S::bits == 64 ? 1024.0 : 128.0;
  constexpr double integers = S::bits == 64 ? 0x1p52 : 0x1p23;  // from this value on, the ulp is 1
  constexpr int64_t integers_bits = S::bits == 64 ? 0x4330000000000000 : 0x4b000000;
  Int offset = bits(x) - root_half;
  Int biased = lshr(offset + two, mantissa);
  S k = from_bits(biased + integers_bits) - (integers + bias);
  S m = from_bits((offset & ((int64_t{1} << mantissa) - 1)) + root_half);
  return {m, k};
}

// log(1 + f) as a pair, for 1 + f in [sqrt(1/2), sqrt(2)).
template <Floating S>
GRADUS_INLINE Pair<S> log1p_kernel(S f) {
  S s = f / (f + 2.0);
  S z = s * s;
  S series = [&]() GRADUS_INLINE_LAMBDA {
    if constexpr (S::bits == 64) {
      return poly(z, 0x1.5555555555573p-1, 0x1.99999999886cbp-2, 0x1.2492493b70cc3p-2,
                  0x1.c71c56b687f92p-3, 0x1.7465610554cb5p-3, 0x1.39b63920d8a38p-3,
                  0x1.2e462b7a87869p-3);
    } else {
      return poly(z, 0x1.555556p-1, 0x1.999a64p-2, 0x1.243d46p-2, 0x1.e2660ep-3);
    }
  }();
  S half = f * 0.5;
  S square = half * f;
  S square_lo = fma(half, f, -square);
  S curve = s * fma(z, series, square);
  S hi = f - square;
  S lo = f - hi - square - square_lo;
  return {hi, lo + curve};
}
// log(1 + f + f_lo), where f_lo is at most a few ulp of 1.
template <Floating S>
GRADUS_INLINE Pair<S> log1p_kernel(S f, S f_lo) {
  Pair<S> p = log1p_kernel(f);
  S slope = poly(f, 1.0, -1.0, 1.0, -1.0);  // approximately 1 / (1 + f)
  return {p.hi, fma(f_lo, slope, p.lo)};
}

// (p.hi + p.lo) + k ln 2, as a normalised pair.
template <Floating S>
GRADUS_INLINE Pair<S> add_k_ln2(Pair<S> p, S k) {
  constexpr double ln2_hi = by_width<S>(0x1.62e4p-1, 0x1.62e42feep-1);  // k ln2_hi is exact
  constexpr double ln2_lo = by_width<S>(0x1.7f7d1cp-20, 0x1.a39ef35793c76p-33);
  Pair<S> s = quick_two_sum(k * ln2_hi, p.hi);
  S lo = s.lo + fma(k, ln2_lo, p.lo);
  return quick_two_sum(s.hi, lo);
}

// Sets the special values of log: 0 gives -inf, negative values NaN, +inf +inf, NaN NaN.
template <Floating S>
GRADUS_INLINE S log_edges(S x, S result) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  S below = select(x == 0.0, -inf, like(x, nan));
  S above = select(x < inf, result, x);
  return select(x > 0.0, above, below);
}

// Like log_reduced, also for subnormal x > 0.
template <Floating S>
GRADUS_INLINE LogReduced<S> log_reduced_any(S x) {
  constexpr double smallest = by_width<S>(0x1p-126, 0x1p-1022);
  constexpr double up = by_width<S>(0x1p24, 0x1p54);
  typename S::Bool tiny = x < smallest;
  S normal = select(tiny, x * up, x);
  LogReduced<S> r = log_reduced(normal);
  return {r.m, r.k - select(tiny, by_width<S>(24.0, 54.0), like(x, 0.0))};
}

// log(x) for a normal, finite x > 0. Undefined for other x.
template <Floating S>
GRADUS_INLINE S log_inside(S x) {
  LogReduced<S> r = log_reduced(x);
  return add_k_ln2(log1p_kernel(r.m - 1.0), r.k).hi;
}

template <Floating S>
GRADUS_INLINE S log(S x) {
  LogReduced<S> r = log_reduced_any(x);
  Pair<S> p = log1p_kernel(r.m - 1.0);
  Pair<S> sum = add_k_ln2(p, r.k);
  return log_edges(x, sum.hi);
}

// log(1 + a.hi + a.lo) as a pair, for 1 + a normal, positive and finite. Keeps the relative
// accuracy of a small a.
template <Floating S>
GRADUS_INLINE Pair<S> log1p_pair(Pair<S> a) {
  constexpr double limit = by_width<S>(126.0, 1022.0);  // beyond it, the low part has no effect
  Pair<S> u = two_sum(like(a.hi, 1.0), a.hi);
  LogReduced<S> r = log_reduced(u.hi);
  S down = exp2_of_bits<S>(-to_int(select(r.k < limit, r.k, limit)));
  S lo = (u.lo + a.lo) * down;
  // u is exact, but f must not be coarser than a if k = 0 and a is small.
  Pair<S> f = quick_two_sum(r.m - 1.0, lo);
  return add_k_ln2(log1p_kernel(f.hi, f.lo), r.k);
}

// log(1 + x). -0 gives -0, -1 gives -inf, x < -1 gives NaN.
template <Floating S>
GRADUS_INLINE S log1p(S x) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  S inside = select((x > -1.0) & (x < inf), x, 0.0);
  Pair<S> p = log1p_pair(Pair<S>{inside, like(x, 0.0)});
  S result = select(abs(x) < by_width<S>(0x1p-30, 0x1p-60), x, p.hi);
  return log_edges(x + 1.0, result);
}

// log(x) times the pair factor.hi + factor.lo, plus k.
template <Floating S>
GRADUS_INLINE S scaled_log(Pair<S> p, double factor_hi, double factor_lo) {
  S hi = p.hi * factor_hi;
  S lo = fma(p.hi, factor_hi, -hi);
  S cross = fma(p.hi, factor_lo, p.lo * factor_hi);
  return hi + (lo + cross);
}

// Exact for powers of two.
template <Floating S>
GRADUS_INLINE S log2(S x) {
  constexpr double hi = by_width<S>(0x1.715476p0, 0x1.71547652b82fep0);
  constexpr double lo = by_width<S>(0x1.4ae0cp-26, 0x1.777d0ffda0d24p-56);
  LogReduced<S> r = log_reduced_any(x);
  Pair<S> p = log1p_kernel(r.m - 1.0);
  Pair<S> q = mul(quick_two_sum(p.hi, p.lo), Pair<S>{like(x, hi), like(x, lo)});
  Pair<S> sum = quick_two_sum(r.k, q.hi);
  return log_edges(x, sum.hi + (sum.lo + q.lo));
}

template <Floating S>
GRADUS_INLINE S log10(S x) {
  constexpr double hi = by_width<S>(0x1.bcb7b2p-2, 0x1.bcb7b1526e50ep-2);
  constexpr double lo = by_width<S>(-0x1.5b235ep-27, 0x1.95355baaafad3p-57);
  LogReduced<S> r = log_reduced_any(x);
  Pair<S> p = add_k_ln2(log1p_kernel(r.m - 1.0), r.k);
  return log_edges(x, scaled_log(p, hi, lo));
}

}  // namespace gradus::scalar
