#include "ops/windows.h"

#include <algorithm>

#include "gradus/error.h"
#include "gradus/rules.h"
#include "ops/bind_work.h"
#include "ops/index_work.h"
#include "ops/slicing.h"

namespace gradus::ops {

namespace {

// Refuses what types can tell of a strided view of `numel` elements.
void check_strided(const InferCall& call, const Dims& size, const Dims& stride, const Dim& offset,
                   const Dim& count) {
  if (size.size() != stride.size())
    call.fail("{} sizes and {} strides are given; they must be as many", size.size(),
              stride.size());
  for (const Dims* list : {&size, &stride})
    for (const Dim& d : *list)
      if (d.is_constant() && d.value() < 0)
        call.fail("a size or stride of {} is negative", d.value());
  if (offset.is_constant() && offset.value() < 0)
    call.fail("the offset {} is negative", offset.value());
  if (!ir::all_constant(size) || !ir::all_constant(stride) || !offset.is_constant()) return;
  Layout l;
  for (const Dim& d : size) l.shape.push_back(d.value());
  for (const Dim& d : stride) l.strides.push_back(d.value());
  auto extent = l.checked_extent();
  if (!extent || (count.is_constant() && *extent > 0 &&
                  (offset.value() > count.value() || *extent > count.value() - offset.value())))
    call.fail("sizes {}, strides {} and offset {} reach outside of {} elements", to_string(size),
              to_string(stride), offset.value(), count.to_string());
}

// The layout that sizes and strides mean, checked against a tensor of `count` elements.
Layout strided_layout(const BindCall& call, std::span<const int64_t> shape, const Dims& stride,
                      int64_t offset, int64_t count) {
  Layout l(call.in[0].dtype, Sizes(shape), call.evaluate(stride));
  auto extent = l.checked_extent();
  if (!extent || offset < 0 || (*extent > 0 && (offset > count || *extent > count - offset)))
    call.fail("sizes {}, strides {} and offset {} reach outside of {} elements", to_string(l.shape),
              to_string(l.strides), offset, count);
  return l;
}

// The strides of a whole batch, in which each has `count` elements.
Dims batched_stride(const Dim& count, const Dims& stride) {
  Dims all{count};
  all.append(stride.begin(), stride.end());
  return all;
}

}  // namespace

void AsStrided::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  check_strided(call, a.size, a.stride, a.offset, ir::numel(x.dims));
  call.out.emplace_back(x.dtype, a.size, x.device);
}
void AsStrided::bind(BindCall& call, const Attr& a) {
  const Layout& x = call.in[0];
  int64_t offset = call.size(a.offset);
  Layout l = strided_layout(call, call.out[0].shape, a.stride, offset, x.numel());
  if (l.numel() == 0) offset = 0;
  if (x.contiguous()) return call.set_view(0, 0, std::move(l), offset);
  work::Move c;
  work::Window flat{work::Window::scratch, x.dtype, contiguous_strides(x.shape), 0};
  c.copy(x.shape, operand_window(call, 0), std::move(flat));
  c.copy(l.shape, {work::Window::scratch, x.dtype, l.strides, offset}, result_window(call));
  c.scratch_bytes = x.numel() * static_cast<int64_t>(size_of(x.dtype));
  call.set_work(std::move(c));
}
Value AsStrided::dx(VjpCall& d, const Attr& a) {
  return emit<AsStridedSum>({d.dy()},
                            {.shape = d.x_type().dims, .stride = a.stride, .offset = a.offset});
}

BatchedResults AsStrided::batch(const BatchedCall& c, const Attr& a) {
  const Dim each = ir::numel(std::span<const Dim>(c.operands[0].dims()).subspan(1));
  return {emit<AsStrided>({c.operands[0]}, {.size = c.with_batch(a.size),
                                            .stride = batched_stride(each, a.stride),
                                            .offset = a.offset})};
}

void AsStridedSum::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  for (const Dim& d : a.shape)
    if (d.is_constant() && d.value() < 0)
      call.fail("the size {} of 'shape' is negative", d.value());
  check_strided(call, x.dims, a.stride, a.offset, ir::numel(a.shape));
  call.out.emplace_back(x.dtype, a.shape, x.device);
}
void AsStridedSum::bind(BindCall& call, const Attr& a) {
  int64_t offset = call.size(a.offset);
  auto count = checked_numel(call.out[0].shape);
  if (!count) call.fail("the shape {} is not one", to_string(call.out[0].shape));
  Layout l = strided_layout(call, call.in[0].shape, a.stride, offset, *count);
  bind_window_sum(call, std::move(l.strides), offset);
}
Value AsStridedSum::dx(VjpCall& d, const Attr& a) {
  return emit<AsStrided>({d.dy()},
                         {.size = d.x_type().dims, .stride = a.stride, .offset = a.offset});
}

