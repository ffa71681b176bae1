// Rounding as PTX names it, and the 16-bit floats.
#pragma once

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>

#include "gradus/dtype.h"

namespace gradus::ptx {

enum Rounding : uint8_t { nearest, towards_zero, down, up };  // .rn .rz .rm .rp

// The processor's rounding, while this lives. What is rounded by it has to go through volatile
// variables: the compiler does not know that arithmetic depends on it.
class RoundingScope {
 public:
  explicit RoundingScope(Rounding r) {
    static constexpr int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    std::fesetround(modes[r]);
  }
  ~RoundingScope() { std::fesetround(FE_TONEAREST); }
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;
};

// A 16-bit float: bits of the fraction, and the exponent of the smallest normal number.
struct Binary16 {
  static constexpr int fraction = 10, smallest = -14;
  static constexpr uint16_t infinity = 0x7c00;
  static double wide(uint16_t b) { return static_cast<double>(half_to_float(b)); }
};
struct Brain16 {
  static constexpr int fraction = 7, smallest = -126;
  static constexpr uint16_t infinity = 0x7f80;
  static double wide(uint16_t b) { return static_cast<double>(bfloat16_to_float(b)); }
};
inline constexpr uint16_t nan16 = 0x7fff;
inline constexpr uint32_t nan32 = 0x7fffffff;

// x rounded once.
template <class Format>
uint16_t narrow(double x, Rounding rounding) {
  const auto bits = std::bit_cast<uint64_t>(x);
  const auto sign = static_cast<uint16_t>(bits >> 48 & 0x8000);
  if (std::isnan(x)) return nan16;
  if (std::isinf(x)) return sign | Format::infinity;
  if (x == 0) return sign;
  const int field = static_cast<int>(bits >> 52 & 2047);
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  const uint64_t significand = field ? fraction | uint64_t{1} << 52 : fraction;
  const int exponent = field ? field - 1023 : -1022;
  const int e = exponent < Format::smallest ? Format::smallest : exponent;
  const int shift = e - Format::fraction - (exponent - 52);
  const uint64_t kept = shift < 64 ? significand >> shift : 0;
  // What is dropped, against half of the last place: 0 nothing, 1 less, 2 half, 3 more.
  int dropped = 1;
  if (shift < 64) {
    const uint64_t rest = significand & ((uint64_t{1} << shift) - 1);
    const uint64_t half = uint64_t{1} << (shift - 1);
    dropped = rest == 0 ? 0 : rest < half ? 1 : rest == half ? 2 : 3;
  }
  const bool increment = rounding == nearest ? dropped == 3 || (dropped == 2 && (kept & 1))
                         : rounding == down  ? dropped && sign
                         : rounding == up    ? dropped && !sign
                                             : false;
  const uint64_t r =
      (static_cast<uint64_t>(e - Format::smallest) << Format::fraction) + kept + increment;
  if (r < Format::infinity) return static_cast<uint16_t>(sign | r);
  const bool to_infinity =
      rounding == nearest || (rounding == down && sign) || (rounding == up && !sign);
  return static_cast<uint16_t>(sign | (to_infinity ? Format::infinity : Format::infinity - 1));
}

// s, the nearest to a sum that is off by a tail of this sign, made odd if it is inexact: rounded
// once more to far fewer bits, that gives what rounding the sum itself gives.
inline double make_odd(double s, double tail) {
  if (tail == 0 || !std::isfinite(s)) return s;
  const auto bits = std::bit_cast<uint64_t>(s);
  if (bits & 1) return s;
  return std::bit_cast<double>((tail > 0) == (s > 0) ? bits + 1 : bits - 1);
}

// a + b for `narrow`.
inline double odd_sum(double a, double b) {
  const double s = a + b;
  const double from_b = s - a;
  return make_odd(s, (a - (s - from_b)) + (b - from_b));
}

// An integer for `narrow`; `magnitude` without its sign.
inline double odd_integer(uint64_t magnitude, bool negative) {
  // The top 54 bits and whether anything is below them.
  const int zeros = std::countl_zero(magnitude | 1);
  double x = static_cast<double>(magnitude);
  if (zeros < 10) {
    const int shift = 11 - zeros;
    const uint64_t top = magnitude >> shift;
    const bool rest = (top << shift) != magnitude;
    x = std::ldexp(static_cast<double>(rest ? top | 1 : top), shift);
  }
  return negative ? -x : x;
}

template <class T>
T flushed(T x) {  // subnormal numbers to zero of their sign
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(T{0}, x) : x;
}

template <class T>
T saturated_unit(T x) {  // to [0, 1]; NaN gives 0
  return !(x > 0) ? T{0} : x > 1 ? T{1} : x;
}

template <class T>
T canonical(T x) {  // f32 has one NaN
  if constexpr (sizeof(T) == 4)
    return x != x ? std::bit_cast<float>(nan32) : x;
  else
    return x;
}

}  // namespace gradus::ptx
