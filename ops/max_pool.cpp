// Max pooling: the operators.
#include "gradus/error.h"
#include "gradus/rules.h"
#include "ops/bind_work.h"
#include "ops/image_axes.h"
#include "ops/operands.h"
#include "ops/pool_windows.h"
#include "ops/pooling.h"

namespace gradus::ops {

void MaxPool::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  const int spatial = x.rank() - 2;
  if (spatial < 1 || spatial > work::conv_axes || x.dtype == DType::boolean)
    call.fail("'x' is {}; it must hold numbers and have 3, 4 or 5 dimensions, [N, C, ..]",
              to_string(x));
  check_windows(call, a.kernel, a.stride, a.padding, spatial);
  check_list(call, "dilation", a.dilation, spatial, 1);
  Dims dims{x.dims[0], x.dims[1]};
  for (int d = 0; d < spatial; ++d) dims.push_back(pooled_axis(call, a, d, x.dims[d + 2]).windows);
  call.out.emplace_back(x.dtype, dims, x.device);
  call.out.emplace_back(DType::i64, std::move(dims), x.device);
}

void MaxPool::bind(BindCall& call, const Attr& a) {
  const Layout& x = call.in[0];
  const int spatial = x.rank() - 2;
  work::MaxPool p;
  p.dtype = x.dtype;
  p.x = work::ConvTensor(x);
  p.channels = x.shape[1];
  p.planes = x.shape[0] * x.shape[1];
  for (int d = 0; d < spatial; ++d) {
    if (x.shape[d + 2] < 1)
      call.fail("there is no greatest element in windows of 'x' {}", to_string(x.shape));
    pooled_axis(call, a, d, x.shape[d + 2]);
    work::ConvAxis& axis = p.axes[work::conv_axes - spatial + d];
    axis = {x.shape[d + 2],      call.out[0].shape[d + 2],
            along(a.kernel, d),  along(a.stride.value_or(a.kernel), d),
            along(a.padding, d), along(a.dilation, d)};
    p.windows *= axis.windows;
    for (int64_t i = 0; i < axis.windows; ++i) {
      const work::WindowRange r = work::range_of(axis, i);
      // The gaps of a window may skip the whole image.
      if (r.first >= r.last)
        call.fail("window {} of 'x' {} holds nothing but padding", i, to_string(x.shape));
    }
  }
  call.set_work(std::move(p));
}

Value MaxPool::dx(VjpCall& d) {
  if (!d.has_dy(0)) return {};
  const Type& x = d.x_type();
  auto flat = [&](const Dims& dims) {
    return Dims{dims[0], dims[1], ir::numel(std::span(dims).subspan(2))};
  };
  Value zeros = zeros_to_fill(d.world, Type(x.dtype, flat(x.dims), x.device));
  Value at = reshape(d.y(1), flat(d.y_type(1).dims));
  Value dy = reshape(d.dy(0), flat(d.y_type(0).dims));
  return reshape(scatter_add(zeros, at, dy, 2), x.dims);
}

namespace {

SmallVector<Value, 2> pooled(ComposeCall& c, int spatial) {
  const auto& a = c.attr<MaxPoolAttr>();
  const Value& x = tensor_operand(c, 0);
  if (x.rank() != spatial + 2 && x.rank() != spatial + 1)
    c.fail("operand 'x' is {}; it must have {} dimensions, or {} for one sample", to_string(x.type),
           spatial + 2, spatial + 1);
  const bool alone = x.rank() == spatial + 1;
  SmallVector<Value, 1> in{alone ? unsqueeze(x, 0) : x};
  auto results = emit_all<MaxPool>(c.world, in, a);
  if (alone)
    for (Value& r : results) r = squeeze(r, 0);
  return results;
}

}  // namespace

template <int spatial>
void MaxPoolNd<spatial>::compose(ComposeCall& c) {
  c.give(pooled(c, spatial)[0]);
}
template struct MaxPoolNd<1>;
template struct MaxPoolNd<2>;
template struct MaxPoolNd<3>;

void MaxPool2dIdx::compose(ComposeCall& c) {
  for (Value& r : pooled(c, 2)) c.give(r);
}

}  // namespace gradus::ops
