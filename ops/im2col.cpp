#include "ops/im2col.h"

#include <algorithm>

#include "base/error.h"
#include "ops/accumulate.h"
#include "ops/device_form.h"
#include "ops/image_axes.h"
#include "ops/rules.h"
#include "ops/slots.h"
#include "tensor/convert.h"

namespace gradus::ops {

namespace {

// Images [N, C, H, W] and their columns [N, C * taps, windows], N filled in.
struct ColumnsPlan {
  DType dtype = DType::f32;
  ConvAxes axes;
  ConvTensor image;
  Sizes columns;  // strides of [N, C * taps, windows]
  int64_t batch = 0, channels = 0;
};

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

ColumnsPlan plan_of(const BindCall& call, const Im2colAttr& a, const Layout& image_as_it_lies,
                    const Layout& columns_as_they_lie) {
  Layout image = batched(image_as_it_lies, 4), columns = batched(columns_as_they_lie, 3);
  ColumnsPlan p;
  p.dtype = image.dtype;
  p.image = ConvTensor(image);
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

template <class T>
void run_unfold(const void* parameters, std::byte* const* args, KernelScope& scope) {
  const ColumnsPlan& p = *static_cast<const ColumnsPlan*>(parameters);
  const Phase phase = window_phase(p.axes);
  const int64_t each = phase.taps() * phase.positions();
  scope.workers.parallel_for(p.batch * p.channels, [&](int64_t i) {
    const T* image = reinterpret_cast<const T*>(args[0]) + i / p.channels * p.image.batch_stride +
                     i % p.channels * p.image.channel_stride;
    gather_columns(phase, p.image, image, 1, 0, phase.positions(),
                   reinterpret_cast<T*>(args[1]) + i * each);
  });
}

// One channel of one image: its columns added up, tap by tap.
template <class T, class C>
void fold_channel(const ColumnsPlan& p, const T* columns, C* image) {
  const ConvAxis &h = p.axes[1], &w = p.axes[2];
  std::fill_n(image, h.image * w.image, C(0));
  const int64_t step = p.columns[2];
  for (int64_t r = 0; r < h.kernel; ++r)
    for (int64_t s = 0; s < w.kernel; ++s, columns += p.columns[1])
      for (int64_t i = 0; i < h.windows; ++i) {
        const int64_t u = i * h.stride - h.padding + r * h.dilation;
        if (u < 0 || u >= h.image) continue;
        const int64_t start = s * w.dilation - w.padding;
        const T* row = columns + i * w.windows * step;
        for (int64_t j = 0; j < w.windows; ++j) {
          const int64_t v = start + j * w.stride;
          if (v >= 0 && v < w.image) image[u * w.image + v] += convert<C>(row[j * step]);
        }
      }
}

template <class T, class C>
void run_fold(const void* parameters, std::byte* const* args, KernelScope& scope) {
  const ColumnsPlan& p = *static_cast<const ColumnsPlan*>(parameters);
  const int64_t size = p.axes[1].image * p.axes[2].image;
  const int64_t channel_step = p.axes[1].kernel * p.axes[2].kernel * p.columns[1];
  run_in_slots(scope.workers, p.batch * p.channels, [&](int64_t i, int64_t slot) {
    const T* columns = reinterpret_cast<const T*>(args[0]) + i / p.channels * p.columns[0] +
                       i % p.channels * channel_step;
    T* image = reinterpret_cast<T*>(args[1]) + i * size;
    if constexpr (std::is_same_v<T, C>) {
      fold_channel<T, C>(p, columns, image);
    } else {
      C* sums = reinterpret_cast<C*>(scope.scratch) + slot * size;
      fold_channel<T, C>(p, columns, sums);
      std::transform(sums, sums + size, image, convert<T, C>);
    }
  });
}

template <class F>
void visit_floating(DType dtype, F f) {
  visit_dtype(dtype, [&](auto tag) {
    if constexpr (!std::is_integral_v<typename decltype(tag)::type>) f(tag);
  });
}

// Whether it is run_unfold, or run_fold, of some dtype.
bool runs(ir::KernelFunction run, bool folds) {
  bool same = false;
  for (DType d : {DType::f64, DType::f32, DType::f16, DType::bf16})
    visit_floating(d, [&](auto tag) {
      using T = typename decltype(tag)::type;
      using C = std::conditional_t<sizeof(T) == 2, float, T>;
      same |= folds ? run == run_fold<T, C> : run == run_unfold<T>;
    });
  return same;
}

LiteralList attributes_with(const Im2colAttr& a, const Dims* output_size) {
  LiteralList list{{"kernel", Literal::list(a.kernel), {}},
                   {"dilation", Literal::list(a.dilation), {}},
                   {"padding", Literal::list(a.padding), {}},
                   {"stride", Literal::list(a.stride), {}}};
  if (output_size) list.push_back({"output_size", Literal::list(*output_size), {}});
  return list;
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

std::optional<DeviceForm> form_of_columns(ir::KernelFunction run, const void* parameters) {
  for (bool folds : {false, true}) {
    if (!runs(run, folds)) continue;
    const auto& p = *static_cast<const ColumnsPlan*>(parameters);
    return DeviceForm{
        DeviceColumns{p.dtype, folds, p.axes, p.image, p.columns, p.batch, p.channels}};
  }
  return std::nullopt;
}

void UnfoldIm2col::infer(InferCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
  const Type& x = floating(call, 4);
  check_attributes(call, a);
  const size_t c = x.dims.size() - 3;
  Dims dims{x.dims[c] * taps(a), all_windows(call, a, x.dims[c + 1], x.dims[c + 2])};
  if (c == 1) dims.insert(dims.begin(), x.dims[0]);
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
void UnfoldIm2col::bind(BindCall& call) {
  ColumnsPlan p = plan_of(call, attributes_as<Attr>(call.attributes), call.in[0], call.out[0]);
  visit_floating(call.in[0].dtype, [&](auto tag) {
    call.set_kernel(run_unfold<typename decltype(tag)::type>, std::move(p));
  });
}
void UnfoldIm2col::vjp(VjpCall& d) {
  d.give(0, [&] {
    const Dims& dims = d.x_type().dims;
    Dims size(dims.end() - 2, dims.end());
    return emit("fold_col2im", {d.dy()}, attributes_with(d.attr<Attr>(), &size));
  });
}

void FoldCol2im::infer(InferCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
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
void FoldCol2im::bind(BindCall& call) {
  if (!checked_numel(call.out[0].shape))
    call.fail("the shape {} is not one", to_string(call.out[0].shape));
  ColumnsPlan p = plan_of(call, attributes_as<Attr>(call.attributes), call.out[0], call.in[0]);
  const int64_t images = p.batch * p.channels, size = p.axes[1].image * p.axes[2].image;
  visit_floating(call.in[0].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = std::conditional_t<sizeof(T) == 2, float, T>;
    const bool sums = !std::is_same_v<T, C>;
    const int64_t elements = sums ? std::min(images, most_slots()) * size : 0;
    call.set_kernel(run_fold<T, C>, std::move(p), static_cast<size_t>(elements) * sizeof(C));
  });
}
void FoldCol2im::vjp(VjpCall& d) {
  d.give(0,
         [&] { return emit("unfold_im2col", {d.dy()}, attributes_with(d.attr<Attr>(), nullptr)); });
}

}  // namespace gradus::ops
