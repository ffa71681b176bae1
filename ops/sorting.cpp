#include "ops/sorting.h"

#include <algorithm>

#include "ops/copies.h"
#include "ops/device_form.h"
#include "ops/families.h"
#include "ops/operands.h"
#include "ops/rules.h"
#include "ops/slots.h"
#include "tensor/convert.h"

namespace gradus::ops {

namespace {

constexpr int64_t task_elements = 1 << 13;  // what one worker takes at a time, about

// Rows along one dimension; results lie without gaps.
struct SortPlan {
  Layout x;  // its dimension last
  int64_t length = 1, kept = 1, rows = 1, rows_each = 1;
  int64_t outer_stride = 0, step = 0;  // of the results: row-major before and after the dimension
  int64_t inner = 1;                   // rows after it
  bool descending = false;
};

template <class T>
struct Element {
  T key;
  int64_t at;
};

// A total order, since equal keys are told apart by their place: any way of sorting is stable.
template <class T, bool descending>
bool before(const Element<T>& a, const Element<T>& b) {
  const bool a_nan = a.key != a.key, b_nan = b.key != b.key;
  if (a_nan != b_nan) return descending ? a_nan : b_nan;
  if (!a_nan && a.key != b.key) return descending ? a.key > b.key : a.key < b.key;
  return a.at < b.at;
}

template <class T, bool descending>
void order(Element<T>* first, int64_t n, int64_t kept) {
  auto less = before<T, descending>;
  if (kept == n) return std::sort(first, first + n, less);
  if (kept * 16 < n) return std::partial_sort(first, first + kept, first + n, less);
  if (kept > 0) std::nth_element(first, first + kept - 1, first + n, less);
  std::sort(first, first + kept, less);
}

template <class T, class C>
void sort_rows(const SortPlan& p, const T* x, T* values, int64_t* indices, int64_t first,
               int64_t last, Element<C>* row) {
  const auto rank = static_cast<size_t>(p.x.rank()) - 1;
  Walk<1> walk({p.x.shape.data(), rank}, {std::span(p.x.strides.data(), rank)}, first);
  for (int64_t r = first; r < last; ++r, walk.next()) {
    const T* source = x + walk.offset(0);
    const int64_t stride = p.x.strides.back();
    for (int64_t i = 0; i < p.length; ++i) row[i] = {convert<C>(source[i * stride]), i};
    if (p.descending)
      order<C, true>(row, p.length, p.kept);
    else
      order<C, false>(row, p.length, p.kept);
    const int64_t start = r / p.inner * p.outer_stride + r % p.inner;
    for (int64_t i = 0; i < p.kept; ++i) {
      values[start + i * p.step] = source[row[i].at * stride];
      indices[start + i * p.step] = row[i].at;
    }
  }
}

template <class T, class C>
void run_sort(const void* parameters, std::byte* const* args, KernelScope& scope) {
  const SortPlan& p = *static_cast<const SortPlan*>(parameters);
  auto* rows = reinterpret_cast<Element<C>*>(scope.scratch);
  run_in_slots(
      scope.workers, (p.rows + p.rows_each - 1) / p.rows_each, [&](int64_t item, int64_t slot) {
        sort_rows<T, C>(p, reinterpret_cast<const T*>(args[0]), reinterpret_cast<T*>(args[1]),
                        reinterpret_cast<int64_t*>(args[2]), item * p.rows_each,
                        std::min(p.rows, (item + 1) * p.rows_each), rows + slot * p.length);
      });
}

void bind_sort(BindCall& call, int64_t at_dim, bool descending) {
  const Layout& x = call.in[0];
  const int rank = x.rank();
  const int64_t dim = at_dim < 0 ? at_dim + std::max(rank, 1) : at_dim;
  SortPlan p;
  p.x.dtype = x.dtype;
  p.descending = descending;
  for (int64_t d = 0; d < rank; ++d) {
    if (d == dim) continue;
    p.x.shape.push_back(x.shape[d]);
    p.x.strides.push_back(x.strides[d]);
    p.rows *= x.shape[d];
    if (d > dim) p.inner *= x.shape[d];
  }
  p.length = rank == 0 ? 1 : x.shape[dim];
  p.kept = rank == 0 ? 1 : call.out[0].shape[dim];
  if (p.kept < 0 || p.kept > p.length)
    call.fail("'k' is {}, dimension {} of 'x' {} has {} elements", p.kept, dim, to_string(x.shape),
              p.length);
  p.x.shape.push_back(p.length);
  p.x.strides.push_back(rank == 0 ? 1 : x.strides[dim]);
  p.step = p.inner;
  p.outer_stride = p.inner * p.kept;
  if (p.rows == 0 || p.kept == 0) p.rows = 0;
  p.inner = std::max<int64_t>(p.inner, 1);
  p.rows_each = std::max<int64_t>(1, task_elements / std::max<int64_t>(p.length, 1));
  const int64_t items = (p.rows + p.rows_each - 1) / p.rows_each;
  visit_dtype(x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;
    auto scratch =
        static_cast<size_t>(std::min(items, most_slots()) * p.length) * sizeof(Element<C>);
    call.set_kernel(run_sort<T, C>, std::move(p), scratch);
  });
}

void give_back(VjpCall& d, int64_t dim) {
  if (!d.has_dy(0)) return;
  d.give(0, [&] {
    Value zeros = zeros_to_fill(d.world, d.x_type());
    return emit("scatter_add", {zeros, d.y(1), d.dy(0)}, {{"dim", dim, {}}});
  });
}

// Nothing where the kernel is none of these.
template <class T, class C = T>
std::optional<DeviceForm> form_of(ir::KernelFunction run, const void* parameters) {
  if (run != run_sort<T, C>) return std::nullopt;
  const SortPlan& p = *static_cast<const SortPlan*>(parameters);
  return DeviceForm{DeviceSort{p.x, p.rows, p.kept, p.inner, p.outer_stride, p.step, p.descending}};
}

}  // namespace

