#include "ops/im2col.h"

#include <algorithm>

#include "gradus/error.h"
#include "gradus/rules.h"
#include "ops/bind_work.h"
#include "ops/image_axes.h"

namespace gradus::ops {

namespace {

template <class Call>
void check_attributes(const Call& call, const Im2colAttr& a) {
  check_list(call, "kernel", a.kernel, 2, 1);
  check_list(call, "dilation", a.dilation, 2, 1);
  check_list(call, "padding", a.padding, 2, 0);
  check_list(call, "stride", a.stride, 2, 1);
}

Dim windows(const Im2colAttr& a, int d, const Dim& image) {
  return window_count(image, along(a.kernel, d), along(a.stride, d), along(a.padding, d),
                      along(a.dilation, d));
}

// The number of windows of an image, refused where types know that none fits.
Dim all_windows(const InferCall& call, const Im2colAttr& a, const Dim& height, const Dim& width) {
  Dim total = 1;
  for (int d = 0; d < 2; ++d) {
    const Dim& image = d == 0 ? height : width;
    Dim n = windows(a, d, image);
    if (n.is_constant() && n.value() < 1)
      call.fail("a window of {} with dilation {} does not fit a size of {} with padding {}",
                along(a.kernel, d), along(a.dilation, d), image.to_string(), along(a.padding, d));
    total = total * n;
  }
  return total;
}

int64_t taps(const Im2colAttr& a) { return along(a.kernel, 0) * along(a.kernel, 1); }

Layout batched(const Layout& l, int rank) {
  if (l.rank() == rank) return l;
  Sizes shape{1}, strides{0};
  shape.append(l.shape.begin(), l.shape.end());
  strides.append(l.strides.begin(), l.strides.end());
  return Layout(l.dtype, shape, strides);
}

// Images and their columns, N filled in.
work::Columns columns_of(const BindCall& call, const Im2colAttr& a, const Layout& image_as_it_lies,
                         const Layout& columns_as_they_lie) {
  Layout image = batched(image_as_it_lies, 4), columns = batched(columns_as_they_lie, 3);
  work::Columns p;
  p.dtype = image.dtype;
  p.image = work::ConvTensor(image);
  p.columns = columns.strides;
  p.batch = image.shape[0];
  p.channels = image.shape[1];
  int64_t total = 1;
  for (int d = 0; d < 2; ++d) {
    const int64_t size = image.shape[d + 2], kernel = along(a.kernel, d);
    const int64_t stride = along(a.stride, d), padding = along(a.padding, d);
    const int64_t dilation = along(a.dilation, d);
    const int64_t room =
        size < 0 || size > image_limit ? -1 : size + 2 * padding - dilation * (kernel - 1) - 1;
    if (room < 0)
      call.fail("a window of {} with dilation {} does not fit a size of {} with padding {}", kernel,
                dilation, size, padding);
    p.axes[d + 1] = {size, room / stride + 1, kernel, stride, padding, dilation};
    total *= p.axes[d + 1].windows;
  }
  if (columns.shape[2] != total || columns.shape[1] != p.channels * taps(a))
    call.fail("columns {} are not those of images {}, which have {} windows of {} elements",
              to_string(columns_as_they_lie.shape), to_string(image_as_it_lies.shape), total,
              taps(a));
  return p;
}

const Type& floating(const InferCall& call, int rank) {
  const Type& x = call.tensor(0);
  if (!x.is_floating())
    call.fail("operand 'x' is {}; it must have a floating dtype, cast it first", to_string(x));
  if (x.rank() != rank && x.rank() != rank - 1)
    call.fail("operand 'x' is {}; it must have {} dimensions, or {} for one sample", to_string(x),
              rank, rank - 1);
  return x;
}

}  // namespace

void UnfoldIm2col::infer(InferCall& call, const Attr& a) {
  const Type& x = floating(call, 4);
  check_attributes(call, a);
  const size_t c = x.dims.size() - 3;
  Dims dims{x.dims[c] * taps(a), all_windows(call, a, x.dims[c + 1], x.dims[c + 2])};
  if (c == 1) dims.insert(dims.begin(), x.dims[0]);
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
void UnfoldIm2col::bind(BindCall& call, const Attr& a) {
  call.set_work(columns_of(call, a, call.in[0], call.out[0]));
}
Value UnfoldIm2col::dx(VjpCall& d, const Attr& a) {
  const Dims& dims = d.x_type().dims;
  Dims size(dims.end() - 2, dims.end());
  return emit<FoldCol2im>({d.dy()}, {a, size});
}

void FoldCol2im::infer(InferCall& call, const Attr& a) {
  const Type& x = floating(call, 3);
  check_attributes(call, a);
  if (a.output_size.size() != 2)
    call.fail("'output_size' is {}; it must name a height and a width", to_string(a.output_size));
  const size_t k = x.dims.size() - 2;
  if (x.dims[k].is_constant() && x.dims[k].value() % taps(a) != 0)
    call.fail("'x' {} has {} elements a window; they must be a multiple of those of 'kernel', {}",
              to_string(x), x.dims[k].value(), taps(a));
  call.require_equal(x.dims[k + 1], all_windows(call, a, a.output_size[0], a.output_size[1]),
                     "the columns of 'x', and the windows of an image of 'output_size'");
  Dims dims{floor_div(x.dims[k], taps(a)), a.output_size[0], a.output_size[1]};
  if (k == 1) dims.insert(dims.begin(), x.dims[0]);
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
void FoldCol2im::bind(BindCall& call, const Attr& a) {
  if (!checked_numel(call.out[0].shape))
    call.fail("the shape {} is not one", to_string(call.out[0].shape));
  auto w = columns_of(call, a, call.out[0], call.in[0]);
  w.folds = true;
  call.set_work(std::move(w));
}
Value FoldCol2im::dx(VjpCall& d, const Attr& a) { return emit<UnfoldIm2col>({d.dy()}, a); }

}  // namespace gradus::ops
