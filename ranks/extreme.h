// The larger and the smaller of two numbers, whatever their order.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace gradus::ranks {

// Ranks combine their numbers in different orders and have to come to the same bits: any NaN gives
// the one quiet NaN, and of the two zeros 0 is the larger.
template <bool largest, class T>
inline T extreme(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    const Bits x = std::bit_cast<Bits>(a), y = std::bit_cast<Bits>(b);
    // Equal numbers have equal bits but for the sign of zero.
    T chosen = std::bit_cast<T>(largest ? x & y : x | y);
    chosen = (largest ? a > b : a < b) ? a : chosen;
    chosen = (largest ? b > a : b < a) ? b : chosen;
    return a != a || b != b ? std::numeric_limits<T>::quiet_NaN() : chosen;
  } else {
    return (largest ? b > a : b < a) ? b : a;
  }
}

}  // namespace gradus::ranks
