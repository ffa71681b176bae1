#include "kernels/gemm.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/slots.h"
#include "gradus/convert.h"
#include "gradus/isa.h"
#include "kernels/gemm_kernel.h"

namespace gradus::kernels {

namespace {

constexpr int64_t block_rows = 96;          // of `a`, packed at a time
constexpr int64_t item_rows = 192;          // of the result, where it is accumulated beside it
constexpr int64_t block_bytes = 1 << 20;    // of `b`, packed at a time
constexpr int64_t parallel_work = 1 << 20;  // products below this are not split over workers

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
int64_t parts_of(int64_t n, int64_t each) { return (n + each - 1) / each; }
int64_t aligned(int64_t bytes) { return round_up(bytes, 64); }

int64_t batch_count(const Gemm& g) {
  int64_t count = 1;
  for (const Gemm::Batch& b : g.batch) count *= b.size;
  return count;
}

bool worth_splitting(const Gemm& g, int64_t batch) {
  // In floating point: the product may not fit an integer.
  return static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k) *
             static_cast<double>(batch) >=
         parallel_work;
}

// How a product of this shape is worked on; decides speed and scratch memory, never bits.
template <class T, class C>
struct Blocking {
  static constexpr bool converts = !std::is_same_v<T, C>;  // accumulated beside the result
  using K = GemmKernels<C>;

  explicit Blocking(const Gemm& g) {
    k = std::min(g.k, gemm_block);
    columns = std::min(round_up(g.n, K::columns),
                       block_bytes / (gemm_block * static_cast<int64_t>(sizeof(C))));
    const int64_t widest = gemm_kernels<C>(cpu_level()).tile_columns;
    // A b that few rows read is read where it lies, and a small one where tiles are wider than
    // panels are, or as wide as it is.
    const bool small = g.k * g.n * size() <= (128 << 10);
    const bool stays = small && (widest > K::columns || g.n <= widest);
    pack_b = converts || g.b_column != 1 || (!stays && g.m > (small ? 8 : 2) * K::rows);
    // Few columns are one panel, unless packing is most of the work: wide ones have no fast loop.
    panel = g.n <= widest && g.k * g.n <= 4096 ? widest : K::columns;
    // Rows that lie apart take a tile longer to read than to pack once for many columns.
    const bool reread = g.a_column != 1 || (g.n >= 128 && g.m > K::rows);
    pack_a = converts || (g.m * g.k > 4096 && reread);
    a_bytes = pack_a ? aligned(round_up(std::min(g.m, block_rows), K::rows) * k * size()) : 0;
    b_bytes = pack_b ? aligned(round_up(columns, panel) * k * size()) : 0;
    c_bytes = converts ? aligned(std::min(g.m, item_rows) * columns * size()) : 0;
  }
  static constexpr int64_t size() { return static_cast<int64_t>(sizeof(C)); }
  int64_t bytes() const { return a_bytes + b_bytes + c_bytes; }

  // Rows and columns of an item. There are `parts` items, or what tiles allow near that; workers
  // pack and read least of what others do as well.
  std::pair<int64_t, int64_t> cut(const Gemm& g, int64_t parts) const {
    constexpr double packing = 4;  // as long as reading so often
    const double price_a = pack_a ? packing : 1, price_b = pack_b ? packing : 1;
    int64_t best_items = 0;
    double best_cost = 0;
    std::pair<int64_t, int64_t> best;
    for (int64_t across = parts_of(g.n, columns);; across *= 2) {
      const int64_t each = std::min(columns, round_up(parts_of(g.n, across), panel));
      const int64_t items_across = parts_of(g.n, each), down = parts_of(parts, items_across);
      const int64_t rows = down == 1 ? g.m : round_up(parts_of(g.m, down), K::rows);
      const int64_t items_down = parts_of(g.m, rows);
      const int64_t items = std::min(parts, items_across * items_down);
      const double cost = price_a * static_cast<double>(items_across) * static_cast<double>(g.m) +
                          price_b * static_cast<double>(items_down) * static_cast<double>(g.n);
      if (items > best_items || (items == best_items && cost < best_cost)) {
        best = {rows, each};
        best_items = items;
        best_cost = cost;
      }
      if (across >= parts || each <= panel) return best;
    }
  }
  int64_t most_items(const Gemm& g) const {
    return batch_count(g) * parts_of(g.m, K::rows) * parts_of(g.n, panel);
  }

