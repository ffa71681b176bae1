#include "kernels/gemm_kernel.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#if GRADUS_HAS_V3
#include <immintrin.h>
#endif

namespace gradus::kernels {

namespace {

template <class C>
C fused(C a, C b, C c) {
  if constexpr (std::is_integral_v<C>)
    return static_cast<C>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b) +
                          static_cast<uint64_t>(c));
  else
    return std::fma(a, b, c);
}

template <class C>
C plus(C a, C b) {
  if constexpr (std::is_integral_v<C>)
    return static_cast<C>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}

template <class C>
void tile_base(const GemmTile<C>& t) {
  C acc[GemmKernels<C>::widest];
  for (int64_t i = 0; i < t.rows; ++i) {
    for (int64_t j = 0; j < t.columns; ++j) acc[j] = 0;
    for (int64_t k = 0; k < t.k; ++k) {
      const C a = t.a[t.a_rows ? t.a_rows[i] + t.a_columns[k] : i * t.a_row + k * t.a_column];
      const C* b = t.b + (t.b_rows ? t.b_rows[k] : k * t.b_row);
      for (int64_t j = 0; j < t.columns; ++j) acc[j] = fused(a, b[j], acc[j]);
    }
    C* c = t.c + i * t.c_row;
    for (int64_t j = 0; j < t.columns; ++j) c[j] = t.first ? acc[j] : plus(c[j], acc[j]);
  }
}

template <class C>
void transpose_base(const C* source, int64_t stride, int64_t k, C* target) {
  constexpr int64_t n = GemmKernels<C>::columns;
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < n; ++j) target[i * n + j] = source[i + j * stride];
}

template <class C>
void transpose_rows_base(const C* source, int64_t stride, int64_t k, C* target) {
  constexpr int64_t n = GemmKernels<C>::rows;
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < n; ++j) target[i * n + j] = source[i + j * stride];
}

#if GRADUS_HAS_V3
#define GRADUS_V3 gnu::target("arch=x86-64-v3")

template <class C>
struct Vector;

