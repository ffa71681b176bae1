// Rounding to integers, and division with a remainder.
#pragma once

#include "gradus/rules.h"
#include "gradus/table.h"

namespace gradus::ops {

// Integers stay what they are.

struct Floor : Unary<> {  // y = the largest integer <= x
  static constexpr std::string_view name = "floor", doc = "y = the largest integer <= x";
  static constexpr bool zero_gradient = true;
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    if constexpr (S::is_floating)
      return floor(x);
    else
      return x;
  }
};

struct Ceil : Unary<> {  // y = the smallest integer >= x
  static constexpr std::string_view name = "ceil", doc = "y = the smallest integer >= x";
  static constexpr bool zero_gradient = true;
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    if constexpr (S::is_floating)
      return ceil(x);
    else
      return x;
  }
};

struct Round : Unary<> {  // y = the integer nearest to x, ties to even
  static constexpr std::string_view name = "round",
                                    doc = "y = the integer nearest to x, ties to even";
  static constexpr bool zero_gradient = true;
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    if constexpr (S::is_floating)
      return round_even(x);
    else
      return x;
  }
};

struct Trunc : Unary<> {  // y = x without its fraction
  static constexpr std::string_view name = "trunc", doc = "y = x without its fraction";
  static constexpr bool zero_gradient = true;
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    if constexpr (S::is_floating)
      return trunc(x);
    else
      return x;
  }
};

struct Frac : Unary<> {  // y = x - trunc(x)
  static constexpr std::string_view name = "frac", doc = "y = x - trunc(x)";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    if constexpr (S::is_floating)
      return x - trunc(x);
    else
      return x - x;
  }
  static Value dx(VjpCall& d) { return d.dy(); }
};

// Integers are refused a divisor of zero when the kernel runs, by this.
Error zero_divisor_error(const Operator& op);

struct Fmod : Binary<> {  // z = x - y trunc(x / y)
  static constexpr std::string_view name = "fmod", doc = "z = x - y * trunc(x / y), the sign of x";
  template <class S>
  GRADUS_INLINE static S scalar(S x, S y) {
    if constexpr (S::is_floating)
      return fmod(x, y);
    else
      return c_rem(x, y);
  }
  static constexpr bool refuses_zero_divisors = true;
  static void vjp(VjpCall& d);
};

struct Remainder : Binary<> {  // z = x - y floor(x / y)
  static constexpr std::string_view name = "remainder",
                                    doc = "z = x - y * floor(x / y), the sign of y";
  template <class S>
  GRADUS_INLINE static S scalar(S x, S y) {
    if constexpr (S::is_floating)
      return remainder(x, y);
    else
      return floor_mod(x, y);
  }
  static constexpr bool refuses_zero_divisors = true;
  static void vjp(VjpCall& d);
};

struct FloorDivide : Binary<> {  // z = floor(x / y)
  static constexpr std::string_view name = "floor_divide", doc = "z = floor(x / y)";
  static constexpr bool zero_gradient = true;
  // Floats as Python's //: by fmod, whose difference from x is a multiple of y but for rounding.
  template <class S>
  GRADUS_INLINE static S scalar(S x, S y) {
    if constexpr (!S::is_floating) {
      return floor_div(x, y);
    } else {
      S rest = fmod(x, y);
      S quotient = (x - rest) / y;
      quotient = select((rest != 0.0) & ((y < 0.0) ^ (rest < 0.0)), quotient - 1.0, quotient);
      S floored = floor(quotient);
      S nearest = select(quotient - floored > 0.5, floored + 1.0, floored);
      S ratio = x / y;
      S signed_zero = copysign(like(x, 0.0), ratio);
      S inside = select(quotient != 0.0, nearest, signed_zero);
      return select(y == 0.0, ratio, inside);
    }
  }
  static constexpr bool refuses_zero_divisors = true;
};

using RoundingOperators = std::tuple<Floor, Ceil, Round, Trunc, Frac, Fmod, Remainder, FloorDivide>;

}  // namespace gradus::ops
