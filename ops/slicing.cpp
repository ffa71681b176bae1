#include "ops/slicing.h"

#include <algorithm>

#include "gradus/error.h"
#include "gradus/rules.h"
#include "ops/assemble.h"
#include "ops/bind_work.h"

namespace gradus::ops {

namespace {

constexpr int64_t far = int64_t{1} << 62;  // past every size

// A part of operand 0; empty ones start where the operand does, so that none starts outside of it.
void set_part(BindCall& call, size_t result, Sizes shape, Sizes strides, int64_t offset) {
  Layout layout(call.in[0].dtype, std::move(shape), std::move(strides));
  if (layout.numel() == 0) offset = 0;
  call.set_view(result, 0, std::move(layout), offset);
}

}  // namespace

Dim from_start(const Dim& index, const Dim& size) {
  return index.is_constant() && index.value() < 0 ? index + size : index;
}
Dim clamp_bound(const Dim& bound, const Dim& size) {
  if (bound.is_constant()) {
    int64_t v = bound.value();
    if (v < 0) return v <= -far ? Dim(0) : max(size + v, 0);
    if (v >= far) return size;
  }
  if ((size - bound).known_nonnegative()) return max(bound, 0);
  return min(max(bound, 0), size);
}
int64_t clamp_bound(const BindCall& call, const Dim& bound, int64_t size) {
  int64_t v = call.size(bound);
  if (bound.is_constant() && v < 0) v = v <= -far ? 0 : v + size;
  return std::clamp<int64_t>(v, 0, size);
}

void Select::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  const Dim& size = x.dims[a.dim];
  if (size.is_constant() && a.index.is_constant() &&
      (a.index.value() < -size.value() || a.index.value() >= size.value()))
    call.fail("index {} is out of range for dimension {} of {}", a.index.value(), a.dim,
              to_string(x));
  Dims dims = x.dims;
  dims.erase(dims.begin() + a.dim);
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
void Select::bind(BindCall& call, const Attr& a) {
  const Layout& x = call.in[0];
  int64_t size = x.shape[a.dim], index = call.size(a.index);
  if (a.index.is_constant() && index < 0) index += size;
  if (index < 0 || index >= size)
    call.fail("index {} is out of range for dimension {} of {}", call.size(a.index), a.dim,
              to_string(x.shape));
  Sizes strides = x.strides;
  strides.erase(strides.begin() + a.dim);
  set_part(call, 0, call.out[0].shape, std::move(strides), index * x.strides[a.dim]);
}
Value Select::dx(VjpCall& d, const Attr& a) {
  const Dim& size = d.x_type().dims[a.dim];
  Dim index = from_start(a.index, size);
  Value row = unsqueeze(d.dy(), a.dim);
  return pad_zeros(row, a.dim, index, size - index - 1);
}

// In the form that says most: max(N - 1, 0) for both of x[1:] and x[:-1].
Dim Slice::Attr::span(const Dim& size) const {
  Dim from = start.value_or(0), last = end ? clamp_bound(*end, size) : size;
  bool to_end = last == size, from_back = from.is_constant() && from.value() < 0;
  bool to_back = !to_end && end->is_constant() && end->value() < 0;
  if (from.is_constant() && from.value() > -far && from.value() < far) {
    if (!from_back && (to_end || (to_back && end->value() > -far)))
      return max(size - from + (to_end ? Dim(0) : *end), 0);
    if (from_back && to_end) return min(size, Dim(0) - from);
  }
  Dim first = clamp_bound(from, size);
  bool ordered = from_back && to_back && from.value() <= end->value();
  return (ordered ? last : max(first, last)) - first;
}
std::pair<Dim, Dim> Slice::Attr::range(const Dim& size) const {
  Dim last = end ? clamp_bound(*end, size) : size;
  return {last - span(size), last};
}
std::pair<int64_t, int64_t> Slice::Attr::range(const BindCall& call, int64_t size) const {
  int64_t first = start ? clamp_bound(call, *start, size) : 0;
  int64_t last = end ? clamp_bound(call, *end, size) : size;
  return {first, std::max(first, last)};
}
Dim Slice::Attr::count(const Dim& size) const {
  Dim n = span(size);
  return step == 1 ? n : floor_div(n - 1, step) + 1;
}

void Slice::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  if (a.step < 1)
    call.fail("'step' is {}; it must be positive (use `flip` to go backwards)", a.step);
  call.out.push_back(resized(x, a.dim, a.count(x.dims[a.dim])));
}
void Slice::bind(BindCall& call, const Attr& a) {
  const Layout& x = call.in[0];
  auto [first, last] = a.range(call, x.shape[a.dim]);
  Sizes shape = x.shape, strides = x.strides;
  shape[a.dim] = last > first ? (last - first - 1) / a.step + 1 : 0;
  int64_t offset = first * strides[a.dim];
  // A stride past the end is never taken, and may not fit.
  strides[a.dim] = shape[a.dim] > 1 ? strides[a.dim] * a.step : strides[a.dim];
  set_part(call, 0, std::move(shape), std::move(strides), offset);
}
Value Slice::dx(VjpCall& d, const Attr& a) {
  const Dim& size = d.x_type().dims[a.dim];
  auto [first, last] = a.range(size);
  if (a.step == 1) return pad_zeros(d.dy(), a.dim, first, size - last);
  Value zeros = zeros_to_fill(d.world, d.x_type());
  return emit<SliceScatter>({zeros, d.dy()},
                            {.dim = a.dim, .start = first, .end = last, .step = a.step});
}

