#include "kernels/accumulate.h"

#include <algorithm>

#include "kernels/tiles.h"

namespace gradus::kernels {

namespace {

constexpr int64_t tile = 512;

template <class T>
T sum(T a, T b) {
  if constexpr (std::is_same_v<T, bool>)
    return a || b;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}

template <class T>
T times(T a, double alpha) {
  if constexpr (std::is_same_v<T, bool>)
    return a;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) *
                          static_cast<uint64_t>(static_cast<int64_t>(alpha)));
  else
    return a * static_cast<T>(alpha);
}

// Calls f(elements, stride, n, first) for runs of the source in its accumulation dtype.
template <class F>
void each_run(DType dtype, const std::byte* source, int64_t stride, int64_t n, F f) {
  if (dtype != DType::f16 && dtype != DType::bf16) return f(source, stride, n, 0);
  alignas(64) float values[tile];
  for (int64_t done = 0; done < n; done += tile) {
    int64_t m = std::min(tile, n - done);
    load_tile(dtype, DType::f32, source + 2 * done * stride, stride, m, values);
    f(reinterpret_cast<const std::byte*>(values), 1, m, done);
  }
}

// Calls f with the C++ type of an accumulation dtype. Integers wrap, so signed ones do.
template <class F>
void visit_accumulation(DType d, F f) {
  visit_signed(accumulation_dtype(d), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, Half> && !std::is_same_v<T, BFloat16>) f(tag);
  });
}

}  // namespace

void add_row(DType dtype, const std::byte* source, int64_t source_stride, std::byte* target,
             int64_t target_stride, int64_t n, double alpha) {
  visit_accumulation(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* out = reinterpret_cast<T*>(target);
    each_run(dtype, source, source_stride, n,
             [&](const std::byte* run, int64_t stride, int64_t m, int64_t first) {
               const T* s = reinterpret_cast<const T*>(run);
               T* t = out + first * target_stride;
               if (alpha != 1)
                 for (int64_t i = 0; i < m; ++i)
                   t[i * target_stride] =
                       sum<T>(t[i * target_stride], times<T>(s[i * stride], alpha));
               else if (stride == 1 && target_stride == 1)
                 for (int64_t i = 0; i < m; ++i) t[i] = sum<T>(t[i], s[i]);
               else
                 for (int64_t i = 0; i < m; ++i)
                   t[i * target_stride] = sum<T>(t[i * target_stride], s[i * stride]);
             });
  });
}

void add_at(DType dtype, const std::byte* source, int64_t source_stride, std::byte* target,
            const int64_t* offsets, int64_t n) {
  visit_accumulation(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* t = reinterpret_cast<T*>(target);
    each_run(dtype, source, source_stride, n,
             [&](const std::byte* run, int64_t stride, int64_t m, int64_t first) {
               const T* s = reinterpret_cast<const T*>(run);
               const int64_t* at = offsets + first;
               for (int64_t i = 0; i < m; ++i) t[at[i]] = sum<T>(t[at[i]], s[i * stride]);
             });
  });
}

void add_rows_at(DType dtype, const std::byte* source, int64_t source_row, std::byte* target,
                 const int64_t* offsets, int64_t count, int64_t n) {
  visit_accumulation(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto run = [&](auto width) {
      for (int64_t i = 0; i < count; ++i) {
        T* t = reinterpret_cast<T*>(target) + offsets[i];
        const T* s = reinterpret_cast<const T*>(source) + i * source_row;
        for (int64_t j = 0; j < width; ++j) t[j] = sum<T>(t[j], s[j]);
      }
    };
    if (n == 3)  // places and forces of atoms
      run(std::integral_constant<int64_t, 3>());
    else
      run(n);
  });
}

}  // namespace gradus::kernels
