// Means over windows, made of views, sums and counts.
#include <algorithm>

#include "ops/operands.h"
#include "ops/pool_windows.h"
#include "ops/pooling.h"
#include "ops/reduction_rules.h"
#include "ops/rules.h"

namespace gradus::ops {

namespace {

Value arange(World& world, const Dim& n) {
  return emit_all(world, "arange", {}, {{"end", n, {}}})[0];
}

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
  Value end = binary("minimum", start + num(kernel), Value::number(image + padding));
  if (!a.count_include_pad) {
    start = binary("maximum", start, num(int64_t{0}));
    end = binary("minimum", end, Value::number(image));
  }
  return end - start;
}

Value average_windows(const ComposeCall& c, int spatial) {
  const auto& a = c.attr<AvgPoolAttr>();
  const Value& x = image_operand(c, spatial);
  check_windows(c, a.kernel, a.stride, a.padding, spatial);
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
    y = emit("unfold", {y},
             {{"dim", first + d, {}},
              {"size", along(a.kernel, d), {}},
              {"step", along(a.stride.value_or(a.kernel), d), {}}});
    window_dims.push_back(rank + d);
  }
  y = sum(y, window_dims, false);
  if (all_count) return y / Dim(elements);
  for (int d = 0; d < spatial; ++d) {
    Value counts = counts_along(c, a, d, x.dims()[first + d], y.dims()[first + d]);
    y = y / cast(standing(counts, first + d, rank), y.dtype());
  }
  return y;
}

// Means over n windows along dimension d that share the whole size out.
Value adaptive_along(const Value& x, int d, int64_t n) {
  const Dim& size = x.dims()[d];
  const int rank = x.rank();
  if (n == 1 || (size.is_constant() && size.value() % n == 0)) {
    Dim each = n == 1 ? size : Dim(size.value() / n);
    Dims shape = x.dims();
    shape[d] = n;
    shape.insert(shape.begin() + d + 1, each);
    return sum(reshape(x, shape), {d + 1}, false) / each;
  }
  World& world = *x.world;
  Value i = arange(world, n);
  Value total = Value::number(size), count = num(n);
  Value start = binary("floor_divide", i * total, count);
  Value past = (i + num(int64_t{1})) * total + num(n - 1);
  Value end = binary("floor_divide", past, count);
  // Every window as many elements as the longest may have, those past its end left out.
  Dim longest = floor_div(size + n - 1, n) + 1;
  Value at = unsqueeze(start, 1) + arange(world, longest);
  Value counts = lt(at, unsqueeze(end, 1));
  Value inside = binary("minimum", at, Value::number(size - 1));
  Value picked = emit("index_select", {x, reshape(inside, {longest * n})}, {{"dim", d, {}}});
  Dims shape = x.dims();
  shape[d] = n;
  shape.insert(shape.begin() + d + 1, longest);
  Dims mask(static_cast<size_t>(rank - d + 1), Dim(1));
  mask[0] = n;
  mask[1] = longest;
  Value kept = keep_where(reshape(counts, mask), reshape(picked, shape));
  Value lengths = cast(end - start, x.dtype());
  return sum(kept, {d + 1}, false) / standing(lengths, d, rank);
}

}  // namespace

template <int spatial>
void AvgPoolNd<spatial>::compose(ComposeCall& c) {
  c.give(cast(average_windows(c, spatial), c.x().dtype()));
}
template struct AvgPoolNd<1>;
template struct AvgPoolNd<2>;
template struct AvgPoolNd<3>;

void AdaptiveAvgPool2d::compose(ComposeCall& c) {
  const Attr& a = c.attr<Attr>();
  const Value& x = image_operand(c, 2);
  check_list(c, "output_size", a.output_size, 2, 1);
  const int first = x.rank() - 2;
  for (int d = 0; d < 2; ++d)
    if (const Dim& n = x.dims()[first + d]; n.is_constant() && n.value() < 1)
      c.fail("operand 'x' is {}; there is no mean of nothing", to_string(x.type));
  Value y = adaptive_along(widened(x), first, along(a.output_size, 0));
  y = adaptive_along(y, first + 1, along(a.output_size, 1));
  c.give(cast(y, x.dtype()));
}

}  // namespace gradus::ops
