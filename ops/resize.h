// Images made larger.
#pragma once

#include "gradus/table.h"

namespace gradus::ops {

using namespace std::literals;

struct UpsampleNearest2d {
  static constexpr auto name = "upsample_nearest2d"sv,
                        doc = "y[.., i, j] = x[.., i // scale, j // scale]"sv;
  struct Attr {
    int64_t scale = 1;
    static constexpr auto fields() { return std::tuple(required("scale", &Attr::scale)); }
  };
  static void compose(ComposeCall&, const Attr&);
};

// Source positions i * (H - 1) / (out - 1) with `align_corners`, else (i + 1/2) H / out - 1/2, at
// least 0.
struct UpsampleBilinear2d {
  static constexpr auto name = "upsample_bilinear2d"sv,
                        doc = "y = x between its four nearest elements, of spatial sizes `size`"sv;
  struct Attr {
    Ints size;
    bool align_corners = false;
    static constexpr auto fields() {
      return std::tuple(required("size", &Attr::size),
                        field("align_corners", &Attr::align_corners));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct PixelShuffle {
  static constexpr auto name = "pixel_shuffle"sv,
                        doc = "y[.., c, i*r + p, j*r + q] = x[.., (c*r + p)*r + q, i, j]"sv;
  struct Attr {
    int64_t r = 1;
    static constexpr auto fields() { return std::tuple(required("r", &Attr::r)); }
  };
  static void compose(ComposeCall&, const Attr&);
};

using ResizeOperators = std::tuple<UpsampleNearest2d, UpsampleBilinear2d, PixelShuffle>;

}  // namespace gradus::ops
