// The scalar types of plain numbers: Num<float>, Num<double>, Num<int64_t> and Num<uint64_t>.
//
// The definition of a pointwise operator is a function template over a scalar type S. The same
// source runs on numbers (Num<T>, the reference loops), on LLVM values (which emits vector IR) and
// on text (which writes CUDA source). Each of these is a scalar world. This header is the first
// one, and this comment is the contract of all of them.
//
// What a scalar world must provide
// --------------------------------
// Types and constants of S
//   S::is_floating            constexpr bool
//   S::bits                   constexpr int, 32 or 64; selects polynomials (`if constexpr`)
//   S::is_unsigned            (integer S) constexpr bool: comparisons, / and >> are unsigned; the
//                             other operations wrap, so their bits do not depend on the sign
//   S::Bool                   the truth value of a lane: & | ^ ! between Bools, no == and !=
//   S::Int                    (floating S) the integer scalar of the same width
//   S::Literal                the type of constants: double for floating S, int64_t for integer S;
//                             a negative constant of an unsigned S wraps
// Constants. A constant needs an operand of the same world, because an emitter has to know where to
// put the constant.
//   S op literal, literal op S      for every binary operator and comparison below
//   like(x, literal)                a constant in x's world, rounded to S once, to nearest even
//   like(x, bool)                   for Bool x: a constant truth value
// Floating S
//   + - * / unary -                 IEEE 754, round to nearest even, not contracted or reassociated
//   fma(a, b, c)                    one rounding; an argument may be a literal if another is not
//   sqrt, abs, copysign(magnitude, sign), floor, ceil, trunc, round_even
//   == != < <= > >=                 ordered as in C: false with NaN, except !=
//   select(Bool, S, S)              both sides are evaluated; either side may be a literal; also of
//                                   Bools
//   bits(x) -> S::Int, from_bits(i) -> S (without a template argument: an Int knows its S)
//   fmod_exact(a, b)                C's fmod, see "Primitives with an external body"
//   select_rare(Bool, rare, common) select(Bool, rare(), common), rare a callable without side
//                                   effects; common may have any type with a select
// Integer S (Int of a floating S, and Num<int64_t> and, for u64, Num<uint64_t>, in which integral
// tensors are computed)
//   + - * unary -                   two's complement, wrapping
//   & | ^ ~  i << n  i >> n         n is a compile-time int; >> is arithmetic, lshr(i, n) logical
//   shl(i, j), lshr(i, j)           by another lane, 0 <= j < width (otherwise undefined)
//   == != < <= > >=, select, abs (wraps at the minimum)
//   trunc_div, floor_div, floor_mod, c_rem   total functions: 0 for a zero divisor (the operator
//                                   throws where ATen does), and minimum / -1 wraps to the minimum
// Functions of this header that use the above, valid in every world: maximum, minimum, fmax, fmin,
// is_nan, is_inf, is_finite, sign_bit_set, to_int, to_float.
//
// S is copyable. It is default-constructible to an object that may only be assigned to (for arrays
// of S).
//
// Rules for scalar code: straight-line code, no branch or loop that depends on data, no tables in
// memory, and only loops whose length is a compile-time constant or an attribute. If two arguments
// of a call both emit, the compiler decides their order. The bits do not depend on the order, but
// the text of a kernel may.
//
// Primitives with an external body. fmod_exact is exact for every quotient; the number of its steps
// depends on the data. A world implements it as an external call per lane (LLVM: `fmod` or `fmodf`;
// CUDA: fmod and fmodf, which are also exact). Since the result is exact, it is bit-identical.
//
// Build flags on which bits and speed depend:
//   -ffp-contract=off     always: a fused operation is written as fma
//   -fno-math-errno       so that sqrt, fma and the roundings become instructions
//   -fno-trapping-math    so that both sides of a select may be computed and loops are vectorised
// and never -ffast-math or any of its parts that change values. The payload and the sign of a NaN
// are not part of "bit-identical".
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#define GRADUS_INLINE __attribute__((always_inline)) inline

