#include "ops/reduce_loops.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "ops/isa.h"

namespace gradus::ops {

namespace {

struct Sum {
  template <class T>
  static constexpr T identity = T(0);
  template <class T>
  [[gnu::always_inline]] static T combine(T a, T b) {
    // Signed overflow wraps, as ATen's does.
    if constexpr (std::is_same_v<T, int64_t>)
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    else return a + b;
  }
};
struct Prod {
  template <class T>
  static constexpr T identity = T(1);
  template <class T>
  [[gnu::always_inline]] static T combine(T a, T b) {
    if constexpr (std::is_same_v<T, int64_t>)
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    else return a * b;
  }
};
struct Max {
  template <class T>
  static constexpr T identity = std::numeric_limits<T>::has_infinity
                                    ? -std::numeric_limits<T>::infinity()
                                    : std::numeric_limits<T>::min();
  template <class T>
  [[gnu::always_inline]] static T combine(T a, T b) {
    // Not (b <= a): true as well where either is NaN, and then a NaN in `a` stays.
    return (!(b <= a) & (a == a)) ? b : a;
  }
};
struct Min {
  template <class T>
  static constexpr T identity = std::numeric_limits<T>::has_infinity
                                    ? std::numeric_limits<T>::infinity()
                                    : std::numeric_limits<T>::max();
  template <class T>
  [[gnu::always_inline]] static T combine(T a, T b) {
    return (!(b >= a) & (a == a)) ? b : a;
  }
};
struct All {
  template <class T>
  static constexpr T identity = T(1);
  template <class T>
  [[gnu::always_inline]] static T combine(T a, T b) {
    return a & b;
  }
};
struct Any {
  template <class T>
  static constexpr T identity = T(0);
  template <class T>
  [[gnu::always_inline]] static T combine(T a, T b) {
    return a | b;
  }
};

// Sixteen lanes that live in registers.
template <class R, class T>
[[gnu::always_inline]] inline T reduce_row(const T* x, int64_t n) {
  T lane[reduce_lanes];
  for (T& l : lane) l = R::template identity<T>;
  int64_t i = 0;
  for (; i + reduce_lanes <= n; i += reduce_lanes)
    for (int64_t l = 0; l < reduce_lanes; ++l) lane[l] = R::combine(lane[l], x[i + l]);
  for (int64_t l = 0; i + l < n; ++l) lane[l] = R::combine(lane[l], x[i + l]);
  for (int64_t w = reduce_lanes / 2; w > 0; w /= 2)
    for (int64_t l = 0; l < w; ++l) lane[l] = R::combine(lane[l], lane[l + w]);
  return lane[0];
}

template <class R, class T>
[[gnu::always_inline]] inline void rows_body(const void* x, int64_t stride, int64_t rows, int64_t n,
                                             void* partial) {
  const T* s = static_cast<const T*>(x);
  for (int64_t j = 0; j < rows; ++j)
    static_cast<T*>(partial)[j] = reduce_row<R, T>(s + j * stride, n);
}

template <class R, class T>
[[gnu::always_inline]] inline void combine_body(void* into, const void* other, int64_t n) {
  T* __restrict a = static_cast<T*>(into);
  const T* __restrict b = static_cast<const T*>(other);
  for (int64_t i = 0; i < n; ++i) a[i] = R::combine(a[i], b[i]);
}

template <class R, class T>
[[gnu::always_inline]] inline void columns_body(const void* x, int64_t stride, int64_t rows,
                                                int64_t n, int64_t first, void* lanes) {
  const T* s = static_cast<const T*>(x);
  T* acc = static_cast<T*>(lanes);
  int64_t i = 0;
  if (stride == n && n < 64) {  // narrow rows without gaps: all lanes in one go
    for (; i < rows && (first + i) % reduce_lanes; ++i)
      combine_body<R, T>(acc + (first + i) % reduce_lanes * n, s + i * n, n);
    for (; i + reduce_lanes <= rows; i += reduce_lanes)
      combine_body<R, T>(acc, s + i * n, reduce_lanes * n);
  }
  for (; i < rows; ++i)
    combine_body<R, T>(acc + (first + i) % reduce_lanes * n, s + i * stride, n);
}

template <class R, class T>
[[gnu::always_inline]] inline void fold_body(void* lanes, int64_t used, int64_t n) {
  T* acc = static_cast<T*>(lanes);
  for (int64_t w = used / 2; w > 0; w /= 2) combine_body<R, T>(acc, acc + w * n, w * n);
}

template <class R, class T>
void fill(void* into, int64_t n) {
  std::fill_n(static_cast<T*>(into), n, R::template identity<T>);
}

template <class R, class T>
struct Base {
  static void rows(const void* x, int64_t stride, int64_t rows, int64_t n, void* partial) {
    rows_body<R, T>(x, stride, rows, n, partial);
  }
  static void columns(const void* x, int64_t stride, int64_t rows, int64_t n, int64_t first,
                      void* lanes) {
    columns_body<R, T>(x, stride, rows, n, first, lanes);
  }
  static void fold(void* lanes, int64_t used, int64_t n) { fold_body<R, T>(lanes, used, n); }
  static void combine(void* into, const void* other, int64_t n) {
    combine_body<R, T>(into, other, n);
  }
};

#if GRADUS_HAS_V3
template <class R, class T>
struct V3 {
  [[gnu::target("arch=x86-64-v3")]] static void rows(const void* x, int64_t stride, int64_t rows,
                                                     int64_t n, void* partial) {
    rows_body<R, T>(x, stride, rows, n, partial);
  }
  [[gnu::target("arch=x86-64-v3")]] static void columns(const void* x, int64_t stride, int64_t rows,
                                                        int64_t n, int64_t first, void* lanes) {
    columns_body<R, T>(x, stride, rows, n, first, lanes);
  }
  [[gnu::target("arch=x86-64-v3")]] static void fold(void* lanes, int64_t used, int64_t n) {
    fold_body<R, T>(lanes, used, n);
  }
  [[gnu::target("arch=x86-64-v3")]] static void combine(void* into, const void* other, int64_t n) {
    combine_body<R, T>(into, other, n);
  }
};
#endif

template <template <class, class> class Isa, class R, class T>
constexpr ReduceLoops loops_of() {
  return {sizeof(T),        Isa<R, T>::rows, Isa<R, T>::columns, Isa<R, T>::fold,
          Isa<R, T>::combine, fill<R, T>};
}

template <class R, class T>
const ReduceLoops& choose() {
  static const ReduceLoops loops =
#if GRADUS_HAS_V3
      cpu_has_v3() ? loops_of<V3, R, T>() :
#endif
                   loops_of<Base, R, T>();
  return loops;
}

template <class R>
const ReduceLoops& by_compute(Compute compute) {
  return *visit_compute(compute, [](auto tag) -> const ReduceLoops* {
    return &choose<R, typename decltype(tag)::type>();
  });
}

}  // namespace

const ReduceLoops& reduce_loops(Reducer reducer, Compute compute) {
  switch (reducer) {
    case Reducer::sum: return by_compute<Sum>(compute);
    case Reducer::prod: return by_compute<Prod>(compute);
    case Reducer::max: return by_compute<Max>(compute);
    case Reducer::min: return by_compute<Min>(compute);
    case Reducer::all: return choose<All, uint8_t>();
    case Reducer::any: break;
  }
  return choose<Any, uint8_t>();
}

}  // namespace gradus::ops
