// Means and other sums over windows, made of views, gathers and counts.
#include "ops/pooling.h"

#include <cmath>

#include "gradus/rules.h"
#include "ops/declared.h"
#include "ops/extremum.h"
#include "ops/operands.h"
#include "ops/pool_windows.h"
#include "ops/reduction_rules.h"
#include "ops/windows.h"

namespace gradus::ops {

namespace {

// v [n] to go with dimension d of a tensor of that rank.
Value standing(const Value& v, int d, int rank) {
  Dims shape(static_cast<size_t>(rank - d), Dim(1));
  shape[0] = v.dims()[0];
  return reshape(v, shape);
}

const Value& image_operand(const ComposeCall& c, int spatial) {
  const Value& x = floating_operand(c, 0);
  if (x.rank() != spatial + 2 && x.rank() != spatial + 1)
    c.fail("operand 'x' is {}; it must have {} dimensions, or {} for one sample", to_string(x.type),
           spatial + 2, spatial + 1);
  return x;
}

// Elements that each window along axis d counts, in i64.
Value counts_along(const ComposeCall& c, const AvgPoolAttr& a, int d, const Dim& image,
                   const Dim& windows) {
  const int64_t kernel = along(a.kernel, d), stride = along(a.stride.value_or(a.kernel), d);
  const int64_t padding = along(a.padding, d);
  Value start = arange(c.world, windows) * num(stride) - num(padding);
  Value end = emit<Minimum>(start + num(kernel), Value::number(image + padding));
  if (!a.count_include_pad) {
    start = emit<Maximum>(start, num(int64_t{0}));
    end = emit<Minimum>(end, Value::number(image));
  }
  return end - start;
}

Value average_windows(const ComposeCall& c, int spatial) {
  const auto& a = c.attr<AvgPoolAttr>();
  const Value& x = image_operand(c, spatial);
  check_windows(c, a.kernel, a.stride, a.padding, spatial);
  if (a.divisor_override == 0) c.fail("'divisor_override' is 0; sums are divided by it");
  const int rank = x.rank(), first = rank - spatial;
  bool all_count = true;  // every element of every window
  int64_t elements = 1;
  Value y = widened(x);
  std::vector<PooledAxis> axes;
  for (int d = 0; d < spatial; ++d) {
    const Dim& image = x.dims()[first + d];
    axes.push_back(pooled_axis(c, a, d, image));
    const int64_t padding = along(a.padding, d);
    all_count = all_count && !a.ceil_mode && (a.count_include_pad || padding == 0);
    elements *= along(a.kernel, d);
    y = pad_zeros(y, first + d, padding, axes[d].beyond + padding);
  }
  Ints window_dims;
  for (int d = 0; d < spatial; ++d) {
    y = emit<Unfold>({y}, {.dim = first + d,
                           .size = along(a.kernel, d),
                           .step = along(a.stride.value_or(a.kernel), d)});
    window_dims.push_back(rank + d);
  }
  y = sum(y, window_dims, false);
  if (a.divisor_override) return y / static_cast<double>(*a.divisor_override);
  if (all_count) return y / Dim(elements);
  for (int d = 0; d < spatial; ++d) {
    Value counts = counts_along(c, a, d, x.dims()[first + d], y.dims()[first + d]);
    y = y / cast(standing(counts, first + d, rank), y.dtype());
  }
  return y;
}

// n windows along dimension d that share the whole size out: x [.., size, ..] -> [.., n, each, ..].
struct Shared {
  Value windows;
  Value counts;   // [n, each, 1, ..] which elements are the window's own; undefined: all are
  Value lengths;  // [n]: how many those are
};

Shared shared_out(const Value& x, int d, int64_t n) {
  const Dim& size = x.dims()[d];
  const int rank = x.rank();
  auto split = [&](const Dim& each) {
    Dims shape = x.dims();
    shape[d] = n;
    shape.insert(shape.begin() + d + 1, each);
    return shape;
  };
  if (n == 1) return {reshape(x, split(size)), {}, {}};
  if (size.is_constant() && size.value() % n == 0)
    return {reshape(x, split(size.value() / n)), {}, {}};
  World& world = *x.world;
  Value i = arange(world, n);
  Value total = Value::number(size), count = num(n);
  Value start = emit<FloorDivide>(i * total, count);
  Value past = (i + num(int64_t{1})) * total + num(n - 1);
  Value end = emit<FloorDivide>(past, count);
  // Every window as many elements as the longest may have.
  Dim longest = floor_div(size + n - 1, n) + 1;
  Value at = unsqueeze(start, 1) + arange(world, longest);
  Value own = lt(at, unsqueeze(end, 1));
  Value inside = emit<Minimum>(at, Value::number(size - 1));
  Value picked = index_select(x, reshape(inside, {longest * n}), d);
  Dims mask(static_cast<size_t>(rank - d + 1), Dim(1));
  mask[0] = n;
  mask[1] = longest;
  return {reshape(picked, split(longest)), reshape(own, mask), end - start};
}

Value adaptive_mean(const Value& x, int d, int64_t n) {
  Shared s = shared_out(x, d, n);
  if (!s.counts.defined()) return sum(s.windows, {d + 1}, false) / s.windows.dims()[d + 1];
  Value total = sum(keep_where(s.counts, s.windows), {d + 1}, false);
  return total / standing(cast(s.lengths, x.dtype()), d, x.rank());
}

Value adaptive_greatest(const Value& x, int d, int64_t n) {
  Shared s = shared_out(x, d, n);
  Value own = s.windows;
  if (s.counts.defined()) own = where(s.counts, own, num(-INFINITY));
  return emit<MaxDim>({own}, {.dim = d + 1});
}

// The image to which windows of output_size are fitted.
const Value& adaptive_operand(const ComposeCall& c, const Ints& output_size, int spatial) {
  const Value& x = image_operand(c, spatial);
  check_list(c, "output_size", output_size, spatial, 1);
  for (int d = x.rank() - spatial; d < x.rank(); ++d)
    if (const Dim& n = x.dims()[d]; n.is_constant() && n.value() < 1)
      c.fail("operand 'x' is {}; windows of nothing hold nothing", to_string(x.type));
  return x;
}

}  // namespace

template <int spatial>
void AvgPoolNd<spatial>::compose(ComposeCall& c) {
  c.give(cast(average_windows(c, spatial), c.x().dtype()));
}
template struct AvgPoolNd<1>;
template struct AvgPoolNd<2>;
template struct AvgPoolNd<3>;

template <int spatial>
void AdaptiveAvgPoolNd<spatial>::compose(ComposeCall& c, const Attr& a) {
  const Value& x = adaptive_operand(c, a.output_size, spatial);
  Value y = widened(x);
  for (int d = 0; d < spatial; ++d)
    y = adaptive_mean(y, x.rank() - spatial + d, along(a.output_size, d));
  c.give(cast(y, x.dtype()));
}
template struct AdaptiveAvgPoolNd<1>;
template struct AdaptiveAvgPoolNd<2>;
template struct AdaptiveAvgPoolNd<3>;

// Along the last dimension first: of equal ones the first in row-major order is taken.
template <int spatial>
void AdaptiveMaxPoolNd<spatial>::compose(ComposeCall& c, const Attr& a) {
  const Value& x = adaptive_operand(c, a.output_size, spatial);
  Value y = x;
  for (int d = spatial; d-- > 0;)
    y = adaptive_greatest(y, x.rank() - spatial + d, along(a.output_size, d));
  c.give(y);
}
template struct AdaptiveMaxPoolNd<1>;
template struct AdaptiveMaxPoolNd<2>;
template struct AdaptiveMaxPoolNd<3>;

void LpPool2d::compose(ComposeCall& c, const Attr& a) {
  const Value& x = image_operand(c, 2);
  if (!(a.p > 0) || std::isinf(a.p))
    c.fail("'p' is {}; it must be positive and finite (the limit is max_pool2d of abs)", a.p);
  check_windows(c, a.kernel, a.stride, {0}, 2);
  Value powers = emit<Pow>(widened(x), num(a.p));
  Value mean = emit<AvgPoolNd<2>>({powers}, {.kernel = a.kernel, .stride = a.stride});
  // Where the mean is 0 no derivative goes through, forward or back.
  Value none = eq(mean, num(0.0));
  Value total = where(none, num(1.0), mean) * Dim(along(a.kernel, 0) * along(a.kernel, 1));
  c.give(cast(where(none, num(0.0), emit<Pow>(total, num(1 / a.p))), x.dtype()));
}

void LocalResponseNorm::compose(ComposeCall& c, const Attr& a) {
  const Value& x = floating_operand(c, 0);
  if (x.rank() < 3) c.fail("operand 'x' is {}; it must be [N, C, ..]", to_string(x.type));
  if (a.size < 1 || a.size > window_limit)
    c.fail("'size' is {}; it must be from 1 to {}", a.size, window_limit);
  Value wide = widened(x);
  Value squares = pad_zeros(emit<Square>(wide), 1, a.size / 2, (a.size - 1) / 2);
  Value windows = emit<Unfold>({squares}, {.dim = 1, .size = a.size, .step = 1});
  Value mean = sum(windows, {x.rank()}, false) / Dim(a.size);
  Value divisor = emit<Pow>(mean * a.alpha + a.k, num(a.beta));
  c.give(cast(wide / divisor, x.dtype()));
}

}  // namespace gradus::ops
