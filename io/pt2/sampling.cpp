// Images read between their elements, at places that data give.
#include "io/pt2/images.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

enum class Interpolation { bilinear, nearest, bicubic };
enum class Outside { zeros, border, reflection };

// One axis of a grid: its length, and how it is read.
struct GridAxis {
  Dim length;
  bool align_corners;
  Outside outside;

  Value last() const { return Value::number(length - Dim(1)); }
};

// On a bound, too, the derivative is 0.
Value kept_inside(const Value& x, const GridAxis& a) {
  Value low = where(le(x, num(0.0)), num(0.0), x);
  Value last = zeros_like(x) + a.last();
  return where(ge(low, a.last()), last, low);
}

// A coordinate turned back at both ends as often as need be.
Value reflected(const Value& x, const GridAxis& a) {
  const double low = a.align_corners ? 0 : -0.5;
  const Dim span = a.align_corners ? a.length - Dim(1) : a.length;
  if (span == Dim(0)) return zeros_like(x);
  Value twice = Value::number(span * Dim(2)), once = Value::number(span);
  Value r = binary("remainder", unary("abs", x - low), twice);
  return where(gt(r, once), twice - r, r) + low;
}

Value settled(const Value& x, const GridAxis& a) {
  if (a.outside == Outside::zeros) return x;
  return kept_inside(a.outside == Outside::reflection ? reflected(x, a) : x, a);
}

// From [-1, 1] to elements.
Value place_in(const Value& g, const GridAxis& a) {
  if (a.align_corners) return (g + 1.0) / 2.0 * a.last();
  return ((g + 1.0) * Value::number(a.length) - 1.0) / 2.0;
}

// Elements and weights; the weight is 0 where an element is outside and counts for 0.
struct GridTap {
  Value at, weight;
};
GridTap grid_tap(const Value& at, const Value& weight, const GridAxis& a, bool cubic) {
  // Of cubic taps each is brought inside by itself.
  Value place = detach(cubic ? settled(at, a) : at);
  GridTap t{cast(place, DType::i64), weight};
  if (a.outside != Outside::zeros) return t;
  Value there = logical_and(ge(at, num(0.0)), le(at, a.last()));
  t.weight = where(there, weight, num(0.0));
  return t;
}

std::vector<GridTap> grid_taps(const Value& x, const GridAxis& a, Interpolation mode) {
  if (mode == Interpolation::nearest)
    return {grid_tap(unary("round", settled(x, a)), ones_like(x), a, false)};
  if (mode == Interpolation::bilinear) {
    Value s = settled(x, a), low = unary("floor", s), t = s - low;
    return {grid_tap(low, 1.0 - t, a, false), grid_tap(low + 1.0, t, a, false)};
  }
  // Keys' cubic with -0.75: of |d| <= 1, and of 1 < |d| < 2.
  auto near = [](const Value& d) { return (d * 1.25 - 2.25) * d * d + 1.0; };
  auto far = [](const Value& d) { return ((d * -0.75 + 3.75) * d - 6.0) * d + 3.0; };
  Value low = unary("floor", x), t = x - low, u = 1.0 - t;
  return {grid_tap(low - 1.0, far(t + 1.0), a, true), grid_tap(low, near(t), a, true),
          grid_tap(low + 1.0, near(u), a, true), grid_tap(low + 2.0, far(u + 1.0), a, true)};
}

Value index_inside(const Value& i, const GridAxis& a) {
  return binary("minimum", binary("maximum", i, num(int64_t{0})), a.last());
}

}  // namespace

void grid_sampler(Call& c) {
  Value x = c.x("input"), grid = c.x("grid");
  if (x.rank() != 4 || grid.rank() != 4)
    c.fail("a grid over other than images [N, C, H, W] is not supported");
  const int64_t mode = c.integer("interpolation_mode"), outside = c.integer("padding_mode");
  if (mode < 0 || mode > 2 || outside < 0 || outside > 2) c.fail("there is no such mode");
  GridAxis down{x.dims()[2], c.flag("align_corners", false), static_cast<Outside>(outside)};
  GridAxis across = down;
  across.length = x.dims()[3];
  const auto how = static_cast<Interpolation>(mode);
  auto xs = grid_taps(place_in(select(grid, -1, 0), across), across, how);
  auto ys = grid_taps(place_in(select(grid, -1, 1), down), down, how);
  Value sample = reshape(arange(c.world(), x.dims()[0]), {x.dims()[0], 1, 1});
  Value channels_last = permute(x, {0, 2, 3, 1}), sum;
  for (const GridTap& ty : ys)
    for (const GridTap& tx : xs) {
      Value pixels = emit_all(c.world(), "index",
                              std::vector{channels_last, sample, index_inside(ty.at, down),
                                          index_inside(tx.at, across)})[0];
      Value part = pixels * unsqueeze(ty.weight * tx.weight, -1);
      sum = sum.defined() ? sum + part : part;
    }
  c.give(permute(cast(sum, x.dtype()), {0, 3, 1, 2}));
}

}  // namespace gradus::pt2