template <>
struct Vector<float> {
  using Type = __m256;
  static constexpr int64_t lanes = 8;
  [[GRADUS_V3, gnu::always_inline]] static Type zero() { return _mm256_setzero_ps(); }
  [[GRADUS_V3, gnu::always_inline]] static Type all(const float* p) {
    return _mm256_broadcast_ss(p);
  }
  [[GRADUS_V3, gnu::always_inline]] static Type load(const float* p) { return _mm256_loadu_ps(p); }
  [[GRADUS_V3, gnu::always_inline]] static void store(float* p, Type v) { _mm256_storeu_ps(p, v); }
  [[GRADUS_V3, gnu::always_inline]] static __m256i mask(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  [[GRADUS_V3, gnu::always_inline]] static Type load(const float* p, __m256i m) {
    return _mm256_maskload_ps(p, m);
  }
  // The first n lanes. A masked store takes ten cycles on Zen 3.
  [[GRADUS_V3, gnu::always_inline]] static void store(float* p, int64_t n, Type v) {
    if (n >= lanes) return store(p, v);
    if (n <= 0) return;
    __m128 part = _mm256_castps256_ps128(v);
    if (n & 4) {
      _mm_storeu_ps(p, part);
      part = _mm256_extractf128_ps(v, 1);
      p += 4;
    }
    if (n & 2) {
      _mm_storel_pi(reinterpret_cast<__m64*>(p), part);
      part = _mm_movehl_ps(part, part);
      p += 2;
    }
    if (n & 1) _mm_store_ss(p, part);
  }
  [[GRADUS_V3, gnu::always_inline]] static Type fma(Type a, Type b, Type c) {
    return _mm256_fmadd_ps(a, b, c);
  }
  [[GRADUS_V3, gnu::always_inline]] static Type add(Type a, Type b) { return _mm256_add_ps(a, b); }
  // target[i * step + j] = source[i + j * stride], a square of `lanes`, i ascending.
  [[GRADUS_V3, gnu::always_inline]] static void transpose(const float* source, int64_t stride,
                                                          float* target, int64_t step) {
    Type r[8], t[8];
    for (int64_t j = 0; j < 8; ++j) r[j] = load(source + j * stride);
    for (int64_t j = 0; j < 8; j += 2) {
      t[j] = _mm256_unpacklo_ps(r[j], r[j + 1]);
      t[j + 1] = _mm256_unpackhi_ps(r[j], r[j + 1]);
    }
    for (int64_t h = 0; h < 8; h += 4) {
      r[h] = _mm256_shuffle_ps(t[h], t[h + 2], 0x44);
      r[h + 1] = _mm256_shuffle_ps(t[h], t[h + 2], 0xee);
      r[h + 2] = _mm256_shuffle_ps(t[h + 1], t[h + 3], 0x44);
      r[h + 3] = _mm256_shuffle_ps(t[h + 1], t[h + 3], 0xee);
    }
    for (int64_t i = 0; i < 4; ++i)
      store(target + i * step, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    for (int64_t i = 0; i < 4; ++i)
      store(target + (i + 4) * step, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
};

template <>
struct Vector<double> {
  using Type = __m256d;
  static constexpr int64_t lanes = 4;
  [[GRADUS_V3, gnu::always_inline]] static Type zero() { return _mm256_setzero_pd(); }
  [[GRADUS_V3, gnu::always_inline]] static Type all(const double* p) {
    return _mm256_broadcast_sd(p);
  }
  [[GRADUS_V3, gnu::always_inline]] static Type load(const double* p) { return _mm256_loadu_pd(p); }
  [[GRADUS_V3, gnu::always_inline]] static void store(double* p, Type v) { _mm256_storeu_pd(p, v); }
  [[GRADUS_V3, gnu::always_inline]] static __m256i mask(int64_t n) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
  }
  [[GRADUS_V3, gnu::always_inline]] static Type load(const double* p, __m256i m) {
    return _mm256_maskload_pd(p, m);
  }
  [[GRADUS_V3, gnu::always_inline]] static void store(double* p, int64_t n, Type v) {
    if (n >= lanes) return store(p, v);
    if (n <= 0) return;
    __m128d part = _mm256_castpd256_pd128(v);
    if (n & 2) {
      _mm_storeu_pd(p, part);
      part = _mm256_extractf128_pd(v, 1);
      p += 2;
    }
    if (n & 1) _mm_store_sd(p, part);
  }
  [[GRADUS_V3, gnu::always_inline]] static Type fma(Type a, Type b, Type c) {
    return _mm256_fmadd_pd(a, b, c);
  }
  [[GRADUS_V3, gnu::always_inline]] static Type add(Type a, Type b) { return _mm256_add_pd(a, b); }
  [[GRADUS_V3, gnu::always_inline]] static void transpose(const double* source, int64_t stride,
                                                          double* target, int64_t step) {
    Type r0 = load(source), r1 = load(source + stride), r2 = load(source + 2 * stride),
         r3 = load(source + 3 * stride);
    Type t0 = _mm256_unpacklo_pd(r0, r1), t1 = _mm256_unpackhi_pd(r0, r1),
         t2 = _mm256_unpacklo_pd(r2, r3), t3 = _mm256_unpackhi_pd(r2, r3);
    store(target, _mm256_permute2f128_pd(t0, t2, 0x20));
    store(target + step, _mm256_permute2f128_pd(t1, t3, 0x20));
    store(target + 2 * step, _mm256_permute2f128_pd(t0, t2, 0x31));
    store(target + 3 * step, _mm256_permute2f128_pd(t1, t3, 0x31));
  }
};

// What is read at strides, or else at offsets: b's rows, or a's elements.
enum class Access : uint8_t { even, b_rows, a_elements };

// A tile of R rows and V vectors of columns, the last ones masked.
template <class C, int R, int V, bool masked, Access access>
[[GRADUS_V3]] void tile_v3(const GemmTile<C>& t) {
  using X = Vector<C>;
  using Type = typename X::Type;
  Type acc[R][V];
  __m256i mask[V];
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) {
    if constexpr (masked) mask[v] = X::mask(t.columns - v * X::lanes);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) acc[i][v] = X::zero();
  }
  int64_t row_at[R] = {};
  if constexpr (access == Access::a_elements) std::copy_n(t.a_rows, R, row_at);
  // Locals: a store to c could change t, as far as the compiler knows.
  const C *a = t.a, *b = t.b;
  C* const c = t.c;
  const int64_t a_row = t.a_row, a_column = t.a_column, b_row = t.b_row, c_row = t.c_row, n = t.k;
  const int64_t columns = t.columns;
  // What is written at the end comes from memory while the loop runs.
  if constexpr (R > 1)
    for (int i = 0; i < R; ++i)
      _mm_prefetch(reinterpret_cast<const char*>(c + i * c_row), _MM_HINT_T0);
#pragma GCC unroll 4
  for (int64_t k = 0; k < n; ++k) {
    if constexpr (access == Access::b_rows) b = t.b + t.b_rows[k];
    if constexpr (access == Access::a_elements) a = t.a + t.a_columns[k];
    Type row[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      if constexpr (masked)
        row[v] = X::load(b + v * X::lanes, mask[v]);
      else
        row[v] = X::load(b + v * X::lanes);
    }
    // One row reads b once, by rows that access far apart.
    if constexpr (R == 1 && V == 8 && access == Access::even)
      for (int v = 0; v < V; v += 64 / static_cast<int>(sizeof(Type)))
        _mm_prefetch(reinterpret_cast<const char*>(b + 8 * b_row + v * X::lanes), _MM_HINT_T0);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
      Type x = X::all(a + (access == Access::a_elements ? row_at[i] : i * a_row));
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) acc[i][v] = X::fma(x, row[v], acc[i][v]);
    }
    if constexpr (access != Access::a_elements) a += a_column;
    if constexpr (access != Access::b_rows) b += b_row;
  }
  if (!t.first) {
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        const C* from = c + i * c_row + v * X::lanes;
        if constexpr (masked)
          acc[i][v] = X::add(X::load(from, mask[v]), acc[i][v]);
        else
          acc[i][v] = X::add(X::load(from), acc[i][v]);
      }
  }
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      C* to = c + i * c_row + v * X::lanes;
      if constexpr (masked)
        X::store(to, columns - v * X::lanes, acc[i][v]);
      else
        X::store(to, acc[i][v]);
    }
}

