// The greatest element of each window, and where it is.
#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "gradus/convert.h"
#include "gradus/isa.h"
#include "kernels/make.h"

namespace gradus::kernels {

namespace {

constexpr int64_t chunk_windows = 1 << 12;  // what one worker takes at a time

using Range = WindowRange;

struct PoolPlan : MaxPool {
  std::array<std::vector<Range>, conv_axes> ranges;  // one for each window of an axis
  // Windows of the last axis that the padding cuts nothing off; none if windows have too many
  // elements for a table.
  Range whole{0, 0};
  // Of a window's elements, those in the padding counted: how far each is from the first, in the
  // image's row-major order and in memory.
  struct Element {
    int64_t at, memory;
  };
  std::vector<Element> elements;
  // Whether the padding cuts nothing off a window of an axis; and whether an image is small enough
  // for distances within a window to be 32 bits wide.
  std::array<std::vector<char>, conv_axes> is_whole;
  bool small = false;
  // Windows are two wide and lie side by side, elements along their last axis without gaps.
  bool pairs = false;
};
constexpr int64_t most_elements = 256;

template <class T, class C>
[[gnu::always_inline]] inline void pool_window(const PoolPlan& p, const T* plane, Range r0,
                                               Range r1, Range r2, T& value, int64_t& index) {
  const auto& [a0, a1, a2] = p.axes;
  const auto [s0, s1, s2] = p.x.strides;
  int64_t at = (r0.first * a1.image + r1.first) * a2.image + r2.first;
  T found = plane[r0.first * s0 + r1.first * s1 + r2.first * s2];
  C best = convert<C>(found);
  for (int64_t i = r0.first; i < r0.last; i += a0.dilation)
    for (int64_t j = r1.first; j < r1.last; j += a1.dilation) {
      const T* row = plane + i * s0 + j * s1;
      for (int64_t k = r2.first; k < r2.last; k += a2.dilation) {
        const C c = convert<C>(row[k * s2]);
        if (!(c > best || c != c)) continue;
        best = c;
        found = row[k * s2];
        at = (i * a1.image + j) * a2.image + k;
      }
    }
  value = found;
  index = at;
}

constexpr int64_t tile = 64;  // windows at a time

// Whole windows of the last axis that follow one another.
struct Row {
  int64_t window0, window1;  // of the other axes
  int64_t first, count;
};

// Without a branch, also where the compiler would take one.
template <class T>
[[gnu::always_inline]] inline T choose(bool which, T a, T b) {
  using Bits =
      std::conditional_t<sizeof(T) == 8, uint64_t,
                         std::conditional_t<sizeof(T) == 4, uint32_t,
                                            std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;
  const auto mask = static_cast<Bits>(-static_cast<Bits>(which));
  return std::bit_cast<T>(static_cast<Bits>((std::bit_cast<Bits>(a) & mask) |
                                            (std::bit_cast<Bits>(b) & static_cast<Bits>(~mask))));
}

// Elements of the windows in turn, each compared with the best of its window so far: no branch
// depends on a value. `known_step` is how far windows lie apart in memory, or 0: who knows.
template <class T, class C, int64_t known_step>
[[gnu::always_inline]] inline void pool_tile(const PoolPlan& p, const T* plane, const Row& row,
                                             T* values, int64_t* indices) {
  using Ordinal = std::conditional_t<sizeof(C) == 8, int64_t, int32_t>;
  const auto& [a0, a1, a2] = p.axes;
  const auto [s0, s1, s2] = p.x.strides;
  const Range r0 = p.ranges[0][row.window0], r1 = p.ranges[1][row.window1];
  const int64_t step = known_step ? known_step : a2.stride * s2;
  // The first window's first element, or where it would be if the padding were there.
  const int64_t i0 = row.window0 * a0.stride - a0.padding;
  const int64_t j0 = row.window1 * a1.stride - a1.padding;
  const int64_t k0 = row.first * a2.stride - a2.padding;
  auto ordinal = [&](int64_t i, int64_t j) {
    return static_cast<Ordinal>(((i - i0) / a0.dilation * a1.kernel + (j - j0) / a1.dilation) *
                                a2.kernel);
  };
  C best[tile];
  Ordinal of[tile];
  const T* corner = plane + r0.first * s0 + r1.first * s1 + k0 * s2;
  for (int64_t k = 0; k < row.count; ++k) {
    best[k] = convert<C>(corner[k * step]);
    of[k] = ordinal(r0.first, r1.first);
  }
  for (int64_t i = r0.first; i < r0.last; i += a0.dilation)
    for (int64_t j = r1.first; j < r1.last; j += a1.dilation) {
      const Ordinal first = ordinal(i, j);
      for (int64_t t = 0; t < a2.kernel; ++t) {
        const T* line = plane + i * s0 + j * s1 + (k0 + t * a2.dilation) * s2;
        const auto here = static_cast<Ordinal>(first + t);
        for (int64_t k = 0; k < row.count; ++k) {
          const C c = convert<C>(line[k * step]);
          const bool better = (c > best[k]) | (c != c);
          best[k] = choose(better, c, best[k]);
          of[k] = choose(better, here, of[k]);
        }
      }
    }
  const T* start = plane + i0 * s0 + j0 * s1 + k0 * s2;
  const int64_t at = (i0 * a1.image + j0) * a2.image + k0;
  for (int64_t k = 0; k < row.count; ++k) {
    const PoolPlan::Element& e = p.elements[static_cast<size_t>(of[k])];
    values[k] = start[e.memory + k * step];
    indices[k] = at + e.at + k * a2.stride;
  }
}

// Windows of so many elements, none of them cut off: all of a window's in registers. The best one
// is known by its distance from the window's first, so values are as wide as what is compared.
template <class T, int count, int64_t known_step>
[[gnu::always_inline]] inline void pool_small(const PoolPlan& p, const T* plane, const Row& row,
                                              T* values, int64_t* indices) {
  using Distance = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
  const auto& [a0, a1, a2] = p.axes;
  const auto [s0, s1, s2] = p.x.strides;
  const int64_t i = row.window0 * a0.stride - a0.padding;
  const int64_t j = row.window1 * a1.stride - a1.padding;
  const int64_t k = row.first * a2.stride - a2.padding;
  const int64_t step = known_step ? known_step : a2.stride * s2;
  const T* lines[count];
  Distance distances[count];
  for (int e = 0; e < count; ++e) {
    const PoolPlan::Element& element = p.elements[static_cast<size_t>(e)];
    lines[e] = plane + i * s0 + j * s1 + k * s2 + element.memory;
    distances[e] = static_cast<Distance>(element.at);
  }
  const int64_t at = (i * a1.image + j) * a2.image + k, stride = a2.stride;
#pragma GCC ivdep
  for (int64_t w = 0; w < row.count; ++w) {
    T best = lines[0][w * step];
    Distance of = 0;
#pragma GCC unroll 16
    for (int e = 1; e < count; ++e) {
      const T c = lines[e][w * step];
      const bool better = (c > best) | (c != c);
      best = choose(better, c, best);
      of = choose(better, distances[e], of);
    }
    values[w] = best;
    indices[w] = at + w * stride + of;
  }
}

template <class T, int64_t known_step>
[[gnu::always_inline]] inline bool pool_small_row(const PoolPlan& p, const T* plane, const Row& row,
                                                  T* values, int64_t* indices) {
  if (!p.small || !p.is_whole[0][row.window0] || !p.is_whole[1][row.window1]) return false;
  switch (p.elements.size()) {
    case 3:
      pool_small<T, 3, known_step>(p, plane, row, values, indices);
      return true;
    case 4:
      pool_small<T, 4, known_step>(p, plane, row, values, indices);
      return true;
    case 9:
      pool_small<T, 9, known_step>(p, plane, row, values, indices);
      return true;
    default:
      return false;
  }
}

template <class T, class C>
[[gnu::always_inline]] inline void pool_row(const PoolPlan& p, const T* plane, Row row, T* values,
                                            int64_t* indices) {
  const int64_t last = row.first + row.count;
  [[maybe_unused]] const int64_t step = p.axes[2].stride * p.x.strides[2];
  if constexpr (std::is_same_v<T, C> && !std::is_integral_v<T>)
    if (step == 1 ? pool_small_row<T, 1>(p, plane, row, values, indices)
                  : step == 2 && pool_small_row<T, 2>(p, plane, row, values, indices))
      return;
  for (; row.first < last; row.first += tile) {
    row.count = std::min(tile, last - row.first);
    // Few networks have integers here, and code for each step takes long to compile.
    if constexpr (std::is_integral_v<T>)
      pool_tile<T, C, 0>(p, plane, row, values, indices);
    else if (step == 1)
      pool_tile<T, C, 1>(p, plane, row, values, indices);
    else if (step == 2)
      pool_tile<T, C, 2>(p, plane, row, values, indices);
    else
      pool_tile<T, C, 0>(p, plane, row, values, indices);
    values += row.count;
    indices += row.count;
  }
}

template <class T, class C>
void pool_row_base(const PoolPlan& p, const T* plane, const Row& row, T* values, int64_t* indices) {
  pool_row<T, C>(p, plane, row, values, indices);
}
#if GRADUS_HAS_V3
#define GRADUS_V3 gnu::target("arch=x86-64-v3")

template <class T, int lanes>
struct Vector {
  typedef T Type __attribute__((vector_size(lanes * sizeof(T))));
};

// Whole windows [first, last) two wide that lie side by side, lines of elements being contiguous:
// each line is read once, without gaps, and parted into first and second elements. `at` and
// `corner` are those of window 0. Returns the first window that is left.
template <class T, int lanes>
[[GRADUS_V3]] int64_t pool_pairs(const PoolPlan& p, const T* corner, int64_t at, int64_t first,
                                 int64_t last, T* values, int64_t* indices) {
  using Distance = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
  using Values = typename Vector<T, lanes>::Type;
  using Distances = typename Vector<Distance, lanes>::Type;
  using Indices = typename Vector<int64_t, lanes>::Type;
  Indices own{};
  for (int l = 0; l < lanes; ++l) own[l] = 2 * l;
  int64_t w = first;
  for (; w + lanes <= last; w += lanes) {
    Values best{};
    Distances of{}, begins = ~Distances{};
    for (size_t e = 0; e < p.elements.size(); e += 2) {
      Values low, high, even, odd;
      const T* line = corner + p.elements[e].memory + 2 * w;
      std::memcpy(&low, line, sizeof low);
      std::memcpy(&high, line + lanes, sizeof high);
      if constexpr (lanes == 8) {
        even = __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14);
        odd = __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15);
      } else {
        even = __builtin_shufflevector(low, high, 0, 2, 4, 6);
        odd = __builtin_shufflevector(low, high, 1, 3, 5, 7);
      }
      const Distances even_at = Distances{} + static_cast<Distance>(p.elements[e].at);
      const Distances odd_at = Distances{} + static_cast<Distance>(p.elements[e + 1].at);
      const Distances first_better = begins | (even > best) | (even != even);
      best = first_better ? even : best;
      of = first_better ? even_at : of;
      const Distances second_better = (odd > best) | (odd != odd);
      best = second_better ? odd : best;
      of = second_better ? odd_at : of;
      begins = Distances{};
    }
    const Indices index = __builtin_convertvector(of, Indices) + own + (at + 2 * w);
    std::memcpy(values + w, &best, sizeof best);
    std::memcpy(indices + w, &index, sizeof index);
  }
  return w;
}

