// Images read between their elements, at places that data give: GridSample and RoiAlign.
#include "io/onnx/call.h"

namespace gradus::onnx {

using namespace ops;

namespace {

// An image [N, C, H, W] and the samples that are read: sample[i] is the image of result i.
struct Image {
  Call& c;
  Value channels_last;  // [N, H, W, C]
  Value sample;
  Dim height, width;

  // The pixels there, [.., C]; places outside are brought to the edge.
  Value at(const Value& y, const Value& x) const {
    return emit_all(c.world(), "index",
                    std::vector{channels_last, sample, inside(y, height), inside(x, width)})[0];
  }
  static Value inside(const Value& i, const Dim& n) {
    return between(i, num(int64_t{0}), Value::number(n - Dim(1)));
  }
};

Value number_less(const Dim& n, int64_t by) { return Value::number(n - Dim(by)); }

Image image_of(Call& c, const Value& x, const Value& sample) {
  return {c, permute(x, {0, 2, 3, 1}), sample, x.dims()[2], x.dims()[3]};
}

// Elements (as integers) and weights.
struct Tap {
  Value at, weight;
};

// The sum of the elements, each times its weights.
Value weighted(const Image& image, const std::vector<Tap>& ys, const std::vector<Tap>& xs) {
  Value sum;
  for (const Tap& y : ys)
    for (const Tap& x : xs) {
      Value part = image.at(y.at, x.at) * unsqueeze(y.weight * x.weight, -1);
      sum = sum.defined() ? sum + part : part;
    }
  return sum;
}

void grid_sample(Call& c) {
  Value x = c.x(), grid = c.x(1);
  if (x.rank() != 4 || grid.rank() != 4) c.unsupported("GridSample of other than images");
  c.give(emit("grid_sampler_2d", {x, grid},
              {{"mode", c.attribute("mode", "bilinear")},
               {"padding_mode", c.attribute("padding_mode", "zeros")},
               {"align_corners", c.flag("align_corners")}}));
}

// Two neighbours along one axis, as RoiAlign reads: what is more than one outside counts for 0.
std::vector<Tap> neighbours(const Value& place, const Dim& length) {
  Value counts = logical_and(ge(place, num(-1.0)), le(place, Value::number(length)));
  Value s = between(place, num(0.0), number_less(length, 1));
  Value low = unary("floor", s), t = s - low;
  return {{cast(low, DType::i64), where(counts, 1.0 - t, num(0.0))},
          {cast(low + 1.0, DType::i64), where(counts, t, num(0.0))}};
}

void roi_align(Call& c) {
  Value x = c.x(), rois = c.x(1);
  if (x.rank() != 4 || rois.rank() != 2) c.fail("it wants images [N, C, H, W] and rois [R, 4]");
  if (c.attribute("mode", "avg") != "avg") c.unsupported("RoiAlign with mode 'max'");
  int64_t ratio = c.attribute("sampling_ratio", int64_t{0});
  if (ratio < 1 || ratio > 1024) c.unsupported("RoiAlign with sampling_ratio {}", ratio);
  const char* absent = c.opset() >= 16 ? "half_pixel" : "output_half_pixel";
  bool half = c.attribute("coordinate_transformation_mode", absent) == "half_pixel";
  double scale = c.attribute("spatial_scale", 1.0);
  Dim many = rois.dims()[0];
  // Places along one axis: [R, out * ratio].
  auto places = [&](int64_t first, int64_t out) {
    auto bound = [&](int64_t i) {
      Value v = select(rois, 1, i) * scale;
      return unsqueeze(half ? v - 0.5 : v, 1);
    };
    Value start = bound(first), size = bound(first + 2) - start;
    if (!half) size = binary("maximum", size, num(1.0));
    Value steps =
        (cast(arange(c.world(), out * ratio), x.dtype()) + 0.5) / static_cast<double>(out * ratio);
    return start + size * unsqueeze(steps, 0);
  };
  int64_t high = c.attribute("output_height", int64_t{1});
  int64_t wide = c.attribute("output_width", int64_t{1});
  if (high < 1 || wide < 1 || high > 4096 || wide > 4096) c.fail("its output has no such size");
  std::vector<Tap> ys = neighbours(unsqueeze(places(1, high), 2), x.dims()[2]);
  std::vector<Tap> xs = neighbours(unsqueeze(places(0, wide), 1), x.dims()[3]);
  Image image = image_of(c, x, reshape(c.x(2), {many, 1, 1}));
  Value bins = reshape(weighted(image, ys, xs), {many, high, ratio, wide, ratio, x.dims()[1]});
  Value mean = emit("mean", {bins}, {{"dim", Literal::list(Ints{2, 4})}});
  c.give(permute(mean, {0, 3, 1, 2}));
}

constexpr RuleEntry sampling_table[] = {
    {"GridSample", 16, grid_sample},
    {"RoiAlign", 10, roi_align},
};

}  // namespace

constinit const Rules sampling_rules = sampling_table;

}  // namespace gradus::onnx