BatchedResults AsStridedSum::batch(const BatchedCall& c, const Attr& a) {
  return {
      emit<AsStridedSum>({c.operands[0]}, {.shape = c.with_batch(a.shape),
                                           .stride = batched_stride(ir::numel(a.shape), a.stride),
                                           .offset = a.offset})};
}

void Unfold::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  const int64_t dim = a.dim;
  if (a.step < 1) call.fail("'step' is {}; it must be positive", a.step);
  const Dim n = x.rank() == 0 ? Dim(1) : x.dims[dim];
  if (a.size.is_constant() && a.size.value() < 0)
    call.fail("'size' is {}; it must not be negative", a.size.value());
  if (a.size.is_constant() && n.is_constant() && a.size.value() > n.value())
    call.fail("'size' is {}, dimension {} of {} is smaller", a.size.value(), dim, to_string(x));
  Dims dims = x.dims;
  if (x.rank() > 0) dims[dim] = floor_div(n - a.size, a.step) + 1;
  dims.push_back(a.size);
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
void Unfold::bind(BindCall& call, const Attr& a) {
  const Layout& x = call.in[0];
  const int64_t dim = a.dim, size = call.out[0].shape.back();
  if (size < 0 || size > (x.rank() == 0 ? 1 : x.shape[dim]))
    call.fail("'size' is {}, dimension {} of {} is smaller", size, dim, to_string(x.shape));
  if (x.rank() == 0) return call.set_view(0, 0, Layout(x.dtype, {size}, {1}), 0);
  Sizes strides = x.strides;
  if (call.out[0].shape[dim] > 1) strides[dim] *= a.step;
  strides.push_back(x.strides[dim]);
  call.set_view(0, 0, Layout(x.dtype, call.out[0].shape, std::move(strides)), 0);
}
Value Unfold::dx(VjpCall& d, const Attr& a) {
  if (d.x_type().rank() == 0) return sum_all(d.dy());  // of one window or of none
  const Dim& length = d.x_type().dims[a.dim];
  return emit<UnfoldSum>({d.dy()}, {.length = length, .dim = a.dim, .step = a.step});
}

void UnfoldSum::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  const int64_t dim = a.dim;
  if (a.step < 1) call.fail("'step' is {}; it must be positive", a.step);
  Dims dims = x.dims;
  dims.pop_back();
  dims[dim] = a.length;
  const Dim &count = x.dims[dim], &size = x.dims.back();
  if (a.length.is_constant() && count.is_constant() && size.is_constant()) {
    int64_t last = 0;
    bool over = __builtin_mul_overflow(count.value() - 1, a.step, &last) ||
                __builtin_add_overflow(last, size.value(), &last);
    if (a.length.value() < 0 ||
        (count.value() > 0 && size.value() > 0 && (over || last > a.length.value())))
      call.fail("{} windows of {} by steps of {} do not fit a length of {}", count.value(),
                size.value(), a.step, a.length.value());
  }
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
void UnfoldSum::bind(BindCall& call, const Attr& a) {
  const Layout& x = call.in[0];
  int rank = x.rank() - 1;
  int64_t dim = a.dim, length = call.out[0].shape[dim], last = 0;
  bool over = __builtin_mul_overflow(x.shape[dim] - 1, a.step, &last) ||
              __builtin_add_overflow(last, x.shape[rank], &last);
  if (length < 0 || (x.numel() > 0 && (over || last > length)))
    call.fail("{} windows of {} by steps of {} do not fit a length of {}", x.shape[dim],
              x.shape[rank], a.step, length);
  Sizes strides = contiguous_strides(call.out[0].shape);
  int64_t along = strides[dim];
  if (x.shape[dim] > 1) strides[dim] *= a.step;
  strides.push_back(along);
  bind_window_sum(call, std::move(strides), 0);
}
Value UnfoldSum::dx(VjpCall& d, const Attr& a) {
  const int64_t dim = a.dim;
  const Dim& count = d.x_type().dims[dim];
  Value windows =
      emit<Unfold>({d.dy()}, {.dim = dim, .size = d.x_type().dims.back(), .step = a.step});
  // There may be room for more windows than were added.
  return windows.dims()[dim] == count
             ? windows
             : emit<Narrow>({windows}, {.dim = dim, .start = 0, .length = count});
}

std::span<const ir::Operator* const> window_family() { return fold<WindowOperators>(); }

}  // namespace gradus::ops
