// Images of other sizes: along each axis, sums of few elements with weights that follow from the
// sizes.
#include <cmath>

#include "io/pt2/images.h"
#include "io/pt2/operands.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

struct ResizedAxis {
  int dim;
  Dim in, out;
  std::optional<double> scale;  // that the node gives; torch trusts it more than the sizes
  bool align_corners;
};

std::string_view image_name(Call& c) { return c.given("input") ? "input" : "self"; }

// In float32 at least.
Value computed_image(Call& c) {
  Value x = c.x(image_name(c));
  if (!is_floating(x.dtype())) c.fail("an image of {} is not supported", name_of(x.dtype()));
  return x.dtype() == DType::f64 ? x : cast(x, DType::f32);
}
void give_image(Call& c, const Value& y) { c.give(cast(y, c.x(image_name(c)).dtype())); }

std::optional<double> scale_of(Call& c, size_t axis, size_t axes) {
  double s = 0;
  if (c.given("scale_factors")) {
    std::vector<double> all = c.numbers("scale_factors");
    if (axis < all.size()) s = all[axis];
  } else {
    constexpr const char* names[] = {"scales_d", "scales_h", "scales_w"};
    const char* name = axes == 1 ? "scales" : names[3 - axes + axis];
    s = c.number(name, 0);
  }
  return s > 0 ? std::optional(s) : std::nullopt;
}

std::vector<ResizedAxis> resized_axes(Call& c) {
  const Dims in = c.x(image_name(c)).dims(), out = c.result().sizes;
  if (in.size() < 3 || in.size() > 5 || out.size() != in.size())
    c.fail("it wants images [N, C, spatial..]");
  std::vector<ResizedAxis> axes;
  for (size_t d = 2; d < in.size(); ++d)
    axes.push_back({static_cast<int>(d), in[d], out[d], scale_of(c, d - 2, in.size() - 2),
                    c.flag("align_corners", false)});
  return axes;
}

// How far apart the places of neighbours are in the image, as torch rounds it.
Value step_of(Call& c, const ResizedAxis& a, DType dtype) {
  auto number = [&](double v) { return num(dtype == DType::f64 ? v : static_cast<float>(v)); };
  const int64_t less = a.align_corners ? 1 : 0;
  if (a.align_corners && a.out == Dim(1)) return num(0.0);
  if (a.scale && !a.align_corners) return number(1 / *a.scale);
  if (a.in.is_constant() && a.out.is_constant()) {
    const auto in = static_cast<double>(a.in.value() - less);
    const auto out = static_cast<double>(a.out.value() - less);
    return dtype == DType::f64 ? num(in / out)
                               : num(double{static_cast<float>(in) / static_cast<float>(out)});
  }
  Value whole = full(c.world(), {}, 0, dtype) + Value::number(a.in - Dim(less));
  return whole / (a.out - Dim(less));
}

Value counted(Call& c, const ResizedAxis& a, DType dtype) {
  return cast(arange(c.world(), a.out), dtype);
}

// Places in the image, between its elements.
Value places_between(Call& c, const ResizedAxis& a, DType dtype) {
  Value i = counted(c, a, dtype), step = step_of(c, a, dtype);
  return a.align_corners ? i * step : (i + 0.5) * step - 0.5;
}

// Whether an axis stays as it is. If its size does, torch copies it in some modes, and in others
// goes by the scale.
bool stays(const ResizedAxis& a, bool by_size) {
  return a.in == a.out && (by_size || a.align_corners || !a.scale || *a.scale == 1);
}

Value within(const Value& index, const ResizedAxis& a) {
  Value least = binary("maximum", index, num(int64_t{0}));
  return binary("minimum", least, Value::number(a.in - Dim(1)));
}

Value weighted_part(const Value& x, const ResizedAxis& a, const Value& at, const Value& weight) {
  Dims along(x.dims().size() - static_cast<size_t>(a.dim), 1);
  along[0] = a.out;
  return index_select(x, within(at, a), a.dim) * reshape(weight, along);
}

Value resized_linearly(Call& c, const Value& x, const ResizedAxis& a) {
  Value place = binary("maximum", places_between(c, a, x.dtype()), num(0.0));
  Value low = unary("floor", place), t = place - low;
  Value at = cast(low, DType::i64);
  Value first = weighted_part(x, a, at, 1.0 - t);
  return first + weighted_part(x, a, at + num(int64_t{1}), t);
}

// Keys' cubic with -0.75: of |d| <= 1, and of 1 < |d| < 2.
Value resized_cubically(Call& c, const Value& x, const ResizedAxis& a) {
  auto near = [](const Value& d) { return (d * 1.25 - 2.25) * d * d + 1.0; };
  auto far = [](const Value& d) { return ((d * -0.75 + 3.75) * d - 6.0) * d + 3.0; };
  Value place = places_between(c, a, x.dtype());
  Value low = unary("floor", place), t = place - low, u = 1.0 - t;
  Value at = cast(low, DType::i64);
  const Value weights[] = {far(t + 1.0), near(t), near(u), far(u + 1.0)};
  Value y;
  for (int64_t k = 0; k < 4; ++k) {
    Value part = weighted_part(x, a, at + num(k - 1), weights[k]);
    y = k == 0 ? part : y + part;
  }
  return y;
}

