#include "ops/grid_sampler.h"

#include "gradus/rules.h"
#include "ops/declared.h"
#include "ops/operands.h"
#include "ops/rounding.h"

namespace gradus::ops {

namespace {

Value size_less(const Dim& n, int64_t by) { return Value::number(n - Dim(by)); }

// One axis of a grid: its length, and how it is read.
struct Line {
  Dim length;
  bool align, zeros, reflect;
};

// A coordinate turned back at both ends as often as need be.
Value reflected(const Value& x, const Line& l) {
  double low = l.align ? 0 : -0.5;
  Dim span = l.align ? l.length - Dim(1) : l.length;
  if (span == Dim(0)) return zeros_like(x);
  Value twice = Value::number(span * Dim(2)), once = Value::number(span);
  Value r = emit<Remainder>(emit<Abs>(x - low), twice);
  Value back = emit<Sub>(twice, r);
  return where(gt(r, once), back, r) + low;
}

// Brought to the border from outside; there, too, the derivative is 0.
Value settled(const Value& x, const Line& l) {
  if (l.zeros) return x;
  Value y = l.reflect ? reflected(x, l) : x;
  Value last = size_less(l.length, 1);
  Value below = where(ge(y, last), last, y);
  return where(le(y, num(0.0)), num(0.0), below);
}

// From [-1, 1] to elements.
Value place(const Value& g, const Line& l) {
  if (l.align) return (g + 1.0) / 2.0 * size_less(l.length, 1);
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
  Value there = logical_and(ge(at, num(0.0)), le(at, size_less(l.length, 1)));
  t.weight = where(there, weight, num(0.0));
  return t;
}

std::vector<Tap> taps(const Value& x, const Line& l, const std::string& mode) {
  if (mode == "nearest") {
    Value at = emit<Round>(settled(x, l));
    return {tap(at, ones_like(x), l, false)};
  }
  if (mode == "bilinear") {
    Value s = settled(x, l), low = emit<Floor>(s), t = s - low;
    return {tap(low, 1.0 - t, l, false), tap(low + 1.0, t, l, false)};
  }
  // Keys' cubic with -0.75: of |d| <= 1, and of 1 < |d| < 2.
  auto near = [](const Value& d) { return (d * 1.25 - 2.25) * d * d + 1.0; };
  auto far = [](const Value& d) { return ((d * -0.75 + 3.75) * d - 6.0) * d + 3.0; };
  Value low = emit<Floor>(x), t = x - low, u = 1.0 - t;
  return {tap(low - 1.0, far(t + 1.0), l, true), tap(low, near(t), l, true),
          tap(low + 1.0, near(u), l, true), tap(low + 2.0, far(u + 1.0), l, true)};
}

Value inside(const Value& i, const Dim& n) {
  Value above = emit<Maximum>(i, num(int64_t{0}));
  return emit<Minimum>(above, Value::number(n - Dim(1)));
}

}  // namespace

void GridSampler2d::compose(ComposeCall& c, const Attr& a) {
  Value x = floating_operand(c, 0), grid = floating_operand(c, 1);
  if (x.rank() != 4 || grid.rank() != 4 || !(grid.dims()[3] == Dim(2)))
    c.fail("'x' is {} and 'grid' is {}; they must be [N, C, H, W] and [N, .., .., 2]",
           to_string(x.type), to_string(grid.type));
  same_size(c, x.dims()[0], grid.dims()[0], "'x' and 'grid' are of one batch");
  if (a.mode != "nearest" && a.mode != "bilinear" && a.mode != "bicubic")
    c.fail("'mode' is \"{}\"; it must be \"bilinear\", \"nearest\" or \"bicubic\"", a.mode);
  if (a.padding_mode != "zeros" && a.padding_mode != "border" && a.padding_mode != "reflection")
    c.fail("'padding_mode' is \"{}\"; it must be \"zeros\", \"border\" or \"reflection\"",
           a.padding_mode);
  const Dim height = x.dims()[2], width = x.dims()[3];
  if (height == Dim(0) || width == Dim(0))
    c.fail("'x' is {}; an image of nothing has no places", to_string(x.type));
  // Sixteen bits hold no place between elements.
  const DType dtype = x.dtype();
  auto wide = [](const Value& v) { return size_of(v.dtype()) < 4 ? cast(v, DType::f32) : v; };
  x = wide(x), grid = wide(grid);
  Line across{width, a.align_corners, a.padding_mode == "zeros", a.padding_mode == "reflection"};
  Line down = across;
  down.length = height;
  auto coordinate = [&](int64_t i) { return select(grid, -1, i); };
  std::vector<Tap> xs = taps(place(coordinate(0), across), across, a.mode);
  std::vector<Tap> ys = taps(place(coordinate(1), down), down, a.mode);
  Value channels_last = permute(x, {0, 2, 3, 1});
  Value sample = reshape(arange(c.world, x.dims()[0]), {x.dims()[0], 1, 1});
  Value sum;
  for (const Tap& i : ys)
    for (const Tap& j : xs) {
      // Places outside are brought to the edge; their weights are 0.
      Value pixels = emit_all<Index>(
          c.world, std::array{channels_last, sample, inside(i.at, height), inside(j.at, width)})[0];
      Value part = pixels * unsqueeze(i.weight * j.weight, -1);
      sum = sum.defined() ? sum + part : part;
    }
  c.give(permute(cast(sum, dtype), {0, 3, 1, 2}));
}

}  // namespace gradus::ops
