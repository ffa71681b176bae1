// The scalar world of emitted values: Lane<float>, Lane<double>, Lane<int32_t>, Lane<int64_t> and
// Lane<uint64_t>. Each
// operation appends an instruction to a kernel, by whichever emitter stands behind: LLVM's vectors
// of as many elements as a kernel takes at a time, lines of CUDA C++, or nodes of ONNX. What each
// means is said at the head of gradus/scalar/num.h.
#pragma once

#include "fusion/scalar_emitter.h"
#include "gradus/scalar/math.h"

namespace gradus::scalar {

// A lane's truth value.
struct Truth {
  fusion::ScalarEmitter* at = nullptr;
  fusion::Emitted* value = nullptr;
};

template <class T>
struct LaneTraits;
template <>
struct LaneTraits<float> {
  static constexpr fusion::LaneType type = fusion::LaneType::f32;
  using Int = int32_t;
};
template <>
struct LaneTraits<double> {
  static constexpr fusion::LaneType type = fusion::LaneType::f64;
  using Int = int64_t;
};
template <>
struct LaneTraits<int32_t> {
  static constexpr fusion::LaneType type = fusion::LaneType::i32;
  using Float = float;
};
template <>
struct LaneTraits<int64_t> {
  static constexpr fusion::LaneType type = fusion::LaneType::i64;
  using Float = double;
};

template <>
struct LaneTraits<uint64_t> {
  static constexpr fusion::LaneType type = fusion::LaneType::u64;
};

template <class T>
struct Lane;
template <class T>
struct LaneInt {};
template <class T>
requires std::is_floating_point_v<T>
struct LaneInt<T> {
  using Int = Lane<typename LaneTraits<T>::Int>;
};

template <class T>
struct Lane : LaneInt<T> {
  using Bool = Truth;
  using Literal = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;
  static constexpr bool is_floating = std::is_floating_point_v<T>;
  static constexpr bool is_unsigned = std::is_unsigned_v<T>;
  static constexpr int bits = static_cast<int>(sizeof(T)) * 8;

  Lane() = default;
  Lane(fusion::ScalarEmitter* emitter, fusion::Emitted* v) : at(emitter), value(v) {}

