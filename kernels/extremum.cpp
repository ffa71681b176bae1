#include <algorithm>

#include "gradus/isa.h"
#include "kernels/cursor.h"
#include "kernels/make.h"
#include "kernels/reduce_loops.h"
#include "kernels/tiles.h"

namespace gradus::kernels {

namespace {

constexpr int64_t width_limit = 128;        // outputs worked on together, by columns
constexpr int64_t task_elements = 1 << 15;  // what one worker takes at a time, about

// best[t], at[t] = the better of them and of row r's x[t]. Ties and a NaN that is there stay.
using ColumnLoop = void (*)(const void* x, int64_t r, int64_t n, void* best, int64_t* at);

struct Plan : Extremum {
  const ReduceLoops* loops = nullptr;
  ColumnLoop column = nullptr;
  DType tile_dtype = DType::f32;
  bool by_columns = false;
};

template <class T>
[[gnu::always_inline]] inline bool better(bool greatest, T a, T b) {
  return (greatest ? a > b : a < b) | ((a != a) & (b == b));
}

template <class T, bool greatest>
[[gnu::always_inline]] inline void column(const void* x, int64_t r, int64_t n, void* best,
                                          int64_t* __restrict at) {
  const T* __restrict s = static_cast<const T*>(x);
  T* __restrict b = static_cast<T*>(best);
  for (int64_t t = 0; t < n; ++t) {
    bool take = better(greatest, s[t], b[t]);
    b[t] = take ? s[t] : b[t];
    at[t] = take ? r : at[t];
  }
}
template <class T>
ColumnLoop choose_column(bool greatest) {
  return greatest ? Levels<column<T, true>>::best() : Levels<column<T, false>>::best();
}

const std::byte* element(const Plan& p, const std::byte* x, int64_t offset) {
  return x + offset * static_cast<int64_t>(size_of(p.dtype));
}

void store(const Plan& p, std::byte* const* args, int64_t first, int64_t n, const void* best,
           const int64_t* at) {
  std::copy_n(at, n, reinterpret_cast<int64_t*>(args[1 + p.index]) + first);
  if (p.value >= 0)
    store_tile(p.tile_dtype, p.dtype, best, n,
               args[1 + p.value] + first * static_cast<int64_t>(size_of(p.dtype)));
}

// One output: chunk by chunk, each searched only if its extremum is better.
template <class T>
void reduce_row(const Plan& p, const std::byte* x, T& best, int64_t& at) {
  T buffer[reduce_chunk];
  Cursor cursor(p.reduced, 0);
  for (int64_t r = 0; r < p.count;) {
    int64_t n = std::min({reduce_chunk, p.count - r, cursor.run()});
    const T* chunk = buffer;
    if (p.dtype == p.tile_dtype && p.reduced.back().stride == 1)
      chunk = reinterpret_cast<const T*>(element(p, x, cursor.offset()));
    else
      load_tile(p.dtype, p.tile_dtype, element(p, x, cursor.offset()), p.reduced.back().stride, n,
                buffer);
    T extremum;
    p.loops->rows(chunk, 0, 1, n, &extremum);
    if (r == 0 || better(p.greatest, extremum, best)) {
      int64_t i = 0;
      while (extremum == extremum ? chunk[i] != extremum : chunk[i] == chunk[i]) ++i;
      best = chunk[i];
      at = r + i;
      if (best != best) return;
    }
    cursor.advance(n);
    r += n;
  }
}

template <class T>
void reduce_columns(const Plan& p, const std::byte* x, int64_t width, T* best, int64_t* at) {
  T buffer[width_limit];
  Cursor cursor(p.reduced, 0);
  const int64_t step = p.kept.back().stride;
  const bool direct = p.dtype == p.tile_dtype && step == 1;
  for (int64_t r = 0; r < p.count; ++r) {
    const std::byte* row = element(p, x, cursor.offset());
    if (!direct || r == 0)
      load_tile(p.dtype, p.tile_dtype, row, step, width, r == 0 ? best : buffer);
    if (r == 0)
      std::fill_n(at, width, 0);
    else
      p.column(direct ? row : reinterpret_cast<const std::byte*>(buffer), r, width, best, at);
    cursor.advance(1);
  }
}

template <class T>
void run(const Plan& p, std::byte* const* args, KernelScope& scope) {
  const int64_t inner = p.by_columns ? p.kept.back().size : 1;
  const int64_t tile = std::min(inner, width_limit), tiles = (inner + tile - 1) / tile;
  const int64_t units = p.outputs / inner * tiles;
  const int64_t batch = std::max<int64_t>(1, task_elements / (p.count * tile));
  scope.workers.parallel_parts(units, batch, [&](int64_t first, int64_t last) {
    T best[width_limit];
    int64_t at[width_limit];
    for (int64_t u = first; u < last; ++u) {
      int64_t within = u % tiles * tile, output = u / tiles * inner + within;
      int64_t width = std::min(tile, inner - within);
      const std::byte* x = element(p, args[0], Cursor(p.kept, output).offset());
      if (p.by_columns)
        reduce_columns(p, x, width, best, at);
      else
        reduce_row(p, x, best[0], at[0]);
      store(p, args, output, width, best, at);
    }
  });
}

}  // namespace

Kernel make_kernel(const Extremum& w) {
  if (w.outputs == 0) return {};
  Plan p{w};
  Compute compute = compute_of(w.dtype);
  p.loops = &reduce_loops(w.greatest ? Reducer::max : Reducer::min, compute);
  p.tile_dtype = dtype_of(compute);
  p.by_columns = p.kept.back().size > 1 && p.reduced.back().stride != 1 &&
                 p.kept.back().stride < p.reduced.back().stride;
  return visit_compute(compute, [&](auto tag) {
    using T = typename decltype(tag)::type;
    p.column = choose_column<T>(w.greatest);
    return Kernel::of<run<T>>(std::move(p));
  });
}

}  // namespace gradus::kernels
