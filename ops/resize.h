// Images made larger.
#pragma once

#include "ops/table.h"

namespace gradus::ops {

using namespace std::literals;

struct UpsampleNearest2d {
  static constexpr auto name = "upsample_nearest2d"sv,
                        doc = "y[.., i, j] = x[.., i // scale, j // scale]"sv;
  static constexpr std::array inputs{"x"sv};
  struct Attr {
    int64_t scale = 1;
    static constexpr auto fields() { return std::tuple(required("scale", &Attr::scale)); }
  };
  static void compose(ComposeCall&);
};

struct PixelShuffle {
  static constexpr auto name = "pixel_shuffle"sv,
                        doc = "y[.., c, i*r + p, j*r + q] = x[.., (c*r + p)*r + q, i, j]"sv;
  static constexpr std::array inputs{"x"sv};
  struct Attr {
    int64_t r = 1;
    static constexpr auto fields() { return std::tuple(required("r", &Attr::r)); }
  };
  static void compose(ComposeCall&);
};

using ResizeOperators = std::tuple<UpsampleNearest2d, PixelShuffle>;

}  // namespace gradus::ops
