// erf and erfc.
//
// erf: x + x P(x^2) for |x| < 1, otherwise 1 - e^-Q(|x|) with Q near -log(erfc).
//
// erfc: 1 - erf(x) for |x| < 1/2, otherwise e^(-x^2) erfcx(x), where erfcx(x) (1 + 2x) is a
// polynomial in t = (x - k) / (x + k) (M. M. Shepherd and J. G. Laframboise, "Chebyshev
// approximation of (1 + 2x) exp(x^2) erfc x in 0 <= x < inf", Math. Comp. 36, 1981), here a minimax
// polynomial.
#pragma once

#include "gradus/scalar/exp.h"

namespace gradus::scalar {

// erfc(x) for 0 <= x.
template <Floating S>
GRADUS_INLINE S erfc_positive(S x) {
  constexpr double k = by_width<S>(2.0, 4.0);
  constexpr double top = by_width<S>(10.5, 27.5);  // 0 from this value on
  S a = select(x > top, top, x);
  S t = (a - k) / (a + k);
  S numerator = [&]() GRADUS_INLINE_LAMBDA {
    if constexpr (S::bits == 64) {
      return horner(t, 0x1.3ba5916e9fd7fp+0, -0x1.1df1ad154a29bp-3, 0x1.f7f5df66fd813p-7,
                    0x1.16ecefcfa5f48p-4, -0x1.9ddb23c3e90e8p-4, 0x1.7fee004df87cfp-4,
                    -0x1.0fb06dfe4fb1cp-4, 0x1.3079edf9caeddp-5, -0x1.09623882185f4p-6,
                    0x1.49c6719b143edp-8, -0x1.8d4a9e92f7785p-11, -0x1.a1de878cfc9a1p-13,
                    0x1.3be0bca6494ep-13, -0x1.9969bbb4719e2p-16, -0x1.78a4f56127b3p-17,
                    0x1.7fb02eec12c0ep-18, 0x1.43940955de5b6p-22, -0x1.c01248670ae44p-21,
                    0x1.0de55c1e63e8ap-24, 0x1.edebcf6f2d827p-24, -0x1.0e0eb28f09a97p-27,
                    -0x1.d2c7b50760ab8p-27, -0x1.e7dc613dd0c07p-30);
    } else {
      return horner(t, 0x1.46e80ep+0, -0x1.7bf5eap-4, -0x1.5407cep-3, 0x1.4ff9fap-3, -0x1.bc2744p-5,
                    -0x1.072618p-7, 0x1.1d6782p-7, 0x1.4842fp-10, -0x1.750356p-10, -0x1.a4679ep-12,
                    0x1.67c18cp-13, 0x1.51ee6ap-14);
    }
  }();
  S twice = a * 2.0;
  Pair<S> denominator = two_sum(twice, like(x, 1.0));
  Pair<S> scaled = div(Pair<S>{numerator, like(x, 0.0)}, denominator);
  Pair<S> square = two_prod(a, a);
  ExpReduced<S> e = exp_reduced(-square.hi, -square.lo);
  Pair<S> m = quick_two_sum(like(x, 1.0), e.p.hi);
  Pair<S> product = mul(Pair<S>{m.hi, m.lo + e.p.lo}, scaled);
  return scale_by_exp2(product.hi, e.k);
}

// erf(x) - x, for |x| < 1.
template <Floating S>
GRADUS_INLINE S erf_excess(S x) {
  S z = x * x;
  if constexpr (S::bits == 64) {
    return x * poly(z, 0x1.06eba8214db68p-3, -0x1.812746b0379c2p-2, 0x1.ce2f21a041018p-4,
                    -0x1.b82ce312062bcp-6, 0x1.565bccfa9a825p-8, -0x1.c02db072f3fep-11,
                    0x1.f9a2bf73f0c68p-14, -0x1.f4ca94990cb86p-17, 0x1.b9827b1885f9bp-20,
                    -0x1.5c16e30fb0d45p-23, 0x1.d784936618cc2p-27, -0x1.acdff90b8ebd8p-31);
  } else {
    return x * poly(z, 0x1.06eba8p-3, -0x1.81273ep-2, 0x1.ce2d2p-4, -0x1.b7fbb6p-6, 0x1.5419fap-8,
                    -0x1.a485f8p-11, 0x1.4ae4c6p-14);
  }
}

// -log(erfc(x)) for 1 <= x where erf(x) is less than 1. Sufficiently accurate for 1 - erfc(x).
template <Floating S>
GRADUS_INLINE S minus_log_erfc(S x) {
  if constexpr (S::bits == 64) {
    return poly(x - 1.0, 0x1.d97fbf27aa2a1p+0, 0x1.51c9b0006c222p+1, 0x1.afabc11a2a941p-1,
                0x1.5477f09a3d6c2p-5, -0x1.48c9d395696cp-7, 0x1.033f5c19ea24p-9,
                -0x1.f1b0c5ad90cap-13, -0x1.b92413ff74fefp-16, 0x1.c84174379d26ep-16,
                -0x1.44595dcf54049p-17, 0x1.1d89cefe65878p-19, -0x1.b18b844d083a5p-23,
                -0x1.fdff7cce46df3p-25, 0x1.22a53101e0adap-25, -0x1.2814d6cedc28ap-27,
                0x1.6e6009b4f49afp-30, -0x1.08bc647692224p-33, 0x1.589822c6395a3p-38);
  } else {
    return poly(x - 1.0, 0x1.d97fcp+0, 0x1.51c9aap+1, 0x1.afad36p-1, 0x1.53f8c4p-5, -0x1.441794p-7,
                0x1.dea4c2p-10, -0x1.8504ap-13);
  }
}

template <Floating S>
GRADUS_INLINE S erf(S x) {
  constexpr double top = by_width<S>(3.95, 6.0);  // 1 from this value on
  S a = abs(x);
  S near = x + erf_excess(x);
  S bounded = select(a > top, top, select(a < 1.0, 1.0, a));
  ExpReduced<S> e = exp_reduced(-minus_log_erfc(bounded));
  S scale = exp2_of_bits<S>(e.k_bits);
  S far = fma(-scale, e.p.hi, 1.0 - scale);
  return select(a < 1.0, near, copysign(far, x));
}

template <Floating S>
GRADUS_INLINE S erfc(S x) {
  // 1 - erf(x) on both sides of zero. Exact except for one rounding and the small excess.
  Pair<S> one_less = quick_two_sum(like(x, 1.0), -x);
  S small = one_less.hi + (one_less.lo - erf_excess(x));
  S y = erfc_positive(abs(x));
  S large = select(is_nan(x), x, select(x < 0.0, 2.0 - y, y));
  return select(abs(x) < 0.5, small, large);
}

}  // namespace gradus::scalar
