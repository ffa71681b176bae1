// Resize and Upsample: along each axis, sums of few elements with weights that are known now.
#include <algorithm>
#include <cmath>

#include "io/onnx/call.h"
#include "io/onnx/model.h"

namespace gradus::onnx {

using namespace ops;

namespace {

struct Resizing {
  std::string mode, transform, nearest, aspect;
  double cubic = -0.75, outside = 0;
  bool exclude_outside = false, antialias = false;
};

// One axis: sizes, and how far apart the elements lie.
struct Axis {
  int64_t in, out;
  double scale, start = 0, end = 1;
  // As ONNX's reference has it, `resized` is in * scale where scales are given, not what is left of
  // that as a whole number.
  double resized;
};

// The place in x of element i of the result.
double place(const Resizing& r, const Axis& a, int64_t i) {
  double at = static_cast<double>(i), last = static_cast<double>(a.in) - 1;
  if (r.transform == "align_corners") return a.resized == 1 ? 0 : at * last / (a.resized - 1);
  if (r.transform == "asymmetric") return at / a.scale;
  if (r.transform == "tf_half_pixel_for_nn") return (at + 0.5) / a.scale;
  if (r.transform == "pytorch_half_pixel" && a.out == 1) return 0;
  if (r.transform == "half_pixel_symmetric") {
    // What is cut off of the result is missing on both sides.
    double whole = static_cast<double>(a.out) / a.resized;
    return static_cast<double>(a.in) / 2 * (1 - whole) + (at + 0.5) / a.scale - 0.5;
  }
  if (r.transform == "tf_crop_and_resize") {
    if (a.out == 1) return 0.5 * (a.start + a.end) * last;
    return a.start * last + at * (a.end - a.start) * last / (a.resized - 1);
  }
  return (at + 0.5) / a.scale - 0.5;
}

// Elements of x near a place, and their weights.
struct Taps {
  int64_t first;
  std::vector<double> weights;
};
// Keys' cubic at a distance.
double cubic_weight(double a, double d) {
  d = std::abs(d);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

// Where the result is smaller, an element of it is a mean of as many as lie there.
Taps smoothed_taps_at(const Resizing& r, double x, double scale) {
  scale = std::min(scale, 1.0);
  const bool cubic = r.mode == "cubic";
  const auto reach = static_cast<int64_t>(std::ceil((cubic ? 2 : 1) / scale));
  double floor = std::floor(x), t = x - floor, total = 0;
  Taps taps{static_cast<int64_t>(floor) - reach + 1, {}};
  for (int64_t k = 1 - reach; k <= reach; ++k) {
    double d = (static_cast<double>(k) - t) * scale;
    taps.weights.push_back(cubic ? cubic_weight(r.cubic, d) : std::max(0.0, 1 - std::abs(d)));
    total += taps.weights.back();
  }
  for (double& w : taps.weights) w /= total;
  return taps;
}

Taps taps_at(const Resizing& r, double x, double scale) {
  if (r.antialias) return smoothed_taps_at(r, x, scale);
  double floor = std::floor(x), t = x - floor;
  auto first = static_cast<int64_t>(floor);
  if (r.mode == "nearest") {
    int64_t up = t > 0 ? 1 : 0;
    if (r.nearest == "floor") up = 0;
    if (r.nearest == "round_prefer_floor") up = t > 0.5 ? 1 : 0;
    if (r.nearest == "round_prefer_ceil") up = t >= 0.5 ? 1 : 0;
    return {first + up, {1}};
  }
  if (r.mode == "linear") return {first, {1 - t, t}};
  // Keys' cubic: of |d| <= 1, and of 1 < |d| < 2.
  auto near = [&](double d) { return ((r.cubic + 2) * d - (r.cubic + 3)) * d * d + 1; };
  auto far = [&](double d) {
    return ((r.cubic * d - 5 * r.cubic) * d + 8 * r.cubic) * d - 4 * r.cubic;
  };
  return {first - 1, {far(1 + t), near(t), near(1 - t), far(2 - t)}};
}

// y[i] = sum over k of x[index_k[i]] weight_k[i] along the axis.
Value resized(Call& c, const Value& x, int dim, const Resizing& r, const Axis& a) {
  constexpr double least_scale = 1e-4, most_weights = 1e7;
  if (r.antialias && !(a.scale > least_scale))
    c.unsupported("{} with antialias by a scale of {}", c.op(), a.scale);
  size_t count = taps_at(r, 0, a.scale).weights.size();
  if (static_cast<double>(count) * static_cast<double>(a.out) > most_weights)
    c.unsupported("{} with {} weights for each of {} elements", c.op(), count, a.out);
  std::vector<std::vector<double>> index(count), weight(count);
  for (int64_t i = 0; i < a.out; ++i) {
    Taps t = taps_at(r, place(r, a, i), a.scale);
    double sum = 0;
    for (size_t k = 0; k < count; ++k) {
      int64_t at = t.first + static_cast<int64_t>(k);
      bool inside = at >= 0 && at < a.in;
      if (r.exclude_outside && !inside) t.weights[k] = 0;
      index[k].push_back(static_cast<double>(std::clamp<int64_t>(at, 0, a.in - 1)));
      sum += t.weights[k];
    }
    for (size_t k = 0; k < count; ++k)
      weight[k].push_back(r.exclude_outside ? t.weights[k] / sum : t.weights[k]);
  }
  Value y;
  for (size_t k = 0; k < count; ++k) {
    Value part = index_select(x, c.constant(tensor_with(DType::i64, index[k])), dim);
    if (count > 1) {
      part = part * under(c.constant(tensor_with(x.dtype(), weight[k])), dim, x.rank());
    }
    y = k == 0 ? part : y + part;
  }
  return y;
}

// Where a place of a crop lies outside of x there is `outside`.
Value with_outside(Call& c, const Value& y, int dim, const Resizing& r, const Axis& a) {
  if (r.transform != "tf_crop_and_resize") return y;
  std::vector<double> inside;
  bool all = true;
  for (int64_t i = 0; i < a.out; ++i) {
    double x = place(r, a, i);
    inside.push_back(x >= 0 && x <= static_cast<double>(a.in - 1));
    all = all && inside.back() != 0;
  }
  if (all) return y;
  Value mask = c.constant(tensor_with(DType::boolean, inside));
  return where(under(mask, dim, y.rank()), y, num(r.outside));
}

std::vector<double> known_numbers(Call& c, size_t i, std::string_view what) {
  return c.given(i) && c.item(i)->type.dims != Dims{0} ? c.known(i, what).to_doubles()
                                                       : std::vector<double>();
}

Resizing resizing_of(Call& c) {
  Resizing r;
  r.mode = c.attribute("mode", "nearest");
  if (c.opset() < 7 && r.mode == "bilinear") r.mode = "linear";
  bool old = c.opset() < 11 || c.op() == "Upsample";
  r.transform = old ? "asymmetric" : c.attribute("coordinate_transformation_mode", "half_pixel");
  r.nearest = old ? "floor" : c.attribute("nearest_mode", "round_prefer_floor");
  r.cubic = c.attribute("cubic_coeff_a", -0.75);
  r.outside = c.attribute("extrapolation_value", 0.0);
  r.exclude_outside = c.flag("exclude_outside");
  if (r.mode != "nearest" && r.mode != "linear" && r.mode != "cubic")
    c.fail("there is no mode '{}'", r.mode);
  constexpr std::string_view transforms[] = {
      "half_pixel", "pytorch_half_pixel",   "half_pixel_symmetric", "align_corners",
      "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize"};
  if (std::ranges::find(transforms, r.transform) == std::end(transforms))
    c.unsupported("{} with coordinates '{}'", c.op(), r.transform);
  r.antialias = c.flag("antialias");
  if (r.antialias && r.mode == "nearest") c.fail("nearest elements have nothing to smooth");
  r.aspect = c.attribute("keep_aspect_ratio_policy", "stretch");
  if (r.aspect != "stretch" && r.aspect != "not_larger" && r.aspect != "not_smaller")
    c.fail("there is no keep_aspect_ratio_policy '{}'", r.aspect);
  return r;
}

// One scale for all axes, with which none is larger, or none smaller, than asked for.
double common_scale(Call& c, const Resizing& r, const Dims& x, const Ints& axes,
                    const Dims& sizes) {
  double scale = 0;
  for (size_t k = 0; k < axes.size(); ++k) {
    const Dim& in = x[static_cast<size_t>(c.axis(axes[k], static_cast<int>(x.size())))];
    if (!in.constant() || in == Dim(0) || !sizes[k].constant())
      c.unsupported("{} along a size that has a name", c.op());
    double mine = static_cast<double>(sizes[k].value()) / static_cast<double>(in.value());
    bool takes = r.aspect == "not_larger" ? mine < scale : mine > scale;
    if (k == 0 || takes) scale = mine;
  }
  return scale;
}

// How often each element comes, one after the other, where that is all; 0 where it is not. By a
// whole scale no place lies half way between two elements, so that all ways to round are one.
int64_t copies(const Resizing& r, const Dim& in, const double* scale, const Dim* size) {
  bool cuts = r.transform == "asymmetric" && r.nearest == "floor";
  bool rounds = r.transform.ends_with("half_pixel") && r.nearest.starts_with("round");
  if (r.mode != "nearest" || !(cuts || rounds)) return 0;
  constexpr int64_t most = 64;
  for (int64_t n = 2; n <= most; ++n)
    if (scale ? *scale == static_cast<double>(n) : *size == in * Dim(n)) return n;
  return 0;
}

void resize(Call& c) {
  Value x = c.x();
  Resizing r = resizing_of(c);
  size_t rank = x.dims().size();
  std::vector<double> scales, roi;
  Dims sizes;
  if (c.opset() < 7) {
    scales = {1, 1, c.attribute("height_scale", 1.0), c.attribute("width_scale", 1.0)};
  } else if (c.op() == "Upsample" || c.opset() < 11) {
    scales = c.has("scales") ? c.numbers("scales") : known_numbers(c, 1, "scales");
  } else {
    roi = r.transform == "tf_crop_and_resize" ? known_numbers(c, 1, "roi") : roi;
    for (double bound : roi)
      if (!(std::abs(bound) < 1e6)) c.fail("a bound of its roi is {}", bound);
    scales = known_numbers(c, 2, "scales");
    if (scales.empty() && c.given(3)) sizes = c.sizes(3, "sizes");
  }
  Ints axes = c.integers("axes").value_or(Ints{});
  if (axes.empty())
    for (size_t d = 0; d < rank; ++d) axes.push_back(static_cast<int64_t>(d));
  size_t n = axes.size();
  if ((scales.empty() ? sizes.size() : scales.size()) != n || (!roi.empty() && roi.size() != 2 * n))
    c.fail("it wants a scale or a size for each of {} dimensions", n);
  const bool keeps = r.aspect != "stretch" && scales.empty();
  const double kept = keeps ? common_scale(c, r, x.dims(), axes, sizes) : 0;
  for (size_t k = 0; k < n; ++k) {
    int dim = c.axis(axes[k], x.rank());
    if (keeps) {
      double in = static_cast<double>(x.dims()[static_cast<size_t>(dim)].value());
      if (!(kept * in >= 0 && kept * in < 1e7)) c.fail("a size is {}", kept * in);
      sizes[k] = static_cast<int64_t>(std::floor(kept * in + 0.5));
    }
    const Dim& in = x.dims()[static_cast<size_t>(dim)];
    bool whole = roi.empty() || (roi[k] == 0 && roi[k + n] == 1);
    if (whole && (scales.empty() ? sizes[k] == in : scales[k] == 1)) continue;
    if (int64_t times = whole ? copies(r, in, scales.empty() ? nullptr : &scales[k],
                                       scales.empty() ? &sizes[k] : nullptr)
                              : 0) {
      x = emit("repeat_interleave", {x}, {{"repeats", times}, {"dim", dim}});
      continue;
    }
    if (!in.constant() || (scales.empty() && !sizes[k].constant()))
      c.unsupported("{} along a size that has a name", c.op());
    Axis a{in.value(), 0, 1, 0, 1, 0};
    if (!scales.empty() && !(scales[k] > 0 && scales[k] < 1e6)) c.fail("a scale is {}", scales[k]);
    a.resized = scales.empty() ? static_cast<double>(sizes[k].value())
                               : static_cast<double>(a.in) * scales[k];
    if (!(a.resized >= 0 && a.resized < 1e7)) c.fail("a size is {}", a.resized);
    a.out = static_cast<int64_t>(std::floor(a.resized));
    a.scale = scales.empty() ? a.resized / static_cast<double>(a.in) : scales[k];
    if (keeps) {
      a.scale = kept;
      a.resized = kept * static_cast<double>(a.in);
    }
    if (!roi.empty()) a.start = roi[k], a.end = roi[k + n];
    if (a.in == 0) c.fail("it cannot be made of nothing");
    if (a.in == a.out && whole && a.scale == 1) continue;
    x = with_outside(c, resized(c, x, dim, r, a), dim, r, a);
  }
  c.give(x);
}

constexpr RuleEntry resize_table[] = {
    {"Resize", 10, resize},
    {"Upsample", 1, resize},
};

}  // namespace

constinit const Rules resize_rules = resize_table;

}  // namespace gradus::onnx
