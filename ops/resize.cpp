#include "ops/resize.h"

#include "gradus/rules.h"
#include "ops/comparison.h"
#include "ops/declared.h"
#include "ops/families.h"
#include "ops/grid_sampler.h"
#include "ops/im2col.h"
#include "ops/image_axes.h"
#include "ops/operands.h"
#include "ops/pooling.h"
#include "ops/reduction_rules.h"

namespace gradus::ops {

void UpsampleNearest2d::compose(ComposeCall& c, const Attr& a) {
  const int64_t scale = a.scale;
  const Value& x = tensor_operand(c, 0);
  if (x.rank() != 4) c.fail("operand 'x' is {}; it must be [N, C, H, W]", to_string(x.type));
  if (scale < 1 || scale > window_limit)
    c.fail("'scale' is {}; it must be from 1 to {}", scale, window_limit);
  const Dims& d = x.dims();
  Value spread = unsqueeze(unsqueeze(x, 3), 5);
  Value wide = expand(spread, {d[0], d[1], d[2], scale, d[3], scale});
  c.give(reshape(wide, {d[0], d[1], d[2] * scale, d[3] * scale}));
}

namespace {

// x stretched to n elements along dimension d.
Value stretched(const Value& x, int d, int64_t n, bool align_corners) {
  const Dim& size = x.dims()[d];
  Value i = cast(arange(*x.world, n), x.dtype());
  Value from = i * 0.0;
  if (!align_corners)
    from = emit<Clamp>({((i + 0.5) * size) / Dim(n) - 0.5}, {.min = 0.0});
  else if (n > 1)
    from = (i * (size - 1)) / Dim(n - 1);
  Value low = cast(from, DType::i64), high = low + num(int64_t{1});
  high = emit<Minimum>(high, Value::number(size - 1));
  low = emit<Minimum>(low, Value::number(size - 1));
  Dims shape(static_cast<size_t>(x.rank() - d), Dim(1));
  shape[0] = n;
  Value weight = reshape(from - cast(low, x.dtype()), shape);
  Value a = index_select(x, low, d);
  Value b = index_select(x, high, d);
  return a * (1.0 - weight) + b * weight;
}

}  // namespace

void UpsampleBilinear2d::compose(ComposeCall& c, const Attr& a) {
  const Value& x = floating_operand(c, 0);
  if (x.rank() != 4) c.fail("operand 'x' is {}; it must be [N, C, H, W]", to_string(x.type));
  check_list(c, "size", a.size, 2, 1);
  Value rows = stretched(widened(x), 2, along(a.size, 0), a.align_corners);
  c.give(cast(stretched(rows, 3, along(a.size, 1), a.align_corners), x.dtype()));
}

void PixelShuffle::compose(ComposeCall& c, const Attr& a) {
  const int64_t r = a.r;
  const Value& x = tensor_operand(c, 0);
  const int rank = x.rank();
  if (rank < 3) c.fail("operand 'x' is {}; it must be [.., C, H, W]", to_string(x.type));
  if (r < 1 || r > window_limit) c.fail("'r' is {}; it must be from 1 to {}", r, window_limit);
  const Dim channels = x.dims()[rank - 3];
  if (channels.is_constant() && channels.value() % (r * r) != 0)
    c.fail("operand 'x' is {}; its channels must be a multiple of {}", to_string(x.type), r * r);
  Dims parts(x.dims().begin(), x.dims().end() - 3), whole = parts;
  const Dim out = floor_div(channels, r * r), h = x.dims()[rank - 2], w = x.dims()[rank - 1];
  for (const Dim& d : {out, Dim(r), Dim(r), h, w}) parts.push_back(d);
  for (const Dim& d : {out, h * r, w * r}) whole.push_back(d);
  Ints order;
  for (int d = 0; d < rank - 3; ++d) order.push_back(d);
  for (int d : {0, 3, 1, 4, 2}) order.push_back(rank - 3 + d);
  c.give(reshape(permute(reshape(x, parts), order), whole));
}

Family image_family() {
  return fold<decltype(std::tuple_cat(Im2colOperators(), PoolingOperators(), ResizeOperators(),
                                      GridSamplerOperators()))>();
}

}  // namespace gradus::ops