  fusion::ScalarEmitter* at = nullptr;
  fusion::Emitted* value = nullptr;
};

template <class T>
Lane<T> like(Lane<T> x, typename Lane<T>::Literal c) {
  return {x.at, x.at->constant(LaneTraits<T>::type, c)};
}
inline Truth like(Truth x, bool c) { return {x.at, x.at->truth(c)}; }

#define GRADUS_LANE_LITERALS(result, name)              \
  template <class T>                                    \
  result name(Lane<T> a, typename Lane<T>::Literal b) { \
    return name(a, like(a, b));                         \
  }                                                     \
  template <class T>                                    \
  result name(typename Lane<T>::Literal a, Lane<T> b) { \
    return name(like(b, a), b);                         \
  }
#define GRADUS_LANE_BINARY(condition, name, op)                        \
  template <class T>                                                   \
  requires(condition) Lane<T> name(Lane<T> a, Lane<T> b) {             \
    return {a.at, a.at->binary(fusion::Binary::op, a.value, b.value)}; \
  }
#define GRADUS_LANE_COMPARISON(symbol, op, op_unsigned)                            \
  template <class T>                                                               \
  Truth operator symbol(Lane<T> a, Lane<T> b) {                                    \
    constexpr auto compared =                                                      \
        Lane<T>::is_unsigned ? fusion::Compare::op_unsigned : fusion::Compare::op; \
    return {a.at, a.at->compare(compared, a.value, b.value)};                      \
  }                                                                                \
  GRADUS_LANE_LITERALS(Truth, operator symbol)
#define GRADUS_LANE_UNARY(condition, name, op)              \
  template <class T>                                        \
  requires(condition) Lane<T> name(Lane<T> x) {             \
    return {x.at, x.at->unary(fusion::Unary::op, x.value)}; \
  }

GRADUS_LANE_BINARY(true, operator+, add)
GRADUS_LANE_LITERALS(Lane<T>, operator+)
GRADUS_LANE_BINARY(true, operator-, subtract)
GRADUS_LANE_LITERALS(Lane<T>, operator-)
GRADUS_LANE_BINARY(true, operator*, multiply)
GRADUS_LANE_LITERALS(Lane<T>, operator*)
GRADUS_LANE_BINARY(Lane<T>::is_floating, operator/, divide)
GRADUS_LANE_LITERALS(Lane<T>, operator/)
GRADUS_LANE_BINARY(Lane<T>::is_floating, copysign, copysign)
GRADUS_LANE_LITERALS(Lane<T>, copysign)
GRADUS_LANE_BINARY(!Lane<T>::is_floating, operator&, bit_and)
GRADUS_LANE_LITERALS(Lane<T>, operator&)
GRADUS_LANE_BINARY(!Lane<T>::is_floating, operator|, bit_or)
GRADUS_LANE_LITERALS(Lane<T>, operator|)
GRADUS_LANE_BINARY(!Lane<T>::is_floating, operator^, bit_xor)
GRADUS_LANE_LITERALS(Lane<T>, operator^)
GRADUS_LANE_BINARY(!Lane<T>::is_floating, shl, shift_left)
GRADUS_LANE_BINARY(!Lane<T>::is_floating, lshr, shift_right_logical)
GRADUS_LANE_COMPARISON(==, equal, equal)
GRADUS_LANE_COMPARISON(!=, not_equal, not_equal)
GRADUS_LANE_COMPARISON(<, less, less_unsigned)
GRADUS_LANE_COMPARISON(<=, less_equal, less_equal_unsigned)
GRADUS_LANE_COMPARISON(>, greater, greater_unsigned)
GRADUS_LANE_COMPARISON(>=, greater_equal, greater_equal_unsigned)
GRADUS_LANE_UNARY(true, operator-, negate)
GRADUS_LANE_UNARY(Lane<T>::is_floating, abs, abs)
GRADUS_LANE_UNARY(Lane<T>::is_floating, sqrt, sqrt)
GRADUS_LANE_UNARY(Lane<T>::is_floating, floor, floor)
GRADUS_LANE_UNARY(Lane<T>::is_floating, ceil, ceil)
GRADUS_LANE_UNARY(Lane<T>::is_floating, trunc, trunc)
GRADUS_LANE_UNARY(Lane<T>::is_floating, round_even, round_even)
#undef GRADUS_LANE_UNARY
#undef GRADUS_LANE_COMPARISON
#undef GRADUS_LANE_BINARY

template <class T>
requires(!Lane<T>::is_floating) Lane<T>
operator~(Lane<T> x) {
  return x ^ int64_t { -1 };
}
template <class T>
requires(!Lane<T>::is_floating) Lane<T>
operator<<(Lane<T> x, int n) { return shl(x, like(x, n)); }
template <class T>
requires(!Lane<T>::is_floating) Lane<T>
operator>>(Lane<T> x, int n) {
  constexpr auto shift =
      Lane<T>::is_unsigned ? fusion::Binary::shift_right_logical : fusion::Binary::shift_right;
  return {x.at, x.at->binary(shift, x.value, like(x, n).value)};
}
template <class T>
requires(!Lane<T>::is_floating) Lane<T> lshr(Lane<T> x, int n) { return lshr(x, like(x, n)); }

inline Truth operator&(Truth a, Truth b) {
  return {a.at, a.at->binary(fusion::Binary::bit_and, a.value, b.value)};
}
inline Truth operator|(Truth a, Truth b) {
  return {a.at, a.at->binary(fusion::Binary::bit_or, a.value, b.value)};
}
inline Truth operator^(Truth a, Truth b) {
  return {a.at, a.at->binary(fusion::Binary::bit_xor, a.value, b.value)};
}
inline Truth operator!(Truth a) { return a ^ like(a, true); }

template <class T>
Lane<T> select(Truth c, Lane<T> a, Lane<T> b) {
  return {c.at, c.at->select(c.value, a.value, b.value)};
}
template <class T>
Lane<T> select(Truth c, Lane<T> a, typename Lane<T>::Literal b) {
  return select(c, a, like(a, b));
}
template <class T>
Lane<T> select(Truth c, typename Lane<T>::Literal a, Lane<T> b) {
  return select(c, like(b, a), b);
}
inline Truth select(Truth c, Truth a, Truth b) {
  return {c.at, c.at->select(c.value, a.value, b.value)};
}

template <class T>
requires(Lane<T>::is_floating) typename Lane<T>::Int bits(Lane<T> x) {
  return {x.at, x.at->to_bits(x.value)};
}
template <class T>
requires(!Lane<T>::is_floating) Lane<typename LaneTraits<T>::Float> from_bits(Lane<T> x) {
  return {x.at, x.at->from_bits(x.value)};
}

template <class T>
Lane<T> fma(Lane<T> a, Lane<T> b, Lane<T> c) {
  return {a.at, a.at->fma(a.value, b.value, c.value)};
}
template <class T>
Lane<T> fma(Lane<T> a, Lane<T> b, double c) {
  return fma(a, b, like(a, c));
}
template <class T>
Lane<T> fma(Lane<T> a, double b, Lane<T> c) {
  return fma(a, like(a, b), c);
}
template <class T>
Lane<T> fma(Lane<T> a, double b, double c) {
  return fma(a, like(a, b), like(a, c));
}
template <class T>
Lane<T> fma(double a, Lane<T> b, Lane<T> c) {
  return fma(like(b, a), b, c);
}
template <class T>
Lane<T> fma(double a, Lane<T> b, double c) {
  return fma(like(b, a), b, like(b, c));
}
template <class T>
Lane<T> fma(double a, double b, Lane<T> c) {
  return fma(like(c, a), like(c, b), c);
}

template <class T>
requires(Lane<T>::is_floating) Lane<T> fmod_exact(Lane<T> a, Lane<T> b) {
  return {a.at, a.at->fmod(a.value, b.value)};
}

// Functions by the back end's own operation where it has one; else as ops/scalar has them.
#define GRADUS_LANE_FUNCTION(condition, Result, name) \
  GRADUS_LANE_FUNCTION_AS(condition, Result, name, name)
#define GRADUS_LANE_FUNCTION_AS(condition, Result, name, operation)                         \
  template <class T>                                                                        \
  requires(condition) Result name(Lane<T> x) {                                              \
    if (fusion::Emitted* y = x.at->function(fusion::Function::operation, x.value, nullptr)) \
      return {x.at, y};                                                                     \
    return name<Lane<T>>(x);                                                                \
  }
#define GRADUS_LANE_FUNCTION2(condition, name)                                         \
  template <class T>                                                                   \
  requires(condition) Lane<T> name(Lane<T> a, Lane<T> b) {                             \
    if (fusion::Emitted* y = a.at->function(fusion::Function::name, a.value, b.value)) \
      return {a.at, y};                                                                \
    return name<Lane<T>>(a, b);                                                        \
  }
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, exp)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, exp2)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, expm1)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, log)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, log2)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, log10)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, log1p)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, sin)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, cos)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, tan)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, asin)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, acos)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, atan)
GRADUS_LANE_FUNCTION2(Lane<T>::is_floating, atan2)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, sinh)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, cosh)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, tanh)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, asinh)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, acosh)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, atanh)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, sigmoid)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, logsigmoid)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, log1p_exp)
GRADUS_LANE_FUNCTION_AS(Lane<T>::is_floating, Lane<T>, fast_exp, exp)
GRADUS_LANE_FUNCTION_AS(Lane<T>::is_floating, Lane<T>, fast_tanh, tanh)
GRADUS_LANE_FUNCTION_AS(Lane<T>::is_floating, Lane<T>, fast_sigmoid, sigmoid)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, erf)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, erfc)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, erfinv)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, lgamma)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Lane<T>, digamma)
GRADUS_LANE_FUNCTION2(Lane<T>::is_floating, pow)
GRADUS_LANE_FUNCTION2(Lane<T>::is_floating, fmod)
GRADUS_LANE_FUNCTION2(Lane<T>::is_floating, hypot)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Truth, is_nan)
GRADUS_LANE_FUNCTION(Lane<T>::is_floating, Truth, is_inf)
GRADUS_LANE_FUNCTION2(true, maximum)
GRADUS_LANE_FUNCTION2(true, minimum)
#undef GRADUS_LANE_FUNCTION
#undef GRADUS_LANE_FUNCTION_AS
#undef GRADUS_LANE_FUNCTION2
template <class T>
requires(Lane<T>::is_floating) Lane<T> polygamma(int n, Lane<T> x) {
  if (fusion::Emitted* y = x.at->function(fusion::Function::polygamma, x.value, nullptr))
    return {x.at, y};
  return polygamma<Lane<T>>(n, x);
}

