// Sorting rows.
#include <algorithm>

#include "base/slots.h"
#include "gradus/convert.h"
#include "kernels/copies.h"

namespace gradus::kernels {

namespace {

constexpr int64_t task_elements = 1 << 13;  // what one worker takes at a time, about

struct SortPlan : Sort {
  int64_t length = 1, rows_each = 1;
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
void run_sort(const SortPlan& p, std::byte* const* args, KernelScope& scope) {
  auto* rows = reinterpret_cast<Element<C>*>(scope.scratch);
  run_in_slots(
      scope.workers, (p.rows + p.rows_each - 1) / p.rows_each, [&](int64_t item, int64_t slot) {
        sort_rows<T, C>(p, reinterpret_cast<const T*>(args[0]), reinterpret_cast<T*>(args[1]),
                        reinterpret_cast<int64_t*>(args[2]), item * p.rows_each,
                        std::min(p.rows, (item + 1) * p.rows_each), rows + slot * p.length);
      });
}

// What a dtype's elements are compared in: few types, since what sorts is long. A place beside it
// takes eight bytes.
template <class T>
struct ComparedIn {
  static constexpr bool small = sizeof(T) < 4 || std::is_same_v<T, int32_t>;
  using Integer =
      std::conditional_t<small, int32_t,
                         std::conditional_t<std::is_same_v<T, uint64_t>, uint64_t, int64_t>>;
  using type = std::conditional_t<std::is_integral_v<T>, Integer,
                                  std::conditional_t<std::is_same_v<T, double>, double, float>>;
};
template <class T>
using Compared = typename ComparedIn<T>::type;

}  // namespace

Kernel make_kernel(const Sort& w) {
  SortPlan p{w};
  p.length = w.x.shape.back();
  p.rows_each = std::max<int64_t>(1, task_elements / std::max<int64_t>(p.length, 1));
  const int64_t items = (p.rows + p.rows_each - 1) / p.rows_each;
  return visit_dtype(w.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compared<T>;
    const auto scratch =
        static_cast<size_t>(std::min(items, most_slots()) * p.length) * sizeof(Element<C>);
    return Kernel::of<run_sort<T, C>>(std::move(p), scratch);
  });
}

}  // namespace gradus::kernels
