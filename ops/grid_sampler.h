// Images read between their elements, at places that data give.
#pragma once

#include "gradus/table.h"

namespace gradus::ops {

// x [N, C, H, W] at grid [N, H', W', 2], whose last dimension is (across, down) from -1 to 1: the
// centres of the outermost elements with align_corners, else their outer edges. `mode` is
// "bilinear", "nearest" (halves to even) or "bicubic" (Keys' with -0.75), `padding_mode` "zeros",
// "border" or "reflection". Where a place is brought back to the border, its derivative is 0, also
// on the border, as in ATen.
struct GridSampler2d {
  static constexpr std::string_view name = "grid_sampler_2d",
                                    doc = "y[n, :, i, j] = x[n] at the place grid[n, i, j]";
  static constexpr std::array<std::string_view, 2> inputs{"x", "grid"};
  struct Attr {
    std::string mode = "bilinear", padding_mode = "zeros";
    bool align_corners = false;
    static constexpr auto fields() {
      return std::tuple(field("mode", &Attr::mode), field("padding_mode", &Attr::padding_mode),
                        field("align_corners", &Attr::align_corners));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

using GridSamplerOperators = std::tuple<GridSampler2d>;

}  // namespace gradus::ops
