// Dimensions as attributes name them.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gradus::ops {

// One that may be counted from the end, counted from the first. A scalar has one.
inline int normal(int64_t dim, int rank) {
  return static_cast<int>(dim < 0 ? dim + std::max(rank, 1) : dim);
}

}  // namespace gradus::ops