void Narrow::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  const Dim& size = x.dims[a.dim];
  if (a.length.is_constant() && a.length.value() < 0)
    call.fail("'length' is {}; it must not be negative", a.length.value());
  if (size.is_constant() && a.start.is_constant() && a.length.is_constant()) {
    int64_t n = size.value(), start = a.start.value(), length = a.length.value();
    if (start < -n || start > n || length > n - (start < 0 ? start + n : start))
      call.fail("start {} and length {} reach outside of dimension {} of {}", start, length, a.dim,
                to_string(x));
  }
  call.out.push_back(resized(x, a.dim, a.length));
}
void Narrow::bind(BindCall& call, const Attr& a) {
  const Layout& x = call.in[0];
  int64_t n = x.shape[a.dim], start = call.size(a.start), length = call.size(a.length);
  int64_t first = a.start.is_constant() && start < 0 && start >= -n ? start + n : start;
  if (first < 0 || first > n || length < 0 || length > n - first)
    call.fail("start {} and length {} reach outside of dimension {} of {}", start, length, a.dim,
              to_string(x.shape));
  set_part(call, 0, call.out[0].shape, x.strides, first * x.strides[a.dim]);
}
Value Narrow::dx(VjpCall& d, const Attr& a) {
  const Dim& size = d.x_type().dims[a.dim];
  Dim start = from_start(a.start, size);
  return pad_zeros(d.dy(), a.dim, start, size - start - a.length);
}

void Split::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  Dim sum = 0;
  for (const Dim& n : a.sizes) {
    if (n.is_constant() && n.value() < 0) call.fail("a size of {} is negative", n.value());
    sum = sum + n;
  }
  if (sum.is_constant() && x.dims[a.dim].is_constant() && !(sum == x.dims[a.dim]))
    call.fail("the sizes {} add up to {}, dimension {} of {} is {}", to_string(a.sizes),
              sum.value(), a.dim, to_string(x), x.dims[a.dim].value());
  call.require_equal(sum, x.dims[a.dim],
                     fmt::format("the sum of 'sizes' and dimension {} of 'x'", a.dim));
  for (const Dim& n : a.sizes) call.out.push_back(resized(x, a.dim, n));
}
void Split::bind(BindCall& call, const Attr& a) {
  const Layout& x = call.in[0];
  int64_t start = 0;
  for (size_t i = 0; i < call.out.size(); ++i) {
    int64_t n = call.out[i].shape[a.dim];
    if (n < 0 || n > x.shape[a.dim] - start)
      call.fail("the sizes reach outside of dimension {} of {}", a.dim, to_string(x.shape));
    set_part(call, i, call.out[i].shape, x.strides, start * x.strides[a.dim]);
    start += n;
  }
}
Value Split::dx(VjpCall& d, const Attr& a) {
  const Dim& size = d.x_type().dims[a.dim];
  size_t arrived = 0, last = 0;
  for (size_t i = 0; i < d.results.size(); ++i)
    if (d.has_dy(i)) {
      ++arrived;
      last = i;
    }
  if (arrived == 0) return {};
  if (arrived == 1) {
    Dim before = 0;
    for (size_t i = 0; i < last; ++i) before = before + a.sizes[i];
    return pad_zeros(d.dy(last), a.dim, before, size - before - a.sizes[last]);
  }
  SmallVector<Value, 8> parts;
  for (size_t i = 0; i < d.results.size(); ++i) parts.push_back(d.dy(i));
  return cat(parts, a.dim);
}

