// erfinv.
//
// Method (M. B. Giles, "Approximating the erfinv function", 2010): erfinv(x) = x p(w) with w =
// -log(1 - x^2), where p is a minimax polynomial in w, or in sqrt(w) for larger w. Below 1/2, a
// polynomial in x^2.
#pragma once

#include "gradus/scalar/log.h"

namespace gradus::scalar {

// (erfinv(x) / x - sqrt(pi)/2) / z in z = x^2 <= 1/4.
template <Floating S>
GRADUS_INLINE S erfinv_series(S z) {
  if constexpr (S::bits == 64) {
    return poly(z, 0x1.db29fb2fee628p-3, 0x1.053c2c0ab2a2ep-3, 0x1.62847c4dfd58bp-4,
                0x1.0a13173764eadp-4, 0x1.a7c8ba33e06c9p-5, 0x1.5ee3578294dc9p-5,
                0x1.2b28c3a04ef14p-5, 0x1.fed111d706b7dp-6, 0x1.017c6797988adp-5,
                0x1.26b72d8e40a28p-7, 0x1.27ec54daac8p-4, -0x1.31437a97e39c9p-4,
                0x1.cbd006eb5932fp-4);
  } else {
    return poly(z, 0x1.db29e4p-3, 0x1.054308p-3, 0x1.61276ap-4, 0x1.19a96cp-4, 0x1.f344b6p-6,
                0x1.8c59b2p-4);
  }
}

// The inverse of erf. +-1 gives +-inf, |x| > 1 gives NaN.
template <Floating S>
GRADUS_INLINE S erfinv(S x) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  S a = abs(x);
  S inside = select(a < 1.0, a, 0.0);
  S above = 1.0 + inside;
  S complement = select(inside < 0.75, fma(inside, -inside, 1.0), above * (1.0 - inside));
  LogReduced<S> reduced = log_reduced(complement);
  Pair<S> l = add_k_ln2(log1p_kernel(reduced.m - 1.0), reduced.k);
  S w = -l.hi;
  S root = sqrt(select(w > 1.0, w, 1.0));
  S p = w;
  // The rounding errors of u and w, times the slope of p near w = 0.
  S correction = w;
  if constexpr (S::bits == 64) {
    S u = w - 1.0;
    correction = (w - (u + 1.0) - l.lo) * 0.22;
    S central = poly(u, 0x1.209b9bb73e395p+0, 0x1.fb8fccc60652p-3, 0x1.16931130fad24p-8,
                     -0x1.3779be7c1cfeap-9, 0x1.a3f0f04a2e8a3p-14, 0x1.4075e5807f715p-15,
                     -0x1.1eee00d4e9d22p-18, -0x1.2f73f6f789db5p-21, 0x1.06ac90a330d48p-23,
                     0x1.9f136bc0e69dap-28, -0x1.9fa4601b68393p-29, 0x1.23a0ae6c83ee5p-36,
                     0x1.295c4454c3492p-34, -0x1.074c46d769814p-38, -0x1.806a433dfb62cp-40,
                     0x1.6def429292d94p-43, 0x1.0c69360246c27p-46, 0x1.f082348aa4e28p-52,
                     -0x1.4ed565bbef24dp-49, 0x1.8598b3976120dp-51, -0x1.e367479f0cfabp-54,
                     0x1.7acb05c3f2241p-57, -0x1.7c076c77f091bp-61, 0x1.c3436a01d2d84p-66,
                     -0x1.e6a8d43a29b6bp-72);
    S v = root - 3.25;
    S middle = poly(v, 0x1.8abcc380d5a48p+1, 0x1.0158a6d641d55p+0, 0x1.5ffcfe5b6cdb5p-8,
                    -0x1.ebadabba03b9fp-9, 0x1.468eeca940d0cp-9, -0x1.ba9240d83169dp-10,
                    0x1.f3cc545f25994p-11, -0x1.7448bcd9f1abbp-12, 0x1.932e8d6f335bep-16,
                    0x1.1e6abe259621ap-14, -0x1.8cf45acf859d6p-15, 0x1.a2416ea76dd47p-17,
                    0x1.8998593ae749ap-19, -0x1.0b77e00a1e9a3p-18, 0x1.8dc2a861f6ebfp-20,
                    -0x1.ddfdbb4663339p-26, -0x1.07e663ca07ef8p-22, 0x1.1aff59020263ap-23,
                    -0x1.63229edde2084p-26, -0x1.084445dc5264dp-26, 0x1.04cc77dc653dep-27);
    S t = root - 5.0;
    S tail = poly(t, 0x1.3664ddd1ad7fbp+2, 0x1.02a30d1fba10ep+0, -0x1.22ea5df1d3684p-13,
                  -0x1.c2f36aa2708a4p-13, 0x1.3ebf4efc93031p-14, -0x1.4a348faf88c9fp-16,
                  0x1.2fbcfca319df8p-18, -0x1.0a907bf7f3fccp-20, 0x1.ebe3a728423bcp-23,
                  -0x1.22254fdb80f71p-24, 0x1.f27db2112d481p-26, -0x1.06219bec59864p-26,
                  0x1.0ce397bbae95cp-27, -0x1.dc98c7d791f57p-29, 0x1.68a3af775c049p-30,
                  -0x1.e3a4dd41f4bf1p-32, 0x1.3ad0c9681fb99p-34, 0x1.7e5142cbee05p-35,
                  -0x1.6e21b1ae86b6cp-36);
    p = select(w < 6.25, central, select(w < 16.0, middle, tail));
  } else {
    S u = w - 1.0;
    correction = (w - (u + 1.0) - l.lo) * 0.22;
    S central =
        poly(u, 0x1.209b9cp+0, 0x1.fb8fdp-3, 0x1.1692fp-8, -0x1.377f6p-9, 0x1.a46f4ep-14,
             0x1.41fb0cp-15, -0x1.2f0356p-18, -0x1.04ee2ep-21, 0x1.23076cp-23, -0x1.1fcc2cp-27);
    S v = root - 3.2;
    S tail = poly(v, 0x1.844e34p+1, 0x1.013386p+0, 0x1.877ad6p-8, -0x1.19701p-8, 0x1.824032p-9,
                  -0x1.0509eep-9, 0x1.1f169ap-10, -0x1.7be5f6p-12, -0x1.6b1514p-15, 0x1.acec06p-14,
                  -0x1.de4cdcp-16);
    p = select(w < 5.0, central, tail);
  }
  // Near zero, a (sqrt(pi)/2 + z Q(z)) with z = x^2 keeps the leading constant exact.
  constexpr double slope = by_width<S>(0x1.c5bf8ap-1, 0x1.c5bf891b4ef6bp-1);
  constexpr double slope_lo = by_width<S>(-0x1.c96212p-26, -0x1.618f13eb7ca89p-55);
  S z = a * a;
  S near = a * fma(z, erfinv_series(z), slope_lo);
  S edge = select(a == 1.0, inf, like(x, nan));
  correction = select(w < 5.0, correction, 0.0);
  S far = fma(a, p, a * correction);
  S y = select(a < 0.5, fma(a, slope, near), far);
  return copysign(select(a < 1.0, y, edge), x);
}

}  // namespace gradus::scalar
