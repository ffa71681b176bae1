// Images read between their elements, at places that data give.
#include <array>

#include "io/pt2/images.h"

namespace gradus::pt2 {

using namespace ops;

void grid_sampler(Call& c) {
  constexpr std::array modes{"bilinear", "nearest", "bicubic"};
  constexpr std::array paddings{"zeros", "border", "reflection"};
  Value x = c.x("input"), grid = c.x("grid");
  const int64_t mode = c.integer("interpolation_mode"), padding = c.integer("padding_mode");
  if (mode < 0 || mode > 2 || padding < 0 || padding > 2) c.fail("there is no such mode");
  c.give(emit("grid_sampler", {x, grid},
              {{"mode", std::string(modes[static_cast<size_t>(mode)])},
               {"padding_mode", std::string(paddings[static_cast<size_t>(padding)])},
               {"align_corners", c.flag("align_corners", false)}}));
}

namespace {

// Where the elements of an axis lie from -1 to 1: their centres, or with `align` from end to end.
Value axis_places(Call& c, const Dim& n, bool align, DType dtype) {
  Value i = cast(arange(c.world(), n), dtype);
  Value size = full(c.world(), {}, 0, dtype) + Value::number(n);
  if (!align) return (i * 2.0 + 1.0) / size - 1.0;
  // One element lies in the middle.
  Value gaps = binary("maximum", size - 1.0, num(1.0));
  return (i * 2.0 - (size - 1.0)) / gaps;
}

}  // namespace

// The places of an image's elements, and 1, times a matrix for each image.
void affine_grid(Call& c) {
  Value theta = c.x("theta");
  const Dims size = c.sizes("size");
  const int64_t axes = static_cast<int64_t>(size.size()) - 2;
  if (theta.rank() != 3 || axes < 2 || axes > 3)
    c.fail("it wants matrices [N, 2, 3] and a size of 4, or [N, 3, 4] and a size of 5");
  const Dims spatial(size.begin() + 2, size.end());
  std::vector<Value> parts;
  for (size_t d = spatial.size(); d-- > 0;) {  // the last axis comes first
    Dims along(spatial.size() + 1, 1);
    along[d] = spatial[d];
    Value places = axis_places(c, spatial[d], c.flag("align_corners", false), theta.dtype());
    Dims all = spatial;
    all.push_back(1);
    parts.push_back(expand(reshape(places, along), all));
  }
  parts.push_back(ones_like(parts[0]));
  Value places = cat(parts, static_cast<int64_t>(spatial.size()));
  Value rows = reshape(places, {ir::numel(spatial), axes + 1});
  c.give(reshape(matmul_transposed(rows, theta), c.result().sizes));
}

}  // namespace gradus::pt2
