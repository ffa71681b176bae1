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

// An image, and where its places are in so many dimensions.
struct Sampling {
  Value x, grid;
  std::vector<Dim> sizes;
};

Sampling sampling_of(ComposeCall& c, const GridSamplerAttr& a, int axes) {
  Sampling s{floating_operand(c, 0), floating_operand(c, 1), {}};
  if (s.x.rank() != axes + 2 || s.grid.rank() != axes + 2 || !(s.grid.dims().back() == Dim(axes)))
    c.fail("'x' is {} and 'grid' is {}; they must be [N, C, {}] and [N, {}{}]", to_string(s.x.type),
           to_string(s.grid.type),
           axes == 1   ? "W"
           : axes == 2 ? "H, W"
                       : "D, H, W",
           axes == 1   ? ".., "
           : axes == 2 ? ".., .., "
                       : ".., .., .., ",
           axes);
  same_size(c, s.x.dims()[0], s.grid.dims()[0], "'x' and 'grid' are of one batch");
  if (a.mode != "nearest" && a.mode != "bilinear" && a.mode != "bicubic")
    c.fail("'mode' is \"{}\"; it must be \"bilinear\", \"nearest\" or \"bicubic\"", a.mode);
  if (a.padding_mode != "zeros" && a.padding_mode != "border" && a.padding_mode != "reflection")
    c.fail("'padding_mode' is \"{}\"; it must be \"zeros\", \"border\" or \"reflection\"",
           a.padding_mode);
  s.sizes.assign(s.x.dims().begin() + 2, s.x.dims().end());
  for (const Dim& n : s.sizes)
    if (n == Dim(0)) c.fail("'x' is {}; an image of nothing has no places", to_string(s.x.type));
  return s;
}

// Adds up what the taps of all dimensions read, the first dimension outermost.
struct Reader {
  World& world;
  const Sampling& s;
  const std::vector<std::vector<Tap>>& taps;  // by dimension
  std::vector<Value> operands;                // the image with channels last, the sample, places
  Value sum;

  void read(size_t d, const Value& weight) {
    if (d == taps.size()) {
      Value part = emit_all<Index>(world, operands)[0] * unsqueeze(weight, -1);
      sum = sum.defined() ? sum + part : part;
      return;
    }
    for (const Tap& t : taps[d]) {
      // Places outside are brought to the edge; their weights are 0.
      operands.push_back(inside(t.at, s.sizes[d]));
      read(d + 1, weight.defined() ? weight * t.weight : t.weight);
      operands.pop_back();
    }
  }
};

void compose_sampler(ComposeCall& c, const GridSamplerAttr& a, int axes) {
  Sampling s = sampling_of(c, a, axes);
  // Sixteen bits hold no place between elements.
  const DType dtype = s.x.dtype();
  auto wide = [](const Value& v) { return size_of(v.dtype()) < 4 ? cast(v, DType::f32) : v; };
  s.x = wide(s.x), s.grid = wide(s.grid);
  std::vector<std::vector<Tap>> all;
  for (int d = 0; d < axes; ++d) {
    const Line line{s.sizes[static_cast<size_t>(d)], a.align_corners, a.padding_mode == "zeros",
                    a.padding_mode == "reflection"};
    // The grid has the last dimension's coordinate first.
    Value coordinate = select(s.grid, -1, int64_t{axes - 1 - d});
    all.push_back(taps(place(coordinate, line), line, a.mode));
  }
  Ints channels_last{0}, channels_first{0, axes + 1};
  for (int d = 1; d <= axes; ++d) {
    channels_last.push_back(d + 1);
    channels_first.push_back(d);
  }
  channels_last.push_back(1);
  Dims each(static_cast<size_t>(axes) + 1, 1);
  each[0] = s.x.dims()[0];
  Value sample = reshape(arange(c.world, s.x.dims()[0]), each);
  Reader reader{c.world, s, all, {permute(s.x, channels_last), sample}, {}};
  reader.read(0, {});
  c.give(permute(cast(reader.sum, dtype), channels_first));
}

}  // namespace

void GridSampler2d::compose(ComposeCall& c, const Attr& a) { compose_sampler(c, a, 2); }

void GridSampler::compose(ComposeCall& c, const Attr& a) {
  const int axes = c.x().rank() - 2;
  if (axes < 1 || axes > 3)
    c.fail("'x' is {}; it must be [N, C, W], [N, C, H, W] or [N, C, D, H, W]",
           to_string(c.x().type));
  compose_sampler(c, a, axes);
}

}  // namespace gradus::ops
