// What operators over the windows of images share: how they read their attributes.
#pragma once

#include "gradus/attributes.h"

namespace gradus::ops {

// No attribute is larger, and no image, so that no product of two attributes overflows.
inline constexpr int64_t window_limit = int64_t{1} << 30, image_limit = int64_t{1} << 60;

// A list attribute along dimension d: one number holds for all.
inline int64_t along(const Ints& list, int d) { return list.size() == 1 ? list[0] : list[d]; }

// Refuses lists of another length, and numbers below `least`. `call` is any kind of call.
template <class Call>
void check_list(const Call& call, std::string_view name, const Ints& list, int spatial,
                int64_t least) {
  if (list.size() != 1 && static_cast<int>(list.size()) != spatial)
    call.fail("'{}' lists {} numbers; give one, or one for each of {} dimensions", name,
              list.size(), spatial);
  for (int64_t n : list)
    if (n < least || n > window_limit)
      call.fail("'{}' is {}; it must be from {} to {}", name, n, least, window_limit);
}

// How many windows fit.
inline Dim window_count(const Dim& image, const Dim& kernel, int64_t stride, int64_t padding,
                        int64_t dilation) {
  Dim room = image + 2 * padding - Dim(dilation) * (kernel - 1) - 1;
  return floor_div(room, stride) + 1;
}

}  // namespace gradus::ops