  int64_t k, columns;
  int64_t panel;  // columns of one that is packed
  bool pack_a, pack_b;
  int64_t a_bytes, b_bytes, c_bytes;
};

// `rows` rows of a, of the `left` that there are from there on: panels of K::rows rows, k by k.
template <class T, class C>
void pack_rows(const Gemm& g, const GemmKernels<C>& kernels, const T* a, int64_t rows, int64_t left,
               int64_t k, C* target) {
  using K = GemmKernels<C>;
  constexpr int64_t step = K::rows;
  for (int64_t i = 0; i < rows; i += step, target += step * k) {
    int64_t n = std::min(step, rows - i);
    if constexpr (std::is_same_v<T, C>) {
      const C* from = a + i * g.a_row;
      if (g.a_column == 1 && i + K::read_rows <= left) {
        kernels.transpose_rows(from, g.a_row, k, target);
        continue;
      }
      if (g.a_row == 1 && n == step) {
        for (int64_t p = 0; p < k; ++p)
          std::memcpy(target + p * step, from + p * g.a_column, step * sizeof(C));
        continue;
      }
    }
    for (int64_t p = 0; p < k; ++p)
      for (int64_t r = 0; r < n; ++r)
        target[p * step + r] = convert<C>(a[(i + r) * g.a_row + p * g.a_column]);
  }
}

// Whole panels of `step` columns that are neighbours in b: some rows of b at a time, each read from
// its start to its end.
template <class C>
void pack_whole_panels(const C* b, int64_t b_row, int64_t panels, int64_t k, C* target,
                       int64_t step) {
  constexpr int64_t rows = 8, piece = GemmKernels<C>::columns;
  for (int64_t p = 0; p < k; p += rows)
    for (int64_t j = 0; j < panels; ++j)
      for (int64_t r = p; r < std::min(p + rows, k); ++r)
        for (int64_t c = 0; c < step; c += piece)
          std::memcpy(target + (j * k + r) * step + c, b + r * b_row + j * step + c,
                      piece * sizeof(C));
}

// Columns of b: panels of `step` columns, k by k; missing columns are left as they are, tiles
// do not write what comes of them.
template <class T, class C>
void pack_columns(const Gemm& g, const GemmKernels<C>& kernels, const T* b, int64_t columns,
                  int64_t k, C* target, int64_t step) {
  int64_t j = 0;
  if constexpr (std::is_same_v<T, C>)
    if (g.b_column == 1) {
      pack_whole_panels(b, g.b_row, columns / step, k, target, step);
      j = columns / step * step;
    }
  target += j * k;
  b += j * g.b_column;
  for (; j < columns; j += step, target += step * k, b += step * g.b_column) {
    int64_t n = std::min(step, columns - j);
    if constexpr (std::is_same_v<T, C>)
      if (n == GemmKernels<C>::columns && n == step && g.b_row == 1) {
        kernels.transpose(b, g.b_column, k, target);
        continue;
      }
    for (int64_t p = 0; p < k; ++p)
      for (int64_t c = 0; c < n; ++c)
        target[p * step + c] = convert<C>(b[p * g.b_row + c * g.b_column]);
  }
}

// A part of one matrix of the result.
template <class T, class C>
struct Item {
  const T *a, *b;
  T* c;
  int64_t row, rows, column, columns;
};

// One block over k of an item's rows [row, row + rows): tile by tile. `panel`: the columns of b's
// panels; 0: b is not packed.
template <class T, class C>
void multiply_block(const Gemm& g, const GemmKernels<C>& kernels, GemmTile<C> t, int64_t rows,
                    int64_t columns, bool packed_a, int64_t panel) {
  using K = GemmKernels<C>;
  const GemmTile<C> first = t;
  const bool packed_b = panel != 0;
  const int64_t width = packed_b ? panel : rows == 1 ? kernels.row_columns : kernels.tile_columns;
  for (int64_t j = 0; j < columns; j += width) {
    t.columns = std::min(width, columns - j);
    t.b = first.b + (packed_b ? j * t.k : j);
    for (int64_t i = 0; i < rows; i += K::rows) {
      t.rows = std::min(K::rows, rows - i);
      t.a = first.a + i * (packed_a ? t.k : g.a_row);
      t.c = first.c + i * t.c_row + j;
      kernels.tile(t);
    }
  }
}

template <class T, class C>
void multiply(const Gemm& g, const Blocking<T, C>& blocking, const Item<T, C>& item,
              std::byte* scratch) {
  using K = GemmKernels<C>;
  const K& kernels = gemm_kernels<C>(cpu_level());
  C* a_panels = reinterpret_cast<C*>(scratch);
  C* b_panels = reinterpret_cast<C*>(scratch + blocking.a_bytes);
  GemmTile<C> t;
  if constexpr (Blocking<T, C>::converts) {
    t.c = reinterpret_cast<C*>(scratch + blocking.a_bytes + blocking.b_bytes);
    t.c_row = item.columns;
  } else {
    t.c = item.c + item.row * g.n + item.column;
    t.c_row = g.n;
  }
  C* const c = t.c;
  for (int64_t k0 = 0; k0 < g.k; k0 += gemm_block) {
    t.k = std::min(gemm_block, g.k - k0);
    t.first = k0 == 0;
    const T* b = item.b + k0 * g.b_row + item.column * g.b_column;
    if (blocking.pack_b) {
      pack_columns(g, kernels, b, item.columns, t.k, b_panels, blocking.panel);
      t.b = b_panels;
      t.b_row = blocking.panel;
    }
    for (int64_t i = 0; i < item.rows; i += block_rows) {
      const int64_t rows = std::min(block_rows, item.rows - i);
      const T* a = item.a + (item.row + i) * g.a_row + k0 * g.a_column;
      if (blocking.pack_a) pack_rows(g, kernels, a, rows, g.m - item.row - i, t.k, a_panels);
      if constexpr (!Blocking<T, C>::converts) {
        if (!blocking.pack_b) {
          t.b = b;
          t.b_row = g.b_row;
        }
        t.a = a;
        t.a_row = g.a_row;
        t.a_column = g.a_column;
      }
      if (blocking.pack_a) {
        t.a = a_panels;
        t.a_row = 1;
        t.a_column = K::rows;
      }
      t.c = c + i * t.c_row;
      multiply_block<T, C>(g, kernels, t, rows, item.columns, blocking.pack_a,
                           blocking.pack_b ? blocking.panel : 0);
    }
  }
  if constexpr (Blocking<T, C>::converts)
    for (int64_t i = 0; i < item.rows; ++i)
      for (int64_t j = 0; j < item.columns; ++j)
        item.c[(item.row + i) * g.n + item.column + j] = convert<T>(c[i * t.c_row + j]);
}

// How the result is cut into items.
struct Cut {
  bool split;  // over workers
  int64_t rows_each, columns_each;
  int64_t rows, columns, items;
};
template <class T, class C>
Cut cut_of(const Gemm& g, const Blocking<T, C>& blocking, int workers) {
  const int64_t batch = batch_count(g);
  Cut c{};
  c.split = workers > 1 && worth_splitting(g, batch);
  std::tie(c.rows_each, c.columns_each) =
      blocking.cut(g, c.split ? parts_of(2 * int64_t{workers}, batch) : 1);
  if (Blocking<T, C>::converts) c.rows_each = std::min(c.rows_each, item_rows);
  c.rows = parts_of(g.m, c.rows_each);
  c.columns = parts_of(g.n, c.columns_each);
  c.items = batch * c.rows * c.columns;
  return c;
}

template <class T, class C>
void run(const Gemm& g, const T* a, const T* b, T* c, std::byte* scratch, WorkerPool& workers) {
  const Blocking<T, C> blocking(g);
  const auto [split, rows_each, columns_each, rows, columns, items] =
      cut_of(g, blocking, workers.workers());
  auto work = [&](int64_t i, std::byte* own) {
    int64_t column = i % columns, row = i / columns % rows, entry = i / columns / rows;
    Item<T, C> item{a, b, c + entry * g.m * g.n, row * rows_each, 0, column * columns_each, 0};
    item.rows = std::min(rows_each, g.m - item.row);
    item.columns = std::min(columns_each, g.n - item.column);
    for (size_t d = g.batch.size(); d-- > 0;) {
      item.a += entry % g.batch[d].size * g.batch[d].a_stride;
      item.b += entry % g.batch[d].size * g.batch[d].b_stride;
      entry /= g.batch[d].size;
    }
    multiply(g, blocking, item, own);
  };
  if (!split) {
    for (int64_t i = 0; i < items; ++i) work(i, scratch);
    return;
  }
  run_in_slots(workers, items,
               [&](int64_t i, int64_t slot) { work(i, scratch + slot * blocking.bytes()); });
}

template <class F>
void visit(DType dtype, F f) {
  visit_signed(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = std::conditional_t<std::is_integral_v<T>, int64_t,
                                 std::conditional_t<std::is_same_v<T, double>, double, float>>;
    if constexpr (!std::is_same_v<T, bool>) f(TypeTag<T>{}, TypeTag<C>{});
  });
}

}  // namespace

