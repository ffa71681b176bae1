// exp, tanh, sigmoid and silu with errors of up to 4 ulp in f32, for programs that choose speed. In
// f64 they are the functions of full accuracy.
//
// Method: those of exp.h and hyperbolic.h with single numbers in place of pairs, a minimax
// polynomial of one degree less, and one factor 2^k.
#pragma once

#include "gradus/scalar/exp.h"
#include "gradus/scalar/hyperbolic.h"

namespace gradus::scalar {

// x = k ln 2 + r, with k in the low bits of k_bits.
template <Floating S>
struct FastReduced {
  S r;
  typename S::Int k_bits;
};
template <Floating S>
GRADUS_INLINE FastReduced<S> fast_reduced(S x) {
  S shifted = fma(x, 0x1.71547652b82fep0, kShift<S>);
  S k = shifted - kShift<S>;
  S near = fma(k, -0x1.62e43p-1, x);
  return {fma(k, 0x1.05c61p-29, near), bits(shifted)};
}

// e^x. Results below 2^-125 are 0.
template <Floating S>
GRADUS_INLINE S fast_exp(S x) {
  if constexpr (S::bits == 64) {
    return exp(x);
  } else {
    S raised = select(x < -87.5, -87.5, x);
    FastReduced<S> a = fast_reduced(select(raised > 89.0, 89.0, raised));
    // 2 e^r and 2^(k-1): the largest k is 128, and 2^128 is not a float.
    S twice = horner(a.r, 2.0, 2.0, 0.99999984113, 0.333328393628, 0.0833364570168, 0.0167497140492,
                     0.0027673610555);
    return twice * exp2_of_bits<S>(a.k_bits - 1);
  }
}

// With t = e^(-2|x|) - 1: tanh |x| = -t / (2 + t).
template <Floating S>
GRADUS_INLINE S fast_tanh(S x) {
  if constexpr (S::bits == 64) {
    return tanh(x);
  } else {
    S falling = abs(x) * -2.0;
    FastReduced<S> a = fast_reduced(select(falling < -20.0, -20.0, falling));  // 1 from there on
    S tail = horner(a.r, 0.49999992057, 0.166664196814, 0.0416682285084, 0.0083748570246,
                    0.00138368052775);
    S rise = fma(a.r * a.r, tail, a.r);
    S scale = exp2_of_bits<S>(a.k_bits);
    S t = fma(scale, rise, scale - 1.0);
    return copysign(-t / (t + 2.0), x);
  }
}

// 1 / (1 + e^-x)
template <Floating S>
GRADUS_INLINE S fast_sigmoid(S x) {
  if constexpr (S::bits == 64) {
    return sigmoid(x);
  } else {
    return 1.0 / (fast_exp(-x) + 1.0);
  }
}

}  // namespace gradus::scalar