// By an instruction where there is one; it has the bits of the general way.
template <class T>
requires(Lane<T>::is_floating) Lane<T> scale_by_exp2(Lane<T> x, Lane<T> k) {
  if (fusion::Emitted* scaled = x.at->scale_by_exp2(x.value, k.value)) return {x.at, scaled};
  return scale_by_exp2<Lane<T>>(x, k);
}

template <class T>
requires(!Lane<T>::is_floating) Lane<T> abs(Lane<T> x) {
  if (fusion::Emitted* y = x.at->function(fusion::Function::abs, x.value, nullptr))
    return {x.at, y};
  return select(x < 0, -x, x);
}

// Total, as gradus/scalar/num.h has them: the instructions see no divisor that they fault on.
template <class T>
requires(!Lane<T>::is_floating) Lane<T> trunc_div(Lane<T> a, Lane<T> b) {
  if (fusion::Emitted* y = a.at->function(fusion::Function::trunc_div, a.value, b.value))
    return {a.at, y};
  Truth zero = b == 0;
  if constexpr (Lane<T>::is_unsigned) {
    Lane<T> safe = select(zero, 1, b);
    Lane<T> quotient{a.at, a.at->binary(fusion::Binary::divide_unsigned, a.value, safe.value)};
    return select(zero, 0, quotient);
  }
  Truth wraps = (a == std::numeric_limits<T>::min()) & (b == -1);
  Lane<T> safe = select(zero | wraps, 1, b);
  Lane<T> quotient{a.at, a.at->binary(fusion::Binary::divide, a.value, safe.value)};
  return select(zero, 0, quotient);
}
template <class T>
requires(!Lane<T>::is_floating) Lane<T> c_rem(Lane<T> a, Lane<T> b) {
  if (fusion::Emitted* y = a.at->function(fusion::Function::c_rem, a.value, b.value))
    return {a.at, y};
  if constexpr (Lane<T>::is_unsigned) {
    Lane<T> safe = select(b == 0, 1, b);
    return {a.at, a.at->binary(fusion::Binary::remainder_unsigned, a.value, safe.value)};
  }
  Lane<T> safe = select((b == 0) | (b == -1), 1, b);
  return {a.at, a.at->binary(fusion::Binary::remainder, a.value, safe.value)};
}
template <class T>
requires(!Lane<T>::is_floating) Lane<T> floor_mod(Lane<T> a, Lane<T> b) {
  if (fusion::Emitted* y = a.at->function(fusion::Function::floor_mod, a.value, b.value))
    return {a.at, y};
  Lane<T> r = c_rem(a, b);
  if constexpr (Lane<T>::is_unsigned) return r;
  return select((r != 0) & ((r ^ b) < 0), r + b, r);
}
template <class T>
requires(!Lane<T>::is_floating) Lane<T> floor_div(Lane<T> a, Lane<T> b) {
  if (fusion::Emitted* y = a.at->function(fusion::Function::floor_div, a.value, b.value))
    return {a.at, y};
  Lane<T> q = trunc_div(a, b);
  if constexpr (Lane<T>::is_unsigned) return q;
  Lane<T> r = c_rem(a, b);
  return select((r != 0) & ((r ^ b) < 0), q - 1, q);
}
GRADUS_LANE_LITERALS(Lane<T>, trunc_div)
GRADUS_LANE_LITERALS(Lane<T>, c_rem)
GRADUS_LANE_LITERALS(Lane<T>, floor_mod)
GRADUS_LANE_LITERALS(Lane<T>, floor_div)
#undef GRADUS_LANE_LITERALS

// A branch around what is rare. V's select is called once to join the two ways, part by part.
template <class Rare, class V>
V select_rare(Truth c, Rare rare, V common) {
  c.at->begin_rare(c.value);
  V other = rare();
  c.at->join_rare();
  V joined = select(c, other, common);
  c.at->end_rare();
  return joined;
}

}  // namespace gradus::scalar
