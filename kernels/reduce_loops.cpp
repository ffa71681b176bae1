#include "kernels/reduce_loops.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "gradus/error.h"
#include "gradus/isa.h"

namespace gradus::kernels {

namespace {

constexpr int64_t prefetch_rows = 8;

// Each reducer combines scalars and vectors alike: a = combine(a, b).
struct Sum {
  template <class T>
  static constexpr T identity = T(0);
  [[gnu::always_inline]] static void combine(auto& a, const auto& b) { a = a + b; }
};
struct Prod {
  template <class T>
  static constexpr T identity = T(1);
  [[gnu::always_inline]] static void combine(auto& a, const auto& b) { a = a * b; }
};
struct Max {
  template <class T>
  static constexpr T identity = std::numeric_limits<T>::has_infinity
                                    ? -std::numeric_limits<T>::infinity()
                                    : std::numeric_limits<T>::min();
  template <class X>
  [[gnu::always_inline]] static void combine(X& a, const X& b) {
    X high = b > a ? b : a;
    a = b != b ? b : high;
  }
};
struct Min {
  template <class T>
  static constexpr T identity = std::numeric_limits<T>::has_infinity
                                    ? std::numeric_limits<T>::infinity()
                                    : std::numeric_limits<T>::max();
  template <class X>
  [[gnu::always_inline]] static void combine(X& a, const X& b) {
    X low = b < a ? b : a;
    a = b != b ? b : low;
  }
};
struct All {
  template <class T>
  static constexpr T identity = T(1);
  [[gnu::always_inline]] static void combine(auto& a, const auto& b) { a = a & b; }
};
struct Any {
  template <class T>
  static constexpr T identity = T(0);
  [[gnu::always_inline]] static void combine(auto& a, const auto& b) { a = a | b; }
};

// Sixteen lanes as vectors that live in registers; compilers split them where registers are
// shorter.
template <class T>
struct Lanes {
  static constexpr int64_t bytes = std::min<int64_t>(32, reduce_lanes * sizeof(T));
  static constexpr int64_t width = bytes / static_cast<int64_t>(sizeof(T));
  static constexpr int64_t vectors = reduce_lanes / width;
  typedef T Vector __attribute__((vector_size(bytes)));
};

template <class R, class T>
[[gnu::always_inline]] inline T reduce_row(const T* x, int64_t n) {
  using L = Lanes<T>;
  typename L::Vector acc[L::vectors];
#pragma GCC unroll 8
  for (int64_t v = 0; v < L::vectors; ++v) acc[v] = typename L::Vector{} + R::template identity<T>;
  int64_t i = 0;
  for (; i + reduce_lanes <= n; i += reduce_lanes) {
#pragma GCC unroll 8
    for (int64_t v = 0; v < L::vectors; ++v) {
      typename L::Vector row;
      std::memcpy(&row, x + i + v * L::width, sizeof row);
      R::combine(acc[v], row);
    }
  }
  T lane[reduce_lanes];
#pragma GCC unroll 8
  for (int64_t v = 0; v < L::vectors; ++v) std::memcpy(lane + v * L::width, &acc[v], sizeof acc[v]);
  for (int64_t l = 0; i + l < n; ++l) R::combine(lane[l], x[i + l]);
  for (int64_t w = reduce_lanes / 2; w > 0; w /= 2)
    for (int64_t l = 0; l < w; ++l) R::combine(lane[l], lane[l + w]);
  return lane[0];
}

template <class R, class T>
[[gnu::always_inline]] inline void rows(const void* x, int64_t stride, int64_t rows, int64_t n,
                                        void* partial) {
  const T* s = static_cast<const T*>(x);
  for (int64_t j = 0; j < rows; ++j)
    static_cast<T*>(partial)[j] = reduce_row<R, T>(s + j * stride, n);
}

template <class R, class T>
[[gnu::always_inline]] inline void combine(void* into, const void* other, int64_t n) {
  T* __restrict a = static_cast<T*>(into);
  const T* __restrict b = static_cast<const T*>(other);
  for (int64_t i = 0; i < n; ++i) R::combine(a[i], b[i]);
}

template <class R, class T>
[[gnu::always_inline]] inline void columns(const void* x, int64_t stride, int64_t rows, int64_t n,
                                           int64_t first, void* lanes) {
  const T* s = static_cast<const T*>(x);
  T* acc = static_cast<T*>(lanes);
  int64_t i = 0;
  if (stride == n && n < 64) {  // narrow rows without gaps: all lanes in one go
    for (; i < rows && (first + i) % reduce_lanes; ++i)
      combine<R, T>(acc + (first + i) % reduce_lanes * n, s + i * n, n);
    for (; i + reduce_lanes <= rows; i += reduce_lanes)
      combine<R, T>(acc, s + i * n, reduce_lanes * n);
  }
  const bool far = rows * stride * static_cast<int64_t>(sizeof(T)) > (1 << 20);
  for (; i < rows; ++i) {
    const T* row = s + i * stride;
    // Where rows lie far apart, what comes next has to be asked for.
    for (int64_t t = 0; far && t < n; t += 64 / static_cast<int64_t>(sizeof(T)))
      __builtin_prefetch(row + prefetch_rows * stride + t);
    combine<R, T>(acc + (first + i) % reduce_lanes * n, row, n);
  }
}

template <class R, class T>
[[gnu::always_inline]] inline void fold_lanes(void* lanes, int64_t used, int64_t n) {
  T* acc = static_cast<T*>(lanes);
  for (int64_t w = used / 2; w > 0; w /= 2) combine<R, T>(acc, acc + w * n, w * n);
}

template <class R, class T>
void fill(void* into, int64_t n) {
  std::fill_n(static_cast<T*>(into), n, R::template identity<T>);
}

template <class R, class T>
const ReduceLoops& choose() {
  static const ReduceLoops loops{sizeof(T),
                                 Levels<rows<R, T>>::best(),
                                 Levels<columns<R, T>>::best(),
                                 Levels<fold_lanes<R, T>>::best(),
                                 Levels<combine<R, T>>::best(),
                                 fill<R, T>};
  return loops;
}

// Integer is what i64 is computed in: sums and products of integers wrap, as unsigned ones.
template <class R, class Integer>
const ReduceLoops& by_compute(Compute compute) {
  return compute == Compute::f64   ? choose<R, double>()
         : compute == Compute::f32 ? choose<R, float>()
         : compute == Compute::u64 ? choose<R, uint64_t>()
                                   : choose<R, Integer>();
}

}  // namespace

const ReduceLoops& reduce_loops(Reducer reducer, Compute compute) {
  switch (reducer) {
    case Reducer::sum:
      return by_compute<Sum, uint64_t>(compute);
    case Reducer::prod:
      return by_compute<Prod, uint64_t>(compute);
    case Reducer::max:
      return by_compute<Max, int64_t>(compute);
    case Reducer::min:
      return by_compute<Min, int64_t>(compute);
    case Reducer::all:
      return choose<All, uint8_t>();
    case Reducer::any:
      break;
  }
  return choose<Any, uint8_t>();
}

}  // namespace gradus::kernels
