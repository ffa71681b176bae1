// Operations on the bits of integers, and on bools as single bits. Floats are refused. The common
// dtype is ATen's.
#pragma once

#include "gradus/rules.h"
#include "gradus/table.h"

namespace gradus::ops {

// Infers as a pointwise operator does, and refuses what has no bits.
void infer_bits(InferCall& call, const PointwiseInfo& info, bool takes_bool);

// What these operators share. Bools are computed as the integers 0 and 1.
template <class Op, bool takes_bool>
struct Bitwise : Binary<> {
  static constexpr bool zero_gradient = true;
  static void infer(InferCall& call) { infer_bits(call, PointwiseEntry<Op>::info(), takes_bool); }
};

struct BitwiseAnd : Bitwise<BitwiseAnd, true> {
  static constexpr std::string_view name = "bitwise_and", doc = "z = the bits that x and y have";
  template <class S>
  GRADUS_INLINE static S scalar(S x, S y) {
    if constexpr (S::is_floating)
      return x;
    else
      return x & y;
  }
};

struct BitwiseOr : Bitwise<BitwiseOr, true> {
  static constexpr std::string_view name = "bitwise_or", doc = "z = the bits that x or y have";
  template <class S>
  GRADUS_INLINE static S scalar(S x, S y) {
    if constexpr (S::is_floating)
      return x;
    else
      return x | y;
  }
};

struct BitwiseXor : Bitwise<BitwiseXor, true> {
  static constexpr std::string_view name = "bitwise_xor",
                                    doc = "z = the bits that one of x and y has";
  template <class S>
  GRADUS_INLINE static S scalar(S x, S y) {
    if constexpr (S::is_floating)
      return x;
    else
      return x ^ y;
  }
};

// The result wraps. A y that is negative, or not less than the number of bits, leaves no bit.
struct BitwiseLeftShift : Bitwise<BitwiseLeftShift, false> {
  static constexpr std::string_view name = "bitwise_left_shift",
                                    doc = "z = x * 2^y; 0 where y < 0 or y >= x's bits";
  template <class S>
  GRADUS_INLINE static S scalar(S x, S y) {
    if constexpr (S::is_floating) {
      return x;
    } else {
      typename S::Bool moves = (y >= 0) & (y < 64);
      S by = select(moves, y, 0);
      return select(moves, shl(x, by), 0);
    }
  }
};

// Arithmetic: what comes in are copies of the sign. A y that is negative, or not less than the
// number of bits, leaves the sign alone: 0 or -1.
struct BitwiseRightShift : Bitwise<BitwiseRightShift, false> {
  static constexpr std::string_view name = "bitwise_right_shift",
                                    doc =
                                        "z = floor(x / 2^y); 0 or -1 where y < 0 or y >= x's bits";
  template <class S>
  GRADUS_INLINE static S scalar(S x, S y) {
    if constexpr (S::is_floating) {
      return x;
    } else {
      typename S::Bool moves = (y >= 0) & (y < 64);
      if constexpr (S::is_unsigned) return select(moves, lshr(x, select(moves, y, 0)), 0);
      S sign = x >> 63;
      S by = select(moves, y, 63);
      return lshr(x ^ sign, by) ^ sign;
    }
  }
};

struct BitwiseNot {  // bools: logical_not; integers: all bits turned, -x - 1
  static constexpr std::string_view name = "bitwise_not", doc = "y = x with every bit turned";
  static constexpr bool zero_gradient = true;
  static void compose(ComposeCall&);
};

using BitwiseOperators =
    std::tuple<BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseLeftShift, BitwiseRightShift, BitwiseNot>;

}  // namespace gradus::ops