namespace gradus::scalar {

template <class T>
struct Num;

// A truth value of the Num types.
struct Mask {
  bool value;
};

GRADUS_INLINE Mask operator&(Mask a, Mask b) { return {static_cast<bool>(a.value & b.value)}; }
GRADUS_INLINE Mask operator|(Mask a, Mask b) { return {static_cast<bool>(a.value | b.value)}; }
GRADUS_INLINE Mask operator^(Mask a, Mask b) { return {static_cast<bool>(a.value ^ b.value)}; }
GRADUS_INLINE Mask operator!(Mask a) { return {!a.value}; }
GRADUS_INLINE Mask like(Mask, bool value) { return {value}; }
GRADUS_INLINE Mask select(Mask c, Mask a, Mask b) { return {c.value ? a.value : b.value}; }

// A scalar of any world; a floating one; an integer one.
template <class S>
concept Scalar = requires {
  typename S::Bool;
  typename S::Literal;
  { S::is_floating } -> std::convertible_to<bool>;
  { S::bits } -> std::convertible_to<int>;
};
template <class S>
concept Floating = Scalar<S> && S::is_floating;
template <class S>
concept Integral = Scalar<S> && !S::is_floating;

template <>
struct Num<int32_t> {
  using Value = int32_t;
  using Unsigned = uint32_t;
  using Bool = Mask;
  using Literal = int64_t;
  static constexpr bool is_floating = false, is_unsigned = false;
  static constexpr int bits = 32;
  static GRADUS_INLINE Num like(Num, Literal c) { return {static_cast<Value>(c)}; }
  Value value;
};

template <>
struct Num<int64_t> {
  using Value = int64_t;
  using Unsigned = uint64_t;
  using Bool = Mask;
  using Literal = int64_t;
  static constexpr bool is_floating = false, is_unsigned = false;
  static constexpr int bits = 64;
  static GRADUS_INLINE Num like(Num, Literal c) { return {c}; }
  Value value;
};

template <>
struct Num<uint64_t> {
  using Value = uint64_t;
  using Unsigned = uint64_t;
  using Bool = Mask;
  using Literal = int64_t;
  static constexpr bool is_floating = false, is_unsigned = true;
  static constexpr int bits = 64;
  static GRADUS_INLINE Num like(Num, Literal c) { return {static_cast<Value>(c)}; }
  Value value;
};

template <>
struct Num<float> {
  using Value = float;
  using Bool = Mask;
  using Int = Num<int32_t>;
  using Literal = double;
  static constexpr bool is_floating = true;
  static constexpr int bits = 32;
  static GRADUS_INLINE Num like(Num, Literal c) { return {static_cast<Value>(c)}; }
  Value value;
};

template <>
struct Num<double> {
  using Value = double;
  using Bool = Mask;
  using Int = Num<int64_t>;
  using Literal = double;
  static constexpr bool is_floating = true;
  static constexpr int bits = 64;
  static GRADUS_INLINE Num like(Num, Literal c) { return {c}; }
  Value value;
};

template <class T>
GRADUS_INLINE Num<T> like(Num<T> x, typename Num<T>::Literal c) {
  return Num<T>::like(x, c);
}

// A binary function, and its forms with a literal on either side.
#define GRADUS_SCALAR_WITH_LITERALS(result, name)                   \
  template <class T>                                                \
  GRADUS_INLINE result name(Num<T> a, typename Num<T>::Literal b) { \
    return name(a, Num<T>::like(a, b));                             \
  }                                                                 \
  template <class T>                                                \
  GRADUS_INLINE result name(typename Num<T>::Literal a, Num<T> b) { \
    return name(Num<T>::like(b, a), b);                             \
  }

// Integers are computed in the unsigned type, which wraps and has no undefined behaviour.
#define GRADUS_SCALAR_ARITHMETIC(op)                                               \
  template <class T>                                                               \
  GRADUS_INLINE Num<T> operator op(Num<T> a, Num<T> b) {                           \
    if constexpr (Num<T>::is_floating) {                                           \
      return {a.value op b.value};                                                 \
    } else {                                                                       \
      using U = typename Num<T>::Unsigned;                                         \
      return {static_cast<T>(static_cast<U>(a.value) op static_cast<U>(b.value))}; \
    }                                                                              \
  }                                                                                \
  GRADUS_SCALAR_WITH_LITERALS(Num<T>, operator op)
GRADUS_SCALAR_ARITHMETIC(+)
GRADUS_SCALAR_ARITHMETIC(-)
GRADUS_SCALAR_ARITHMETIC(*)
#undef GRADUS_SCALAR_ARITHMETIC

template <class T>
requires Num<T>::is_floating GRADUS_INLINE Num<T>
operator/(Num<T> a, Num<T> b) { return {a.value / b.value}; }
GRADUS_SCALAR_WITH_LITERALS(Num<T>, operator/)

#define GRADUS_SCALAR_COMPARISON(op)                   \
  template <class T>                                   \
  GRADUS_INLINE Mask operator op(Num<T> a, Num<T> b) { \
    return {a.value op b.value};                       \
  }                                                    \
  GRADUS_SCALAR_WITH_LITERALS(Mask, operator op)
GRADUS_SCALAR_COMPARISON(==)
GRADUS_SCALAR_COMPARISON(!=)
GRADUS_SCALAR_COMPARISON(<)
GRADUS_SCALAR_COMPARISON(<=)
GRADUS_SCALAR_COMPARISON(>)
GRADUS_SCALAR_COMPARISON(>=)
#undef GRADUS_SCALAR_COMPARISON

#define GRADUS_SCALAR_BITWISE(op)                                                  \
  template <class T>                                                               \
  requires(!Num<T>::is_floating) GRADUS_INLINE Num<T>                              \
  operator op(Num<T> a, Num<T> b) { return {static_cast<T>(a.value op b.value)}; } \
  GRADUS_SCALAR_WITH_LITERALS(Num<T>, operator op)
GRADUS_SCALAR_BITWISE(&)
GRADUS_SCALAR_BITWISE(|)
GRADUS_SCALAR_BITWISE(^)
#undef GRADUS_SCALAR_BITWISE

template <class T>
requires(!Num<T>::is_floating) GRADUS_INLINE Num<T>
operator~(Num<T> a) { return {static_cast<T>(~a.value)}; }
template <class T>
requires(!Num<T>::is_floating) GRADUS_INLINE Num<T>
operator<<(Num<T> a, int n) {
  return {static_cast<T>(static_cast<typename Num<T>::Unsigned>(a.value) << n)};
}
template <class T>
requires(!Num<T>::is_floating) GRADUS_INLINE Num<T>
operator>>(Num<T> a, int n) { return {static_cast<T>(a.value >> n)}; }
template <class T>
requires(!Num<T>::is_floating) GRADUS_INLINE Num<T> lshr(Num<T> a, int n) {
  return {static_cast<T>(static_cast<typename Num<T>::Unsigned>(a.value) >> n)};
}
template <class T>
requires(!Num<T>::is_floating) GRADUS_INLINE Num<T> shl(Num<T> a, Num<T> n) {
  return {static_cast<T>(static_cast<typename Num<T>::Unsigned>(a.value) << n.value)};
}
template <class T>
requires(!Num<T>::is_floating) GRADUS_INLINE Num<T> lshr(Num<T> a, Num<T> n) {
  return {static_cast<T>(static_cast<typename Num<T>::Unsigned>(a.value) >> n.value)};
}

template <class T>
GRADUS_INLINE Num<T> operator-(Num<T> a) {
  if constexpr (Num<T>::is_floating) {
    return {-a.value};
  } else {
    return {static_cast<T>(0 - static_cast<typename Num<T>::Unsigned>(a.value))};
  }
}

template <class T>
GRADUS_INLINE Num<T> select(Mask c, Num<T> a, Num<T> b) {
  return {c.value ? a.value : b.value};
}
template <class T>
GRADUS_INLINE Num<T> select(Mask c, Num<T> a, typename Num<T>::Literal b) {
  return select(c, a, Num<T>::like(a, b));
}
template <class T>
GRADUS_INLINE Num<T> select(Mask c, typename Num<T>::Literal a, Num<T> b) {
  return select(c, Num<T>::like(b, a), b);
}

GRADUS_INLINE Num<int32_t> bits(Num<float> x) { return {__builtin_bit_cast(int32_t, x.value)}; }
GRADUS_INLINE Num<int64_t> bits(Num<double> x) { return {__builtin_bit_cast(int64_t, x.value)}; }
GRADUS_INLINE Num<float> from_bits(Num<int32_t> i) { return {__builtin_bit_cast(float, i.value)}; }
GRADUS_INLINE Num<double> from_bits(Num<int64_t> i) {
  return {__builtin_bit_cast(double, i.value)};
}

#define GRADUS_SCALAR_UNARY(name, f32, f64)                              \
  GRADUS_INLINE Num<float> name(Num<float> x) { return {f32(x.value)}; } \
  GRADUS_INLINE Num<double> name(Num<double> x) { return {f64(x.value)}; }
GRADUS_SCALAR_UNARY(abs, __builtin_fabsf, __builtin_fabs)
GRADUS_SCALAR_UNARY(sqrt, __builtin_sqrtf, __builtin_sqrt)
GRADUS_SCALAR_UNARY(floor, __builtin_floorf, __builtin_floor)
GRADUS_SCALAR_UNARY(ceil, __builtin_ceilf, __builtin_ceil)
GRADUS_SCALAR_UNARY(trunc, __builtin_truncf, __builtin_trunc)
#undef GRADUS_SCALAR_UNARY

// Rounds to the nearest integer, ties to even. -0.4 gives -0.
// The addition of 1.5 * 2^52 rounds where the ulp is 1. Larger numbers are integers.
template <class T>
requires Num<T>::is_floating GRADUS_INLINE Num<T> round_even(Num<T> x) {
  constexpr double shift = Num<T>::bits == 64 ? 0x1p52 : 0x1p23;
  Num<T> magnitude = abs(x);
  Num<T> rounded = magnitude + shift - shift;
  return copysign(select(magnitude < shift, rounded, magnitude), x);
}

GRADUS_INLINE Num<float> copysign(Num<float> magnitude, Num<float> sign) {
  return {__builtin_copysignf(magnitude.value, sign.value)};
}
GRADUS_INLINE Num<double> copysign(Num<double> magnitude, Num<double> sign) {
  return {__builtin_copysign(magnitude.value, sign.value)};
}
GRADUS_SCALAR_WITH_LITERALS(Num<T>, copysign)

GRADUS_INLINE Num<float> fma(Num<float> a, Num<float> b, Num<float> c) {
  return {__builtin_fmaf(a.value, b.value, c.value)};
}
GRADUS_INLINE Num<double> fma(Num<double> a, Num<double> b, Num<double> c) {
  return {__builtin_fma(a.value, b.value, c.value)};
}
template <class T>
GRADUS_INLINE Num<T> fma(Num<T> a, Num<T> b, double c) {
  return fma(a, b, Num<T>::like(a, c));
}
template <class T>
GRADUS_INLINE Num<T> fma(Num<T> a, double b, Num<T> c) {
  return fma(a, Num<T>::like(a, b), c);
}
template <class T>
GRADUS_INLINE Num<T> fma(Num<T> a, double b, double c) {
  return fma(a, Num<T>::like(a, b), Num<T>::like(a, c));
}
template <class T>
GRADUS_INLINE Num<T> fma(double a, Num<T> b, Num<T> c) {
  return fma(Num<T>::like(b, a), b, c);
}
template <class T>
GRADUS_INLINE Num<T> fma(double a, Num<T> b, double c) {
  return fma(Num<T>::like(b, a), b, Num<T>::like(b, c));
}
template <class T>
GRADUS_INLINE Num<T> fma(double a, double b, Num<T> c) {
  return fma(Num<T>::like(c, a), Num<T>::like(c, b), c);
}

// Primitive: C's fmod, exact for every quotient. Not vectorised.
GRADUS_INLINE Num<float> fmod_exact(Num<float> a, Num<float> b) {
  return {__builtin_fmodf(a.value, b.value)};
}
GRADUS_INLINE Num<double> fmod_exact(Num<double> a, Num<double> b) {
  return {__builtin_fmod(a.value, b.value)};
}

// |x| of an integer. The minimum gives itself.
template <class T>
requires(!Num<T>::is_floating) GRADUS_INLINE Num<T> abs(Num<T> x) { return select(x < 0, -x, x); }

// a / b rounded toward zero. 0 for b = 0; minimum / -1 gives the minimum.
template <class T>
requires(!Num<T>::is_floating) GRADUS_INLINE Num<T> trunc_div(Num<T> a, Num<T> b) {
  Mask zero = b == 0, one = zero;
  if constexpr (!Num<T>::is_unsigned)
    one = zero | ((a == std::numeric_limits<T>::min()) & (b == -1));
  Num<T> safe = select(one, 1, b);
  return select(zero, 0, Num<T>{static_cast<T>(a.value / safe.value)});
}

// a - b * trunc(a / b), with the sign of a, as C's %. 0 for b = 0 and for b = -1.
template <class T>
requires(!Num<T>::is_floating) GRADUS_INLINE Num<T> c_rem(Num<T> a, Num<T> b) {
  Mask one = b == 0;
  if constexpr (!Num<T>::is_unsigned) one = one | (b == -1);
  Num<T> safe = select(one, 1, b);
  return {static_cast<T>(a.value % safe.value)};
}

// a - b * floor(a / b), with the sign of b, as Python's %. 0 for b = 0.
template <class T>
requires(!Num<T>::is_floating) GRADUS_INLINE Num<T> floor_mod(Num<T> a, Num<T> b) {
  Num<T> r = c_rem(a, b);
  if constexpr (Num<T>::is_unsigned) return r;
  return select((r != 0) & ((r ^ b) < 0), r + b, r);
}

// a / b rounded toward minus infinity, as Python's //. 0 for b = 0; minimum / -1 gives the minimum.
template <class T>
requires(!Num<T>::is_floating) GRADUS_INLINE Num<T> floor_div(Num<T> a, Num<T> b) {
  Num<T> q = trunc_div(a, b);
  if constexpr (Num<T>::is_unsigned) return q;
  Num<T> r = c_rem(a, b);
  return select((r != 0) & ((r ^ b) < 0), q - 1, q);
}
GRADUS_SCALAR_WITH_LITERALS(Num<T>, trunc_div)
GRADUS_SCALAR_WITH_LITERALS(Num<T>, c_rem)
GRADUS_SCALAR_WITH_LITERALS(Num<T>, floor_mod)
GRADUS_SCALAR_WITH_LITERALS(Num<T>, floor_div)
#undef GRADUS_SCALAR_WITH_LITERALS

// select(c, rare(), common) for a condition that is seldom true: a world may skip rare() if no lane
// needs it. Here a branch to a separate function, which keeps loops small; such loops are not
// vectorised.
template <class Rare>
[[gnu::noinline, gnu::cold]] auto call_rarely(Rare rare) {
  return rare();
}
template <class Rare, class V>
GRADUS_INLINE V select_rare(Mask c, Rare rare, V common) {
  if (c.value) [[unlikely]]
    return call_rarely(rare);
  return common;
}

// Converts a number to another Num type. Float to integer truncates and saturates, and NaN gives 0.
// Integer to float and double to float round to nearest even. Integer to integer wraps. A
// primitive: each world has conversions between its types.
template <class To, class From>
GRADUS_INLINE Num<To> convert(Num<From> x) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr From limit = static_cast<From>(uint64_t{1} << (sizeof(To) * 8 - 1));
    bool fits = (x.value >= -limit) & (x.value < limit);
    To inside = static_cast<To>(fits ? x.value : From{0});
    To high = x.value >= limit ? std::numeric_limits<To>::max() : inside;
    return {x.value < -limit ? std::numeric_limits<To>::min() : high};
  } else {
    return {static_cast<To>(x.value)};
  }
}