template <class C, int V, bool masked, Access access>
void tile_by_rows(const GemmTile<C>& t) {
  switch (t.rows) {
    case 1:
      return tile_v3<C, 1, V, masked, access>(t);
    case 2:
      return tile_v3<C, 2, V, masked, access>(t);
    case 3:
      return tile_v3<C, 3, V, masked, access>(t);
    case 4:
      return tile_v3<C, 4, V, masked, access>(t);
    case 5:
      return tile_v3<C, 5, V, masked, access>(t);
    default:
      return tile_v3<C, 6, V, masked, access>(t);
  }
}

template <class C, Access access>
void tile_by_columns(const GemmTile<C>& t) {
  constexpr int64_t columns = GemmKernels<C>::columns;
  if (t.columns > 2 * columns)
    return t.columns == GemmKernels<C>::wide ? tile_v3<C, 1, 8, false, access>(t)
                                             : tile_v3<C, 1, 8, true, access>(t);
  if (t.columns > columns)
    return t.columns == 2 * columns ? tile_v3<C, 1, 4, false, access>(t)
                                    : tile_v3<C, 1, 4, true, access>(t);
  if (t.columns == columns)
    tile_by_rows<C, 2, false, access>(t);
  else if (t.columns > Vector<C>::lanes)
    tile_by_rows<C, 2, true, access>(t);
  else
    tile_by_rows<C, 1, true, access>(t);
}

template <class C>
void tile_any(const GemmTile<C>& t) {
  if (t.b_rows) return tile_by_columns<C, Access::b_rows>(t);
  if (t.a_rows) return tile_by_columns<C, Access::a_elements>(t);
  tile_by_columns<C, Access::even>(t);
}

#define GRADUS_V4 gnu::target("arch=x86-64-v4")

template <class C>
struct Vector512;

