// How pooling places its windows.
#pragma once

#include "ops/image_axes.h"

namespace gradus::ops {

// Windows along one axis of an image: their number, and elements that lie past the padded image.
struct PooledAxis {
  Dim windows, beyond;
};

// Refuses attributes that are no windows; padding is at most half a window.
template <class Call>
void check_windows(const Call& call, const Ints& kernel, const std::optional<Ints>& stride,
                   const Ints& padding, int spatial) {
  check_list(call, "kernel", kernel, spatial, 1);
  if (stride) check_list(call, "stride", *stride, spatial, 1);
  check_list(call, "padding", padding, spatial, 0);
  for (int d = 0; d < spatial; ++d)
    if (2 * along(padding, d) > along(kernel, d))
      call.fail("'padding' is {}; it must be at most half of 'kernel', {}", along(padding, d),
                along(kernel, d));
}

// Axis d of an image of that size. Refuses one that no window fits where the size is known.
template <class Call, class A>
PooledAxis pooled_axis(const Call& call, const A& a, int d, const Dim& image) {
  const int64_t kernel = along(a.kernel, d), stride = along(a.stride.value_or(a.kernel), d);
  const int64_t padding = along(a.padding, d);
  int64_t dilation = 1;
  if constexpr (requires { a.dilation; }) dilation = along(a.dilation, d);
  const int64_t reach = dilation * (kernel - 1) + 1;
  const Dim padded = image + 2 * padding;
  Dim windows = floor_div(padded - reach, stride) + 1;
  if (a.ceil_mode) {
    // Those that begin inside the image or the padding before it.
    Dim begun = floor_div(image + padding - 1, stride) + 1;
    windows = min(floor_div(padded - reach + stride - 1, stride) + 1, begun);
  }
  if (windows.is_constant() && windows.value() < 1)
    call.fail("a window of {} elements does not fit a size of {} with padding {}", reach,
              image.to_string(), padding);
  Dim beyond = a.ceil_mode ? max((windows - 1) * Dim(stride) + reach - padded, 0) : Dim(0);
  return {windows, beyond};
}

}  // namespace gradus::ops