void Chunk::compose(ComposeCall& c, const Attr& a) {
  const Value& x = c.x();
  if (a.chunks < 1) c.fail("'chunks' is {}; it must be positive", a.chunks);
  const Dim& size = x.dims()[a.dim];
  Dims sizes;
  if (size.is_constant()) {
    int64_t n = size.value(), each = n / a.chunks + (n % a.chunks != 0);
    int64_t count = each == 0 ? a.chunks : n / each + (n % each != 0);
    if (count > 65536) c.fail("{} parts are too many; at most 65536", count);
    for (int64_t i = 0; i < count; ++i)
      sizes.push_back(each == 0 ? 0 : std::min(each, n - i * each));
  } else {
    if (a.chunks > 65536) c.fail("{} parts are too many; at most 65536", a.chunks);
    Dim each = floor_div(size, a.chunks);
    if (!(each * a.chunks == size))
      c.fail(
          "dimension {} of {} cannot be shown to be divisible by {}, so the number of results "
          "is not known; write {}*K for the size, or use `split` with sizes",
          a.dim, to_string(x.type), a.chunks, a.chunks);
    sizes.assign(static_cast<size_t>(a.chunks), each);
  }
  for (Value& part : emit_all<Split>(c.world, {&x, 1}, {.sizes = sizes, .dim = a.dim}))
    c.give(std::move(part));
}

void Unbind::compose(ComposeCall& c, const Attr& a) {
  const Value& x = c.x();
  const Dim& size = x.dims()[a.dim];
  if (!size.is_constant())
    c.fail("dimension {} of {} is symbolic, so the number of results is not known; use `select`",
           a.dim, to_string(x.type));
  if (size.value() > 65536) c.fail("{} results are too many; at most 65536", size.value());
  Dims ones(static_cast<size_t>(size.value()), Dim(1));
  for (const Value& part : emit_all<Split>(c.world, {&x, 1}, {.sizes = ones, .dim = a.dim}))
    c.give(squeeze(part, a.dim));
}

namespace {

// The sizes of operand 0's diagonal, its own dimension last.
Dims diagonal_dims(const InferCall& call, const Diagonal::Attr& a) {
  const Type& x = call.tensor(0);
  const int64_t i = a.dim1, j = a.dim2;
  if (i == j) call.fail("'dim1' and 'dim2' are both {}; they must differ", i);
  if (a.offset <= -far || a.offset >= far) call.fail("'offset' is {}, which is absurd", a.offset);
  Dims dims;
  for (int k = 0; k < x.rank(); ++k)
    if (k != i && k != j) dims.push_back(x.dims[k]);
  const Dim &n = x.dims[i], &m = x.dims[j];
  dims.push_back(max(a.offset >= 0 ? min(n, m - a.offset) : min(n + a.offset, m), 0));
  return dims;
}

// From a whole tensor's strides and start to those of its diagonal, which has these sizes.
void move_to_diagonal(Sizes& strides, int64_t& offset, const auto& a, const Sizes& diagonal) {
  const int64_t i = a.dim1, j = a.dim2;
  // An offset outside of the tensor leaves an empty diagonal, whose start does not matter.
  if (numel(diagonal) != 0)
    offset += a.offset >= 0 ? a.offset * strides[j] : -a.offset * strides[i];
  Sizes kept;
  for (int64_t k = 0; k < static_cast<int64_t>(strides.size()); ++k)
    if (k != i && k != j) kept.push_back(strides[k]);
  kept.push_back(strides[i] + strides[j]);
  strides = std::move(kept);
}

}  // namespace

