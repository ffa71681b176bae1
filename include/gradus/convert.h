// Conversion of an element between any two dtypes.
#pragma once

#include <limits>
#include <type_traits>

#include "gradus/dtype.h"

namespace gradus {

// Converts one element. A float is truncated and saturates in an integer; NaN gives 0 (on every
// device). An integer wraps in a smaller one. A conversion to bool gives x != 0, so NaN gives true.
template <class To, class From>
constexpr To convert(From x) {
  constexpr bool from_half = std::is_same_v<From, Half> || std::is_same_v<From, BFloat16>;
  constexpr bool to_half = std::is_same_v<To, Half> || std::is_same_v<To, BFloat16>;
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (from_half) {
    return convert<To>(static_cast<float>(x));
  } else if constexpr (to_half) {
    if constexpr (std::is_same_v<From, double>) {
      // Rounding twice must equal rounding once: rounds to odd in float first.
      float f = static_cast<float>(x);
      uint32_t bits = std::bit_cast<uint32_t>(f);
      double back = static_cast<double>(f);
      bool inexact = back != x && x == x;
      bool away = inexact && (x < 0 ? back < x : back > x);
      if (inexact) bits = (away ? bits - 1 : bits) | 1u;
      return To(std::bit_cast<float>(bits));
    } else if constexpr (std::is_integral_v<From> && sizeof(From) > 2) {
      return convert<To>(static_cast<double>(x));
    } else {
      return To(static_cast<float>(x));
    }
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    // The first float above the largest integer: a power of two, exact.
    constexpr From above = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * 2;
    constexpr From least = static_cast<From>(std::numeric_limits<To>::min());
    if (!(x == x)) return To(0);
    if (x >= above) return std::numeric_limits<To>::max();
    if (x <= least) return std::numeric_limits<To>::min();
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace gradus
