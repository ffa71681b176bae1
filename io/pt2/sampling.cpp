// Images read between their elements, at places that data give.
#include <array>

#include "io/pt2/images.h"

namespace gradus::pt2 {

void grid_sampler(Call& c) {
  constexpr std::array modes{"bilinear", "nearest", "bicubic"};
  constexpr std::array paddings{"zeros", "border", "reflection"};
  Value x = c.x("input"), grid = c.x("grid");
  if (x.rank() != 4 || grid.rank() != 4)
    c.fail("a grid over other than images [N, C, H, W] is not supported");
  const int64_t mode = c.integer("interpolation_mode"), padding = c.integer("padding_mode");
  if (mode < 0 || mode > 2 || padding < 0 || padding > 2) c.fail("there is no such mode");
  c.give(emit("grid_sampler_2d", {x, grid},
              {{"mode", std::string(modes[static_cast<size_t>(mode)])},
               {"padding_mode", std::string(paddings[static_cast<size_t>(padding)])},
               {"align_corners", c.flag("align_corners", false)}}));
}

}  // namespace gradus::pt2
