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

// One axis of a grid: its length, and how it is read.
struct Line {
  Dim length;
  bool align, zeros, border, reflect;
};

// A coordinate turned back at both ends as often as need be.
Value reflected(const Value& x, const Line& l) {
  double low = l.align ? 0 : -0.5;
  Dim span = l.align ? l.length - Dim(1) : l.length;
  if (span == Dim(0)) return zeros_like(x);
  Value twice = Value::number(span * Dim(2)), once = Value::number(span);
  Value r = binary("remainder", unary("abs", x - low), twice);
  Value back = binary("sub", twice, r);
  return where(gt(r, once), back, r) + low;
}

Value settled(const Value& x, const Line& l) {
  if (l.zeros) return x;
  Value y = l.reflect ? reflected(x, l) : x;
  return between(y, num(0.0), number_less(l.length, 1));
}

// From [-1, 1] to elements.
Value place(const Value& g, const Line& l) {
  if (l.align) return (g + 1.0) / 2.0 * number_less(l.length, 1);
  return ((g + 1.0) * Value::number(l.length) - 1.0) / 2.0;
}

// Elements (as integers) and weights; the weight is 0 where an element is outside and counts for 0.
struct Tap {
  Value at, weight;
};
Tap tap(const Value& at, const Value& weight, const Line& l, bool cubic) {
  // Of cubic taps each is brought inside by itself.
  Value place = cubic ? settled(at, l) : at;
  Tap t{cast(place, DType::i64), weight};
  if (!l.zeros) return t;
  Value there = logical_and(ge(at, num(0.0)), le(at, number_less(l.length, 1)));
  t.weight = where(there, weight, num(0.0));
  return t;
}

std::vector<Tap> taps(const Value& x, const Line& l, const std::string& mode) {
  if (mode == "nearest") {
    Value at = unary("round", settled(x, l));
    return {tap(at, ones_like(x), l, false)};
  }
  if (mode == "bilinear") {
    Value s = settled(x, l), low = unary("floor", s), t = s - low;
    return {tap(low, 1.0 - t, l, false), tap(low + 1.0, t, l, false)};
  }
  // Keys' cubic with -0.75: of |d| <= 1, and of 1 < |d| < 2.
  auto near = [](const Value& d) { return (d * 1.25 - 2.25) * d * d + 1.0; };
  auto far = [](const Value& d) { return ((d * -0.75 + 3.75) * d - 6.0) * d + 3.0; };
  Value low = unary("floor", x), t = x - low, u = 1.0 - t;
  return {tap(low - 1.0, far(t + 1.0), l, true), tap(low, near(t), l, true),
          tap(low + 1.0, near(u), l, true), tap(low + 2.0, far(u + 1.0), l, true)};
}

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
  std::string mode = c.attribute("mode", "bilinear");
  std::string padding = c.attribute("padding_mode", "zeros");
  if (mode != "nearest" && mode != "bilinear" && mode != "bicubic")
    c.fail("there is no mode '{}'", mode);
  if (padding != "zeros" && padding != "border" && padding != "reflection")
    c.fail("there is no padding_mode '{}'", padding);
  Line line{0, c.flag("align_corners"), padding == "zeros", padding == "border",
            padding == "reflection"};
  Line across = line, down = line;
  down.length = x.dims()[2];
  across.length = x.dims()[3];
  auto coordinate = [&](int64_t i) { return select(grid, -1, i); };
  std::vector<Tap> xs = taps(place(coordinate(0), across), across, mode);
  std::vector<Tap> ys = taps(place(coordinate(1), down), down, mode);
  Image image = image_of(c, x, reshape(arange(c.world(), x.dims()[0]), {x.dims()[0], 1, 1}));
  c.give(permute(cast(weighted(image, ys, xs), x.dtype()), {0, 3, 1, 2}));
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
