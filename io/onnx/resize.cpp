// Resize and Upsample: along each axis, sums of few elements, with weights from the sizes.
#include <algorithm>
#include <cmath>

#include "io/onnx/call.h"
#include "io/onnx/model.h"
#include "kernels/evaluate.h"

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
  Dim in, out;
  std::optional<double> scale;  // where it is known
  // As ONNX's reference has it, the length that places count in is in * scale where scales are
  // given, not what is left of that as a whole number.
  bool by_scale;
  double start = 0, end = 1;

  bool is_known() const { return in.is_constant() && out.is_constant(); }
};

// Numbers, as f64[].
Value number(World& w, double v) { return full(w, {}, v, DType::f64); }
Value number(World& w, const Dim& n) {
  if (n.is_constant()) return number(w, static_cast<double>(n.value()));
  return number(w, 0.0) + Value::number(n);
}

// The places in x of the elements of the result.
Value places(World& w, const Resizing& r, const Axis& a) {
  const Value at = cast(arange(w, a.out), DType::f64), none = zeros_like(at);
  const Value in = number(w, a.in), out = number(w, a.out), last = in - 1.0;
  const Value scale = a.scale ? number(w, *a.scale) : out / in;
  const Value resized = a.by_scale ? in * *a.scale : out;
  const Value half = (at + 0.5) / scale - 0.5, is_one = eq(out, num(1.0));
  if (r.transform == "align_corners")
    return where(eq(resized, num(1.0)), none, at * last / (resized - 1.0));
  if (r.transform == "asymmetric") return at / scale;
  if (r.transform == "tf_half_pixel_for_nn") return (at + 0.5) / scale;
  if (r.transform == "pytorch_half_pixel") return where(is_one, none, half);
  // What is cut off of the result is missing on both sides.
  if (r.transform == "half_pixel_symmetric") return in / 2.0 * (1.0 - out / resized) + half;
  if (r.transform == "tf_crop_and_resize") {
    const Value middle = last * (0.5 * (a.start + a.end));
    const Value each = last * (a.end - a.start) / (resized - 1.0);
    return where(is_one, none + middle, at * each + last * a.start);
  }
  return half;
}

// Keys' cubic at distances of 0 to 2; nothing beyond.
Value cubic_weight(double a, const Value& d) {
  const Value near = (d * (a + 2) - (a + 3)) * d * d + 1.0;
  const Value far = ((d * a - 5 * a) * d + 8 * a) * d - 4 * a;
  return where(le(d, num(1.0)), near, where(lt(d, num(2.0)), far, num(0.0)));
}

// How many elements of x an element of the result follows from. Where it is smaller, it is a mean
// of as many as lie there.
int64_t taps_at_each(const Resizing& r, const Axis& a) {
  if (r.mode == "nearest") return 1;
  const double scale = r.antialias ? std::min(*a.scale, 1.0) : 1;
  return 2 * static_cast<int64_t>(std::ceil((r.mode == "cubic" ? 2 : 1) / scale));
}

// The first of them, and the weights, [elements, taps].
struct Taps {
  Value first, weights;
};

Taps taps_of(World& w, const Resizing& r, const Axis& a) {
  const Value x = places(w, r, a), floor = unary("floor", x), t = x - floor;
  const Value first = cast(floor, DType::i64);
  if (r.mode == "nearest") {
    Value up = gt(t, num(0.0));
    if (r.nearest == "floor") up = lt(t, num(0.0));
    if (r.nearest == "round_prefer_floor") up = gt(t, num(0.5));
    if (r.nearest == "round_prefer_ceil") up = ge(t, num(0.5));
    return {first + cast(up, DType::i64), unsqueeze(ones_like(t), 1)};
  }
  const int64_t count = taps_at_each(r, a), before = count / 2 - 1;
  const Value tap = cast(arange(w, count), DType::f64) - static_cast<double>(before);
  const double narrowing = r.antialias ? std::min(*a.scale, 1.0) : 1;
  const Value d = unary("abs", tap - unsqueeze(t, 1)) * narrowing;
  Value weights =
      r.mode == "cubic" ? cubic_weight(r.cubic, d) : binary("maximum", 1.0 - d, num(0.0));
  if (r.antialias) weights = weights / sum(weights, {1}, true);
  return {first - num(before), weights};
}