size_t gemm_scratch_bytes(const Gemm& product, bool split) {
  const Gemm g = with_wide_result(product);
  int64_t bytes = 0;
  if (g.m == 0 || g.n == 0 || g.k == 0) return 0;
  visit(g.dtype, [&](auto t, auto c) {
    const Blocking<typename decltype(t)::type, typename decltype(c)::type> blocking(g);
    bytes = blocking.bytes();
    if (split && worth_splitting(g, batch_count(g)))
      bytes *= std::min<int64_t>(most_slots(), blocking.most_items(g));
  });
  return static_cast<size_t>(bytes);
}

int64_t gemm_items(const Gemm& product, int workers) {
  const Gemm g = with_wide_result(product);
  int64_t items = 0;
  if (g.m == 0 || g.n == 0 || g.k == 0) return 0;
  visit(g.dtype, [&](auto t, auto c) {
    const Blocking<typename decltype(t)::type, typename decltype(c)::type> blocking(g);
    items = cut_of(g, blocking, workers).items;
  });
  return items;
}

void gemm(const Gemm& product, const std::byte* a, const std::byte* b, std::byte* c,
          std::byte* scratch, WorkerPool& workers) {
  const bool swaps = product.n == 1 && product.m != 1;
  const Gemm g = swaps ? with_wide_result(product) : product;
  if (swaps) std::swap(a, b);
  const int64_t elements = batch_count(g) * g.m * g.n;
  if (elements == 0) return;
  if (g.k == 0) {
    std::memset(c, 0, static_cast<size_t>(elements) * size_of(g.dtype));
    return;
  }
  visit(g.dtype, [&](auto t, auto compute) {
    using T = typename decltype(t)::type;
    run<T, typename decltype(compute)::type>(g, reinterpret_cast<const T*>(a),
                                             reinterpret_cast<const T*>(b), reinterpret_cast<T*>(c),
                                             scratch, workers);
  });
}

}  // namespace gradus::kernels