template <>
struct Vector512<float> {
  using Type = __m512;
  [[GRADUS_V4, gnu::always_inline]] static Type zero() { return _mm512_setzero_ps(); }
  [[GRADUS_V4, gnu::always_inline]] static Type all(float x) { return _mm512_set1_ps(x); }
  [[GRADUS_V4, gnu::always_inline]] static Type load(const float* p) { return _mm512_loadu_ps(p); }
  [[GRADUS_V4, gnu::always_inline]] static void store(float* p, Type v) { _mm512_storeu_ps(p, v); }
  using Mask = __mmask16;
  [[GRADUS_V4, gnu::always_inline]] static Type load(const float* p, Mask m) {
    return _mm512_maskz_loadu_ps(m, p);
  }
  [[GRADUS_V4, gnu::always_inline]] static void store(float* p, Mask m, Type v) {
    _mm512_mask_storeu_ps(p, m, v);
  }
  [[GRADUS_V4, gnu::always_inline]] static Type fma(Type a, Type b, Type c) {
    return _mm512_fmadd_ps(a, b, c);
  }
  [[GRADUS_V4, gnu::always_inline]] static Type add(Type a, Type b) { return _mm512_add_ps(a, b); }
};

template <>
struct Vector512<double> {
  using Type = __m512d;
  [[GRADUS_V4, gnu::always_inline]] static Type zero() { return _mm512_setzero_pd(); }
  [[GRADUS_V4, gnu::always_inline]] static Type all(double x) { return _mm512_set1_pd(x); }
  [[GRADUS_V4, gnu::always_inline]] static Type load(const double* p) { return _mm512_loadu_pd(p); }
  [[GRADUS_V4, gnu::always_inline]] static void store(double* p, Type v) { _mm512_storeu_pd(p, v); }
  using Mask = __mmask8;
  [[GRADUS_V4, gnu::always_inline]] static Type load(const double* p, Mask m) {
    return _mm512_maskz_loadu_pd(m, p);
  }
  [[GRADUS_V4, gnu::always_inline]] static void store(double* p, Mask m, Type v) {
    _mm512_mask_storeu_pd(p, m, v);
  }
  [[GRADUS_V4, gnu::always_inline]] static Type fma(Type a, Type b, Type c) {
    return _mm512_fmadd_pd(a, b, c);
  }
  [[GRADUS_V4, gnu::always_inline]] static Type add(Type a, Type b) { return _mm512_add_pd(a, b); }
};

// One row of V vectors of columns, of operands at strides.
template <class C, int V>
[[GRADUS_V4]] void row_v4(const GemmTile<C>& t) {
  using X = Vector512<C>;
  constexpr int lanes = 64 / sizeof(C);
  typename X::Type acc[V];
#pragma GCC unroll 16
  for (int v = 0; v < V; ++v) acc[v] = X::zero();
  const C *a = t.a, *b = t.b;
  for (int64_t k = 0; k < t.k; ++k, a += t.a_column, b += t.b_row) {
    const typename X::Type x = X::all(*a);
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) acc[v] = X::fma(x, X::load(b + v * lanes), acc[v]);
  }
#pragma GCC unroll 16
  for (int v = 0; v < V; ++v) {
    C* c = t.c + v * lanes;
    X::store(c, t.first ? acc[v] : X::add(X::load(c), acc[v]));
  }
}

// A tile of R rows and two vectors of columns, the second one masked, of operands at strides.
template <class C, int R>
[[GRADUS_V4]] void rows_v4(const GemmTile<C>& t) {
  using X = Vector512<C>;
  constexpr int lanes = 64 / sizeof(C);
  const auto mask = static_cast<typename X::Mask>((1U << (t.columns - lanes)) - 1);
  typename X::Type acc[R][2];
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i) acc[i][0] = acc[i][1] = X::zero();
  const C *a = t.a, *b = t.b;
  const int64_t a_row = t.a_row, a_column = t.a_column, b_row = t.b_row;
  for (int64_t k = 0; k < t.k; ++k, a += a_column, b += b_row) {
    const typename X::Type first = X::load(b), second = X::load(b + lanes, mask);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
      const typename X::Type x = X::all(a[i * a_row]);
      acc[i][0] = X::fma(x, first, acc[i][0]);
      acc[i][1] = X::fma(x, second, acc[i][1]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i) {
    C* c = t.c + i * t.c_row;
    X::store(c, t.first ? acc[i][0] : X::add(X::load(c), acc[i][0]));
    X::store(c + lanes, mask, t.first ? acc[i][1] : X::add(X::load(c + lanes, mask), acc[i][1]));
  }
}