std::optional<DeviceForm> form_of_sort(ir::KernelFunction run, const void* parameters) {
  std::optional<DeviceForm> form;
  for (int d = 0; d < dtype_count; ++d)
    visit_dtype(static_cast<DType>(d), [&](auto tag) {
      using T = typename decltype(tag)::type;
      using C =
          std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;
      if (!form) form = form_of<T, C>(run, parameters);
    });
  return form;
}

void Sort::infer(InferCall& call) {
  const Type& x = call.tensor(0);
  call.dimension(attributes_as<Attr>(call.attributes).dim, x.rank());
  call.out.push_back(x);
  call.out.emplace_back(DType::i64, x.dims, x.device);
}
void Sort::bind(BindCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
  bind_sort(call, a.dim, a.descending);
}
void Sort::vjp(VjpCall& d) { give_back(d, d.attr<Attr>().dim); }

void Topk::infer(InferCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
  const Type& x = call.tensor(0);
  int dim = call.dimension(a.dim, x.rank());
  Dims dims = x.dims;
  Dim n = x.rank() == 0 ? Dim(1) : x.dims[dim];
  if (a.k.is_constant() && (a.k.value() < 0 || (n.is_constant() && a.k.value() > n.value())))
    call.fail("'k' is {}; it must be from 0 to the size of dimension {} of 'x', {}", a.k.value(),
              dim, to_string(x));
  if (x.rank() > 0) dims[dim] = a.k;
  if (x.rank() == 0 && a.k != Dim(1))
    call.fail("'k' is {}; of a 0-d tensor it can only be 1", a.k.to_string());
  call.out.emplace_back(x.dtype, dims, x.device);
  call.out.emplace_back(DType::i64, std::move(dims), x.device);
}
void Topk::bind(BindCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
  bind_sort(call, a.dim, a.largest);
}
void Topk::vjp(VjpCall& d) { give_back(d, d.attr<Attr>().dim); }

void Argsort::compose(ComposeCall& c) {
  const Attr& a = c.attr<Attr>();
  SmallVector<Value, 1> in{tensor_operand(c, 0)};
  c.give(emit_all(c.world, "sort", in, {{"dim", a.dim, {}}, {"descending", a.descending, {}}})[1]);
}

void Kthvalue::compose(ComposeCall& c) {
  const Attr& a = c.attr<Attr>();
  const Value& x = tensor_operand(c, 0);
  if (a.k.is_constant() && a.k.value() < 1) c.fail("'k' is {}; it counts from 1", a.k.value());
  SmallVector<Value, 1> in{x};
  auto least =
      emit_all(c.world, "topk", in, {{"k", a.k, {}}, {"dim", a.dim, {}}, {"largest", false, {}}});
  for (const Value& v : least)
    c.give(x.rank() == 0 ? v : emit("select", {v}, {{"dim", a.dim, {}}, {"index", a.k - 1, {}}}));
}

void MedianDim::compose(ComposeCall& c) {
  const Attr& a = c.attr<Attr>();
  const Value& x = tensor_operand(c, 0);
  if (x.rank() == 0) {
    Value place = emit("argmax", {x});
    c.give(x);
    c.give(place);
    return;
  }
  if (a.dim < -x.rank() || a.dim >= x.rank())
    c.fail("'dim' is {}, 'x' is {}; it must be from {} to {}", a.dim, to_string(x.type), -x.rank(),
           x.rank() - 1);
  const Dim& n = x.dims()[static_cast<size_t>(a.dim < 0 ? a.dim + x.rank() : a.dim)];
  if (n == Dim(0))
    c.fail("dimension {} of 'x' {} is empty; it has no median", a.dim, to_string(x.type));
  const Dim half = floor_div(n + 1, 2);
  SmallVector<Value, 1> in{x};
  Value least = emit_all(c.world, "topk", in,
                         {{"k", half, {}}, {"dim", a.dim, {}}, {"largest", false, {}}})[1];
  Value place = slice(least, a.dim, half - 1, half);
  if (x.type.is_floating()) {
    Value bad = cast(unary("isnan", x), DType::u8);
    Value first = emit("argmax", {bad}, {{"dim", a.dim, {}}, {"keepdim", true, {}}});
    Value any = emit("any", {bad}, {{"dim", a.dim, {}}, {"keepdim", true, {}}});
    place = where(any, first, place);
  }
  Value value = emit("gather", {x, place}, {{"dim", a.dim, {}}});
  c.give(a.keepdim ? value : squeeze(value, a.dim));
  c.give(a.keepdim ? place : squeeze(place, a.dim));
}

Family sorting_family() { return fold<SortingOperators>(); }

}  // namespace gradus::ops