template <class T, class C>
[[GRADUS_V3]] void pool_row_v3(const PoolPlan& p, const T* plane, const Row& row, T* values,
                               int64_t* indices) {
  Row rest = row;
  if constexpr (std::is_floating_point_v<T>)
    if (p.pairs && p.is_whole[0][row.window0] && p.is_whole[1][row.window1]) {
      const auto& [a0, a1, a2] = p.axes;
      const int64_t i = row.window0 * a0.stride - a0.padding;
      const int64_t j = row.window1 * a1.stride - a1.padding;
      const int64_t k = row.first * a2.stride - a2.padding;
      const T* corner = plane + i * p.x.strides[0] + j * p.x.strides[1] + k;
      const int64_t at = (i * a1.image + j) * a2.image + k;
      int64_t done = 0;
      if constexpr (sizeof(T) == 4)
        done = pool_pairs<T, 8>(p, corner, at, done, row.count, values, indices);
      done = pool_pairs<T, 4>(p, corner, at, done, row.count, values, indices);
      if (done == row.count) return;
      rest.first += done;
      rest.count -= done;
      values += done;
      indices += done;
    }
  pool_row<T, C>(p, plane, rest, values, indices);
}
#endif

template <class T, class C>
auto best_row() {
#if GRADUS_HAS_V3
  if constexpr (!std::is_integral_v<T>)
    if (cpu_has_v3()) return pool_row_v3<T, C>;
#endif
  return pool_row_base<T, C>;
}