// Calls `make` with the program's world, or where sizes are known with one that computes at once,
// and gives what it makes as a value of the program.
template <class Make>
std::vector<Value> settled(Call& c, const Axis& a, Make make) {
  if (!a.is_known()) return make(c.world());
  EagerWorld eager(*Context::default_context());
  std::vector<Value> values = make(eager);
  for (Value& v : values) v = c.constant(EagerWorld::tensor(contiguous(v)));
  return values;
}

// The sum of the taps' elements, each times its weight, along the axis.
Value resized(Call& c, const Value& x, int dim, const Resizing& r, const Axis& a) {
  constexpr double least_scale = 1e-4, most_weights = 1e7;
  if (r.antialias && !a.scale)
    c.unsupported("{} with antialias along a size that has a name", c.op());
  if (r.antialias && !(*a.scale > least_scale))
    c.unsupported("{} with antialias by a scale of {}", c.op(), *a.scale);
  const int64_t count = taps_at_each(r, a);
  if (a.out.is_constant() &&
      static_cast<double>(count) * static_cast<double>(a.out.value()) > most_weights)
    c.unsupported("{} with {} weights for each of {} elements", c.op(), count, a.out.to_string());
  // Of each tap the place, then the weight.
  const std::vector<Value> columns = settled(c, a, [&](World& w) {
    const Taps taps = taps_of(w, r, a);
    const Value at = unsqueeze(taps.first, 1) + arange(w, count);
    const Value inside = between(at, num(int64_t{0}), Value::number(a.in - Dim(1)));
    Value weights = taps.weights;
    if (r.exclude_outside) {
      weights = where(eq(at, inside), weights, num(0.0));
      weights = weights / sum(weights, {1}, true);
    }
    std::vector<Value> made;
    for (int64_t k = 0; k < count; ++k) {
      made.push_back(select(inside, 1, k));
      made.push_back(cast(select(weights, 1, k), x.dtype()));
    }
    return made;
  });
  if (r.mode == "nearest") return index_select(x, columns[0], dim);
  Value y;
  for (size_t k = 0; k < columns.size(); k += 2) {
    const Value part = index_select(x, columns[k], dim) * under(columns[k + 1], dim, x.rank());
    y = k == 0 ? part : y + part;
  }
  return y;
}

// Where a place of a crop lies outside of x there is `outside`.
Value with_outside(Call& c, const Value& y, int dim, const Resizing& r, const Axis& a) {
  if (r.transform != "tf_crop_and_resize") return y;
  const Value is_inside = settled(c, a, [&](World& w) {
    const Value x = places(w, r, a), last = number(w, a.in) - 1.0;
    return std::vector{logical_and(ge(x, num(0.0)), le(x, last))};
  })[0];
  return where(under(is_inside, dim, y.rank()), y, num(r.outside));
}

// floor(n * scale): of a named size, a fraction of it, as each scale in f32 is.
Dim scaled_size(Call& c, const Dim& n, double scale) {
  if (n.is_constant()) {
    const double size = static_cast<double>(n.value()) * scale;
    if (!(size >= 0 && size < 1e7)) c.fail("a size is {}", size);
    return static_cast<int64_t>(std::floor(size));
  }
  constexpr int64_t most = int64_t{1} << 31;
  for (int64_t below = 1; below <= most; below *= 2) {
    const double above = scale * static_cast<double>(below);
    if (above < static_cast<double>(most) && above == std::floor(above))
      return floor_div(n * Dim(static_cast<int64_t>(above)), below);
  }
  c.unsupported("{} by a scale of {} along a size that has a name", c.op(), scale);
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
    if (in == Dim(0)) c.fail("it cannot be made of nothing");
    if (!scales.empty() && !(scales[k] > 0 && scales[k] < 1e6)) c.fail("a scale is {}", scales[k]);
    Axis a{in, scales.empty() ? sizes[k] : scaled_size(c, in, scales[k]), {}, !scales.empty()};
    if (a.out.is_constant() && !(a.out.value() >= 0 && a.out.value() < 10'000'000))
      c.fail("a size is {}", a.out.value());
    if (a.by_scale)
      a.scale = scales[k];
    else if (keeps)
      a.scale = kept;
    else if (a.is_known())
      a.scale = static_cast<double>(a.out.value()) / static_cast<double>(in.value());
    a.by_scale |= keeps;
    if (!roi.empty()) a.start = roi[k], a.end = roi[k + n];
    if (a.in == a.out && whole && a.scale == 1.0) continue;
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