template <class C>
void rows_v4(const GemmTile<C>& t) {
  switch (t.rows) {
    case 2:
      return rows_v4<C, 2>(t);
    case 3:
      return rows_v4<C, 3>(t);
    case 4:
      return rows_v4<C, 4>(t);
    case 5:
      return rows_v4<C, 5>(t);
    default:
      return rows_v4<C, 6>(t);
  }
}

// A wider row reads more of each row of b at once, which the processor fetches twice as fast from
// its second cache.
template <class C>
void tile_v4(const GemmTile<C>& whole) {
  constexpr int64_t wide = GemmKernels<C>::wide;
  if (whole.rows > 1 && whole.columns > GemmKernels<C>::columns) return rows_v4(whole);
  if (whole.columns <= wide) return tile_any(whole);
  if (whole.columns == GemmKernels<C>::widest) return row_v4<C, 16>(whole);
  GemmTile<C> t = whole;
  for (int64_t j = 0; j < whole.columns; j += t.columns) {
    t.columns = std::min(whole.columns - j, 2 * wide);
    t.b = whole.b + j;
    t.c = whole.c + j;
    if (t.columns == 2 * wide) {
      row_v4<C, 8>(t);
    } else {
      t.columns = std::min(t.columns, wide);
      tile_any(t);
    }
  }
}

template <class C>
[[GRADUS_V3]] void transpose_v3(const C* source, int64_t stride, int64_t k, C* target) {
  using X = Vector<C>;
  constexpr int64_t n = GemmKernels<C>::columns;
  int64_t i = 0;
  for (; i + X::lanes <= k; i += X::lanes)
    for (int64_t j = 0; j < n; j += X::lanes)
      X::transpose(source + i + j * stride, stride, target + i * n + j, n);
  for (; i < k; ++i)
    for (int64_t j = 0; j < n; ++j) target[i * n + j] = source[i + j * stride];
}

// Squares of eight rows: what the last two of them write beside a panel's six, the next k's rows
// overwrite. So a panel's last k are copied one by one, and its last rows come first.
template <class C>
[[GRADUS_V3]] void transpose_rows_v3(const C* source, int64_t stride, int64_t k, C* target) {
  using X = Vector<C>;
  using K = GemmKernels<C>;
  int64_t i = 0;
  for (; i + X::lanes < k; i += X::lanes)
    for (int64_t j = K::read_rows - X::lanes; j >= 0; j -= X::lanes)
      X::transpose(source + i + j * stride, stride, target + i * K::rows + j, K::rows);
  transpose_rows_base(source + i, stride, k - i, target + i * K::rows);
}
#endif

}  // namespace

template <class C>
const GemmKernels<C>& gemm_kernels([[maybe_unused]] CpuLevel level) {
  using K = GemmKernels<C>;
  static constexpr K base{K::wide, K::columns, tile_base<C>, transpose_base<C>,
                          transpose_rows_base<C>};
#if GRADUS_HAS_V3
  if constexpr (!std::is_integral_v<C>) {
    static constexpr K v3{K::wide, K::columns, tile_any<C>, transpose_v3<C>, transpose_rows_v3<C>};
    static constexpr K v4{K::widest, 2 * K::columns, tile_v4<C>, transpose_v3<C>,
                          transpose_rows_v3<C>};
    if (level != CpuLevel::base) return level == CpuLevel::v4 ? v4 : v3;
  }
#endif
  return base;
}

template const GemmKernels<double>& gemm_kernels<double>(CpuLevel);
template const GemmKernels<float>& gemm_kernels<float>(CpuLevel);
template const GemmKernels<int64_t>& gemm_kernels<int64_t>(CpuLevel);

}  // namespace gradus::kernels