// Windows [first, last), counted over all planes.
template <class T, class C>
void pool_windows(const PoolPlan& p, const T* x, int64_t first, int64_t last, T* values,
                  int64_t* indices) {
  const int64_t n0 = p.axes[0].windows, n1 = p.axes[1].windows, n2 = p.axes[2].windows;
  const auto whole_row = best_row<T, C>();
  int64_t plane = first / p.windows, start = first % n2;
  int64_t w1 = first / n2 % n1, w0 = first / n2 / n1 % n0;
  for (int64_t i = first; i < last;) {
    const T* source =
        x + plane / p.channels * p.x.batch_stride + plane % p.channels * p.x.channel_stride;
    for (; i < last && w0 < n0; ++w0, w1 = 0)
      for (; i < last && w1 < n1; ++w1, start = 0) {
        const int64_t end = std::min(n2, start + last - i);
        const int64_t whole = std::clamp(p.whole.first, start, end);
        const int64_t cut = std::clamp(p.whole.last, whole, end);
        auto one_by_one = [&](int64_t from, int64_t to) {
          for (int64_t k = from; k < to; ++k)
            pool_window<T, C>(p, source, p.ranges[0][w0], p.ranges[1][w1], p.ranges[2][k],
                              values[i + k - start], indices[i + k - start]);
        };
        one_by_one(start, whole);
        if (whole < cut)
          whole_row(p, source, {w0, w1, whole, cut - whole}, values + i + whole - start,
                    indices + i + whole - start);
        one_by_one(cut, end);
        i += end - start;
      }
    ++plane;
    w0 = 0;
  }
}

