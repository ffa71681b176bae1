// Walking the elements that are not zero.
#pragma once

#include "gradus/convert.h"
#include "gradus/tensor.h"

namespace gradus::ops {

// Calls each(place) for every element that is not zero, in row-major order; `place` has one number
// per dimension.
template <class Each>
void for_each_nonzero(const Layout& layout, const std::byte* data, Each each) {
  if (layout.numel() == 0) return;
  visit_signed(layout.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto* x = reinterpret_cast<const T*>(data);
    Sizes place(layout.shape.size(), 0);
    for (int64_t at = 0;;) {
      if (convert<bool>(x[at])) each(place);
      int d = layout.rank() - 1;
      for (; d >= 0; --d) {
        at += layout.strides[d];
        if (++place[d] < layout.shape[d]) break;
        at -= layout.strides[d] * layout.shape[d];
        place[d] = 0;
      }
      if (d < 0) return;
    }
  });
}

inline int64_t count_nonzero(const Layout& layout, const std::byte* data) {
  int64_t n = 0;
  for_each_nonzero(layout, data, [&](const Sizes&) { ++n; });
  return n;
}

}  // namespace gradus::ops
