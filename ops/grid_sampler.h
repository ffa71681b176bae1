// Images read between their elements, at places that data give.
#pragma once

#include "gradus/table.h"

namespace gradus::ops {

// `mode` is "bilinear" (between all neighbours, in any number of dimensions), "nearest" (halves to
// even) or "bicubic" (Keys' with -0.75), `padding_mode` "zeros", "border" or "reflection".
struct GridSamplerAttr {
  std::string mode = "bilinear", padding_mode = "zeros";
  bool align_corners = false;
  static constexpr auto fields() {
    return std::tuple(field("mode", &GridSamplerAttr::mode),
                      field("padding_mode", &GridSamplerAttr::padding_mode),
                      field("align_corners", &GridSamplerAttr::align_corners));
  }
};

// x [N, C, H, W] at grid [N, H', W', 2], whose last dimension is (across, down) from -1 to 1: the
// centres of the outermost elements with align_corners, else their outer edges. Where a place is
// brought back to the border, its derivative is 0, also on the border, as in ATen.
struct GridSampler2d {
  static constexpr std::string_view name = "grid_sampler_2d",
                                    doc = "y[n, :, i, j] = x[n] at the place grid[n, i, j]";
  static constexpr std::array<std::string_view, 2> inputs{"x", "grid"};
  using Attr = GridSamplerAttr;
  static void compose(ComposeCall&, const Attr&);
};

// The same in one to three dimensions: of x [N, C, D, H, W] at grid [N, D', H', W', 3], (across,
// down, inwards).
struct GridSampler {
  static constexpr std::string_view name = "grid_sampler",
                                    doc = "y[n, :, i, ..] = x[n] at the place grid[n, i, ..]";
  static constexpr std::array<std::string_view, 2> inputs{"x", "grid"};
  using Attr = GridSamplerAttr;
  static void compose(ComposeCall&, const Attr&);
};

using GridSamplerOperators = std::tuple<GridSampler2d, GridSampler>;

}  // namespace gradus::ops
