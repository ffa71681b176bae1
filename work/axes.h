// Strided index spaces.
#pragma once

#include "work/fields.h"

namespace gradus::work {

struct Axis {
  int64_t size = 1, stride = 1;
  static constexpr auto fields() {
    return std::tuple(field("size", &Axis::size), field("stride", &Axis::stride));
  }
  friend bool operator==(const Axis&, const Axis&) = default;
};
using Axes = SmallVector<Axis, 4>;

// Appends an axis inside the others, joined with the last one where one stride walks both.
inline void push_axis(Axes& axes, int64_t size, int64_t stride) {
  if (size == 1) return;
  if (!axes.empty() && axes.back().stride == stride * size)
    axes.back() = {axes.back().size * size, stride};
  else
    axes.push_back({size, stride});
}

}  // namespace gradus::work