// Weights of elements at a distance |d|, counted in steps of the smaller image; 0 from `reach` on.
struct Filter {
  double reach;
  Value (*weight)(const Value& d);
};

constexpr Filter triangle_filter{1, [](const Value& d) { return positive_part(1.0 - d); }};

// Keys' cubic with -0.5.
constexpr Filter cubic_filter{2, [](const Value& d) {
                                Value near = (d * 1.5 - 2.5) * d * d + 1.0;
                                Value far = ((d * -0.5 + 2.5) * d - 4.0) * d + 2.0;
                                return where(lt(d, num(1.0)), near,
                                             where(lt(d, num(2.0)), far, num(0.0)));
                              }};

constexpr Filter lanczos_filter{3, [](const Value& d) {
                                  Value bell = unary("sinc", d) * unary("sinc", d / 3.0);
                                  return where(lt(d, num(3.0)), bell, num(0.0));
                                }};

// Each place of the result is a mean of all elements within the filter's reach. That grows with the
// distance of the places, so that none is left out.
Value resized_by(Call& c, const Value& x, const ResizedAxis& a, const Filter& filter) {
  const std::optional<double> step = step_of(c, a, x.dtype()).constant();
  if (!step)
    c.fail(
        "with antialias=True dimension {} has to have a known size, or a scale that is given; "
        "export the model with a constant size",
        a.dim);
  const double widening = std::max(*step, 1.0), reach = filter.reach * widening;
  constexpr double most = 1 << 20;
  if (!(reach <= most)) c.fail("it makes dimension {} smaller by {}", a.dim, *step);
  const int64_t taps = static_cast<int64_t>(std::ceil(reach)) * 2 + 1;
  Value centre = unsqueeze((counted(c, a, x.dtype()) + 0.5) * *step, 1);
  Value first = binary("maximum", cast(centre - reach + 0.5, DType::i64), num(int64_t{0}));
  Value past = binary("minimum", cast(centre + reach + 0.5, DType::i64), Value::number(a.in));
  Value at = first + arange(c.world(), taps);
  Value distance = unary("abs", (cast(at, x.dtype()) - centre + 0.5) / widening);
  Value weight = where(lt(at, past), filter.weight(distance), num(0.0));
  weight = c.settled(weight / sum(weight, {1}, true));
  Value elements_at = c.settled(flat(within(at, a)));
  Dims parts = x.dims(), along(x.dims().size() + 1 - static_cast<size_t>(a.dim), 1);
  parts[static_cast<size_t>(a.dim)] = a.out;
  parts.insert(parts.begin() + a.dim + 1, taps);
  along[0] = a.out;
  along[1] = taps;
  Value elements = reshape(index_select(x, elements_at, a.dim), parts);
  return sum(elements * reshape(weight, along), {a.dim + 1}, false);
}

void resize_antialiased(Call& c, const Filter& filter) {
  Value x = computed_image(c);
  for (const ResizedAxis& a : resized_axes(c))
    if (!stays(a, true)) x = resized_by(c, x, a, filter);
  give_image(c, x);
}

using ResizeAxis = Value (*)(Call&, const Value&, const ResizedAxis&);

void resize_smoothly(Call& c, ResizeAxis resize) {
  Value x = computed_image(c);
  for (const ResizedAxis& a : resized_axes(c))
    if (!stays(a, resize == resized_linearly)) x = resize(c, x, a);
  give_image(c, x);
}

// How often each element comes, where that is all; 0 where it is not. So far torch's rounding gives
// the same.
int64_t copies(const ResizedAxis& a, bool by_size) {
  constexpr int64_t most = 32;
  for (int64_t n = 1; n <= most; ++n)
    if (a.out == a.in * Dim(n))
      if (!a.scale || *a.scale == static_cast<double>(n) || (by_size && n == 2)) return n;
  return 0;
}

void resize_by_nearest(Call& c, double shift) {
  Value x = c.x(image_name(c));
  // Of images torch takes sizes that are the same or twice as large for what they are.
  const bool by_size = shift == 0 && x.rank() == 4;
  for (const ResizedAxis& a : resized_axes(c)) {
    if (stays(a, by_size)) continue;
    if (int64_t n = copies(a, by_size)) {
      x = emit("repeat_interleave", {x}, {{"repeats", n}, {"dim", a.dim}});
      continue;
    }
    Value i = counted(c, a, DType::f32);
    Value place = unary("floor", (shift == 0 ? i : i + shift) * step_of(c, a, DType::f32));
    x = index_select(x, within(cast(place, DType::i64), a), a.dim);
  }
  c.give(with_sizes(x, c.result().sizes));
}

}  // namespace

void upsample_nearest(Call& c) { resize_by_nearest(c, 0); }
void upsample_nearest_exact(Call& c) { resize_by_nearest(c, 0.5); }
void upsample_linear(Call& c) { resize_smoothly(c, resized_linearly); }
void upsample_cubic(Call& c) { resize_smoothly(c, resized_cubically); }
void upsample_linear_antialiased(Call& c) { resize_antialiased(c, triangle_filter); }
void upsample_cubic_antialiased(Call& c) { resize_antialiased(c, cubic_filter); }
void upsample_lanczos_antialiased(Call& c) { resize_antialiased(c, lanczos_filter); }

}  // namespace gradus::pt2
