// Images read between their elements, at places that data give: GridSample, DeformConv, RoiAlign.
#include "io/onnx/windows.h"

namespace gradus::onnx {

using namespace ops;

namespace {

// An image [N, C, spatial..] and the samples that are read: sample[i] is the image of result i.
struct Image {
  Call& c;
  Value channels_last;  // [N, spatial.., C]
  Value sample;
  Dims lengths;

  // The elements there, [.., C]; places outside are brought to the edge.
  Value at(const std::vector<Value>& places) const {
    std::vector<Value> operands{channels_last, sample};
    for (size_t d = 0; d < places.size(); ++d) operands.push_back(inside(places[d], lengths[d]));
    return emit_all(c.world(), "index", operands)[0];
  }
  static Value inside(const Value& i, const Dim& n) {
    return between(i, num(int64_t{0}), Value::number(n - Dim(1)));
  }
};

Value number_less(const Dim& n, int64_t by) { return Value::number(n - Dim(by)); }

Image image_of(Call& c, const Value& x, const Value& sample) {
  Ints order{0};
  for (int d = 2; d < x.rank(); ++d) order.push_back(d);
  order.push_back(1);
  return {c, permute(x, order), sample, Dims(x.dims().begin() + 2, x.dims().end())};
}

// Elements (as integers) and weights.
struct Tap {
  Value at, weight;
};
// Of the two neighbours of a place; one outside has the weight 0.
std::vector<Tap> taps(const Value& x, const Dim& length) {
  Value low = unary("floor", x), t = x - low;
  auto tap = [&](const Value& at, const Value& weight) {
    Value there = logical_and(ge(at, num(0.0)), le(at, number_less(length, 1)));
    return Tap{cast(at, DType::i64), where(there, weight, num(0.0))};
  };
  return {tap(low, 1.0 - t), tap(low + 1.0, t)};
}

// The sum of the elements, each times its weights: of axes from `d` on, whose places before are
// given.
void add_weighted(const Image& image, const std::vector<std::vector<Tap>>& axes,
                  std::vector<Value>& places, const Value& weight, Value& sum) {
  const size_t d = places.size();
  if (d == axes.size()) {
    Value part = image.at(places) * unsqueeze(weight, -1);
    sum = sum.defined() ? sum + part : part;
    return;
  }
  for (const Tap& t : axes[d]) {
    places.push_back(t.at);
    add_weighted(image, axes, places, d == 0 ? t.weight : weight * t.weight, sum);
    places.pop_back();
  }
}
Value weighted(const Image& image, const std::vector<std::vector<Tap>>& axes) {
  Value sum;
  std::vector<Value> places;
  add_weighted(image, axes, places, {}, sum);
  return sum;
}

// In as many dimensions as the image has. A place has the last dimension's coordinate first.
void grid_sample(Call& c) {
  Value x = c.x(), grid = c.x(1);
  const int spatial = x.rank() - 2;
  if (spatial < 1 || grid.rank() != x.rank())
    c.fail("it wants images [N, C, spatial..] and a grid");
  if (spatial > 3 || (spatial != 2 && c.opset() < 20))
    c.unsupported("GridSample in {} dimensions", spatial);
  std::string mode = c.attribute("mode", c.opset() < 20 ? "bilinear" : "linear");
  if (mode == "linear") mode = "bilinear";
  if (mode == "cubic") mode = "bicubic";
  std::string padding = c.attribute("padding_mode", "zeros");
  if (mode != "nearest" && mode != "bilinear" && mode != "bicubic")
    c.fail("there is no mode '{}'", mode);
  if (padding != "zeros" && padding != "border" && padding != "reflection")
    c.fail("there is no padding_mode '{}'", padding);
  c.give(emit(
      "grid_sampler", {x, grid},
      {{"mode", mode}, {"padding_mode", padding}, {"align_corners", c.flag("align_corners")}}));
}

// The places of the elements of a grid, from -1 to 1: their centres, or the corners' centres at the
// ends.
Value centres(Call& c, const Dim& n, DType dtype, bool align) {
  Value i = cast(arange(c.world(), n), dtype);
  if (align) return n == Dim(1) ? i - 1.0 : i * 2.0 / (n - Dim(1)) - 1.0;
  return (i * 2.0 + 1.0) / n - 1.0;
}

// Where an affine function takes the places of a grid of that size.
void affine_grid(Call& c) {
  Value theta = c.x();
  Dims size = c.sizes(1, "size");
  const size_t spatial = size.size() < 2 ? 0 : size.size() - 2;
  if ((spatial != 2 && spatial != 3) || theta.rank() != 3)
    c.fail("it wants matrices [N, 2, 3] or [N, 3, 4], and the size [N, C, spatial..]");
  Value y;
  // Coordinates of the last dimension come first; behind all of them stands the shift.
  auto column = [&](size_t k) {
    Value v = select(theta, 2, static_cast<int64_t>(k));
    for (size_t d = 0; d < spatial; ++d) v = unsqueeze(v, 1);
    return v;
  };
  for (size_t k = 0; k < spatial; ++k) {
    const size_t d = spatial - 1 - k;
    Value at = centres(c, size[d + 2], theta.dtype(), c.flag("align_corners"));
    Value part = column(k) * under(at, static_cast<int64_t>(d) + 1, static_cast<int>(spatial) + 2);
    y = k == 0 ? part : y + part;
  }
  y = y + column(spatial);
  Dims shape{theta.dims()[0]};
  for (size_t d = 0; d < spatial; ++d) shape.push_back(size[d + 2]);
  shape.push_back(static_cast<int64_t>(spatial));
  c.give(expand(y, shape));
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
  Value bins = reshape(weighted(image, {ys, xs}), {many, high, ratio, wide, ratio, x.dims()[1]});
  Value mean = emit("mean", {bins}, {{"dim", Literal::list(Ints{2, 4})}});
  c.give(permute(mean, {0, 3, 1, 2}));
}

// A coordinate of the places that a convolution reads: windows begin at `start`, steps apart; what
// is added to them lies in `shift` [N, kernel.., windows..].
struct Reading {
  const Window& window;
  size_t axis;
  Value of(Call& c, const Value& shift) const {
    const int d = static_cast<int>(axis);
    auto along = [&](const Dim& n, double step, double start, int64_t at) {
      Value i = cast(arange(c.world(), n), shift.dtype());
      return under(i * step + start, at, shift.rank());
    };
    auto number = [](int64_t v) { return static_cast<double>(v); };
    const double before = number(window.before[axis].value());
    return shift + along(window.kernel[axis], number(window.dilation[axis]), -before, 1 + d) +
           along(shift.dims()[axis + 3], number(window.stride[axis]), 0, 3 + d);
  }
};

// A convolution whose kernel's elements are moved, each by its own offset, and weighed.
void deformed_conv(Call& c) {
  Value x = c.x(), w = c.x(1), offset = c.x(2);
  if (x.rank() != 4 || w.rank() != 4) c.unsupported("DeformConv of other than images");
  if (offset.rank() != 4) c.fail("its offsets have {} dimensions, not 4", offset.rank());
  Window window = kernel_window_of(c, x.dims(), w.dims());
  const Ints& kernel = window.kernel;
  if (!window.before[0].constant() || !window.before[1].constant())
    c.unsupported("DeformConv with pads that have a name");
  const int64_t groups = c.attribute("group", int64_t{1});
  const int64_t shifts = c.attribute("offset_group", int64_t{1});
  if (groups < 1 || shifts < 1) c.fail("it has {} groups and {} of offsets", groups, shifts);
  const Dim n = x.dims()[0], channels = x.dims()[1], outputs = w.dims()[0];
  const Dim each = floor_div(channels, shifts), all = n * Dim(shifts);
  const Dim high = offset.dims()[2], wide = offset.dims()[3];
  // Channels that move together are an image.
  Value moved = reshape(offset, {all, kernel[0], kernel[1], 2, high, wide});
  std::vector<std::vector<Tap>> axes(2);
  for (size_t d = 0; d < 2; ++d) {
    Value at = Reading{window, d}.of(c, select(moved, 3, static_cast<int64_t>(d)));
    axes[d] = taps(at, x.dims()[d + 2]);
  }
  Value parts = reshape(x, {all, each, x.dims()[2], x.dims()[3]});
  Image image = image_of(c, parts, reshape(arange(c.world(), all), {all, 1, 1, 1, 1}));
  Value read = weighted(image, axes);  // [n * shifts, kernel.., windows.., each]
  if (c.given(4))
    read = read * unsqueeze(reshape(c.x(4), {all, kernel[0], kernel[1], high, wide}), -1);
  const Dim reads = each * Dim(kernel[0] * kernel[1]), windows = high * wide;
  Value columns = reshape(permute(read, {0, 5, 1, 2, 3, 4}),
                          {n, groups, floor_div(reads * Dim(shifts), groups), windows});
  Value rows =
      reshape(w, {groups, floor_div(outputs, groups), w.dims()[1] * Dim(kernel[0] * kernel[1])});
  Value y = reshape(matmul(rows, columns), {n, outputs, high, wide});
  if (c.given(3)) y = y + under(c.x(3), 1, 4);
  c.give(cast(y, x.dtype()));
}

constexpr RuleEntry sampling_table[] = {
    {"GridSample", 16, grid_sample},
    {"AffineGrid", 20, affine_grid},
    {"DeformConv", 19, deformed_conv},
    {"RoiAlign", 10, roi_align},
};

}  // namespace

constinit const Rules sampling_rules = sampling_table;

}  // namespace gradus::onnx