void Diagonal::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  call.out.emplace_back(x.dtype, diagonal_dims(call, a), x.device);
}
void Diagonal::bind(BindCall& call, const Attr& a) {
  const Layout& x = call.in[0];
  Sizes strides = x.strides;
  int64_t offset = 0;
  move_to_diagonal(strides, offset, a, call.out[0].shape);
  set_part(call, 0, call.out[0].shape, std::move(strides), offset);
}
// The diagonal in a square matrix, brought to x's size, its dimensions put in place.
Value Diagonal::dx(VjpCall& d, const Attr& a) {
  const int64_t rank = d.x_type().rank(), i = a.dim1, j = a.dim2;
  const Dim &n = d.x_type().dims[i], &m = d.x_type().dims[j];
  Dim side = d.y_type().dims.back() + (a.offset < 0 ? -a.offset : a.offset);
  Value square = emit<DiagEmbed>({d.dy()}, {.offset = a.offset});
  Value wide = pad_zeros(square, rank - 1, 0, m - side);
  Value whole = pad_zeros(wide, rank - 2, 0, n - side);
  Ints dims;
  for (int k = 0, next = 0; k < rank; ++k)
    dims.push_back(k == i ? rank - 2 : k == j ? rank - 1 : next++);
  return permute(whole, dims);
}

void DiagonalScatter::infer(InferCall& call, const Attr& a) {
  const Type &x = call.tensor(0), &src = call.tensor(1);
  if (src.dtype != x.dtype)
    call.fail("operand 'src' is {}, 'x' is {}; cast one of them", to_string(src), to_string(x));
  const Dims dims = diagonal_dims(call, a);
  bool fits = src.rank() == static_cast<int>(dims.size());
  for (size_t d = 0; fits && d < dims.size(); ++d)
    fits = !(src.dims[d].is_constant() && dims[d].is_constant() && !(src.dims[d] == dims[d]));
  if (!fits)
    call.fail("operand 'src' is {}, the diagonal has the shape {}", to_string(src),
              to_string(dims));
  for (size_t d = 0; d < dims.size(); ++d)
    call.require_equal(src.dims[d], dims[d],
                       fmt::format("dimension {} of 'src' and of the diagonal", d));
  call.out.push_back(x);
}
void DiagonalScatter::bind(BindCall& call, const Attr& a) {
  const Layout &x = call.in[0], &src = call.in[1];
  const int64_t n = x.shape[a.dim1], m = x.shape[a.dim2];
  Sizes diagonal;
  for (int k = 0; k < x.rank(); ++k)
    if (k != a.dim1 && k != a.dim2) diagonal.push_back(x.shape[k]);
  diagonal.push_back(
      std::max<int64_t>(a.offset >= 0 ? std::min(n, m - a.offset) : std::min(n + a.offset, m), 0));
  if (!(diagonal == src.shape))
    call.fail("operand 'src' has the shape {}, the diagonal {}", to_string(src.shape),
              to_string(diagonal));
  work::Move c;
  work::Window to = result_window(call);
  c.copy(x.shape, operand_window(call, 0), to);
  move_to_diagonal(to.strides, to.offset, a, diagonal);
  c.copy(diagonal, operand_window(call, 1), std::move(to));
  call.set_work(std::move(c));
}
void DiagonalScatter::vjp(VjpCall& d, const Attr& a) {
  d.give(0, [&] {
    Value zeros = zeros_to_fill(d.world, d.x_type(1));
    return emit<DiagonalScatter>({d.dy(), zeros}, a);
  });
  d.give(1, [&] { return emit<Diagonal>({d.dy()}, a); });
}

void DiagEmbed::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  const int64_t i = a.dim1, j = a.dim2;
  if (i == j) call.fail("'dim1' and 'dim2' are both {}; they must differ", i);
  if (a.offset == INT64_MIN) call.fail("'offset' is {}, which is absurd", a.offset);
  Dim side = x.dims.back() + (a.offset < 0 ? -a.offset : a.offset);
  Dims dims;
  for (int k = 0, next = 0; k < x.rank() + 1; ++k)
    dims.push_back(k == i || k == j ? side : x.dims[next++]);
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
void DiagEmbed::bind(BindCall& call, const Attr& a) {
  const Layout& x = call.in[0];
  work::Move c;
  work::Window to = result_window(call);
  c.fill(call.out[0].shape, work::Pattern(), to);
  move_to_diagonal(to.strides, to.offset, a, x.shape);
  c.copy(x.shape, operand_window(call, 0), std::move(to));
  call.set_work(std::move(c));
}
Value DiagEmbed::dx(VjpCall& d, const Attr& a) {
  return emit<Diagonal>({d.dy()}, {.offset = a.offset, .dim1 = a.dim1, .dim2 = a.dim2});
}

std::span<const ir::Operator* const> slicing_family() { return fold<SlicingOperators>(); }

}  // namespace gradus::ops