void make_table(PoolPlan& p) {
  const auto& [a0, a1, a2] = p.axes;
  if (a0.kernel > most_elements / a1.kernel || a0.kernel * a1.kernel > most_elements / a2.kernel)
    return;
  const auto [s0, s1, s2] = p.x.strides;
  for (int64_t i = 0; i < a0.kernel; ++i)
    for (int64_t j = 0; j < a1.kernel; ++j)
      for (int64_t k = 0; k < a2.kernel; ++k) {
        const int64_t di = i * a0.dilation, dj = j * a1.dilation, dk = k * a2.dilation;
        p.elements.push_back({(di * a1.image + dj) * a2.image + dk, di * s0 + dj * s1 + dk * s2});
      }
  for (int d = 0; d < conv_axes; ++d) {
    const ConvAxis& a = p.axes[d];
    for (int64_t w = 0; w < a.windows; ++w) {
      const int64_t begin = w * a.stride - a.padding;
      p.is_whole[d].push_back(begin >= 0 && begin + (a.kernel - 1) * a.dilation < a.image);
    }
  }
  p.small = p.elements.back().at <= INT32_MAX;
  p.pairs = p.small && a2.kernel == 2 && a2.stride == 2 && a2.dilation == 1 && s2 == 1;
  const std::vector<char>& whole = p.is_whole[2];
  p.whole.first = std::find(whole.begin(), whole.end(), true) - whole.begin();
  p.whole.last = std::find(whole.begin() + p.whole.first, whole.end(), false) - whole.begin();
}

template <class T, class C>
void run_pool(const PoolPlan& p, std::byte* const* args, KernelScope& scope) {
  const T* x = reinterpret_cast<const T*>(args[0]);
  T* values = reinterpret_cast<T*>(args[1]);
  int64_t* indices = reinterpret_cast<int64_t*>(args[2]);
  scope.workers.parallel_parts(
      p.planes * p.windows, chunk_windows,
      [&](int64_t first, int64_t last) { pool_windows<T, C>(p, x, first, last, values, indices); });
}

// What a dtype's elements are compared in.
template <class T>
using Compared = std::conditional_t<std::is_integral_v<T> || sizeof(T) != 2, T, float>;

}  // namespace

Kernel make_kernel(const MaxPool& w) {
  PoolPlan p{w};
  for (int d = 0; d < conv_axes; ++d)
    for (int64_t i = 0; i < p.axes[d].windows; ++i) p.ranges[d].push_back(range_of(p.axes[d], i));
  make_table(p);
  return visit_dtype(p.dtype, [&](auto tag) {
    using Type = typename decltype(tag)::type;
    // As bytes truth values compare alike.
    using T = std::conditional_t<std::is_same_v<Type, bool>, uint8_t, Type>;
    return Kernel::of<run_pool<T, Compared<T>>>(std::move(p));
  });
}

}  // namespace gradus::kernels
