// erfinv.
//
// Method (M. B. Giles, "Approximating the erfinv function", 2010): erfinv(x) = x p(w) with
// w = -log(1 - x^2), p a minimax polynomial in w near zero and in sqrt(w) further out.
#pragma once

#include "ops/scalar/log.h"

namespace gradus::scalar {

// The inverse of erf: +-1 -> +-inf, beyond NaN.
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
  S correction = w;  // what the rounding of u and w took from p, by p's slope near w = 0
  if constexpr (S::bits == 64) {
    S u = w - 3.125;
    correction = (w - (u + 3.125) - l.lo) * 0.22;
    S central = poly(u, 0x1.a755e7c99ae86p+0, 0x1.ebd80d9b13dfap-3, -0x1.8b6c33114ead6p-8,
                     -0x1.84576948356afp-11, 0x1.879c2a20b5292p-13, -0x1.d1d1f7ca21f51p-17,
                     -0x1.6e8a53cde8ff4p-20, 0x1.c6b4f88be2ddep-22, -0x1.f36ced46a6131p-26,
                     -0x1.1a9eb0edf409p-28, 0x1.20f5364028d61p-30, -0x1.dc3f141c1838ap-35,
                     -0x1.c8a3f9a1d0b5dp-37, 0x1.7235e2db7e438p-39, -0x1.6bdbce9513077p-44,
                     -0x1.686e85117446cp-45, 0x1.d6c699525eedbp-48, -0x1.6fbcb523d9209p-55,
                     -0x1.1ca606a408c62p-53, 0x1.1ebf300b8e2bfp-56, 0x1.9a8b994c4d263p-61,
                     -0x1.9bb749d233b1p-62, 0x1.3891df8108902p-66, 0x1.e66a7da043b4cp-69,
                     -0x1.6b1025fc5b765p-72);
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
    S u = w - 2.5;
    correction = (w - (u + 2.5) - l.lo) * 0.22;
    S central = poly(u, 0x1.805c5ep+0, 0x1.f91e8cp-3, -0x1.11c42p-8, -0x1.486646p-10,
                     0x1.c9c596p-13, -0x1.4cfcf4p-18, -0x1.ccfc02p-19, 0x1.f43f0ep-22,
                     0x1.35d5eep-26, -0x1.2d6d4ap-27, 0x1.7121cp-32);
    S v = root - 3.2;
    S tail = poly(v, 0x1.844e34p+1, 0x1.013386p+0, 0x1.877ad6p-8, -0x1.19701p-8, 0x1.824032p-9,
                  -0x1.0509eep-9, 0x1.1f169ap-10, -0x1.7be5f6p-12, -0x1.6b1514p-15, 0x1.acec06p-14,
                  -0x1.de4cdcp-16);
    p = select(w < 5.0, central, tail);
  }
  S edge = select(a == 1.0, copysign(inf, x), like(x, nan));
  correction = select(w < 5.0, correction, 0.0);
  return select(a < 1.0, fma(x, p, x * correction), edge);
}

}  // namespace gradus::scalar
