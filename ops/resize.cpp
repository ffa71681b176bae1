#include "ops/resize.h"

#include "ops/families.h"
#include "ops/im2col.h"
#include "ops/image_axes.h"
#include "ops/operands.h"
#include "ops/pooling.h"
#include "ops/rules.h"

namespace gradus::ops {

void UpsampleNearest2d::compose(ComposeCall& c) {
  const int64_t scale = c.attr<Attr>().scale;
  const Value& x = tensor_operand(c, 0);
  if (x.rank() != 4) c.fail("operand 'x' is {}; it must be [N, C, H, W]", to_string(x.type));
  if (scale < 1 || scale > window_limit)
    c.fail("'scale' is {}; it must be from 1 to {}", scale, window_limit);
  const Dims& d = x.dims();
  Value spread = unsqueeze(unsqueeze(x, 3), 5);
  Value wide = expand(spread, {d[0], d[1], d[2], scale, d[3], scale});
  c.give(reshape(wide, {d[0], d[1], d[2] * scale, d[3] * scale}));
}

void PixelShuffle::compose(ComposeCall& c) {
  const int64_t r = c.attr<Attr>().r;
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
  return fold<decltype(std::tuple_cat(Im2colOperators(), PoolingOperators(), ResizeOperators()))>();
}

}  // namespace gradus::ops