// The functions below use those above, and are valid in every world.

template <Floating S>
GRADUS_INLINE typename S::Bool is_nan(S x) {
  return x != x;
}
template <Floating S>
GRADUS_INLINE typename S::Bool is_inf(S x) {
  return abs(x) == std::numeric_limits<double>::infinity();
}
template <Floating S>
GRADUS_INLINE typename S::Bool is_finite(S x) {
  return abs(x) < std::numeric_limits<double>::infinity();
}
// Whether the sign bit is set: negative numbers, -0, and NaNs with the sign.
template <Floating S>
GRADUS_INLINE typename S::Bool sign_bit_set(S x) {
  return bits(x) < 0;
}

// ATen's maximum: NaN if an operand is NaN. Of two zeros, the first.
template <Scalar S>
GRADUS_INLINE S maximum(S a, S b) {
  if constexpr (S::is_floating) {
    return select((a >= b) | is_nan(a), a, b);
  } else {
    return select(a >= b, a, b);
  }
}
template <Scalar S>
GRADUS_INLINE S minimum(S a, S b) {
  if constexpr (S::is_floating) {
    return select((a <= b) | is_nan(a), a, b);
  } else {
    return select(a <= b, a, b);
  }
}
// C's fmax: if one operand is NaN, the other operand.
template <Scalar S>
GRADUS_INLINE S fmax(S a, S b) {
  if constexpr (S::is_floating) {
    return select((a >= b) | is_nan(b), a, b);
  } else {
    return select(a >= b, a, b);
  }
}
template <Scalar S>
GRADUS_INLINE S fmin(S a, S b) {
  if constexpr (S::is_floating) {
    return select((a <= b) | is_nan(b), a, b);
  } else {
    return select(a <= b, a, b);
  }
}

// The integer nearest to x (ties to even), for |x| < 2^51 (f64) or 2^22 (f32); otherwise any value.
// An addition, because AVX2 has no conversion of doubles to 64-bit integers.
template <Floating S>
GRADUS_INLINE typename S::Int to_int(S x) {
  constexpr double shift = S::bits == 64 ? 0x1.8p52 : 0x1.8p23;
  constexpr int64_t shift_bits = S::bits == 64 ? 0x4338000000000000 : 0x4b400000;
  return bits(x + shift) - shift_bits;
}

// The float of an integer |i| < 2^51 (f64) or 2^22 (f32). Exact.
template <Integral I>
GRADUS_INLINE auto to_float(I i) {
  constexpr double shift = I::bits == 64 ? 0x1.8p52 : 0x1.8p23;
  constexpr int64_t shift_bits = I::bits == 64 ? 0x4338000000000000 : 0x4b400000;
  return from_bits(i + shift_bits) - shift;
}

}  // namespace gradus::scalar
