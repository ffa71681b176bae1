#include "kernels/library_product.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/slots.h"
#include "kernels/libraries/onednn.h"
#include "kernels/libraries/openblas.h"

namespace gradus::kernels {

namespace {

// Tiles of so many rows and columns cost a library a few percent at most; smaller ones, more.
constexpr int64_t tile_rows = 256, tile_columns = 1024, narrow_columns = 512;
// Rows of a tile whose `a` is copied, in bytes: a copy of 256 KiB where k is 512.
constexpr int64_t strip_bytes = 512, most_copied_bytes = 4 << 20, prefetched_rows = 12;
constexpr double split_work = 1 << 23;    // what is not worth two workers
constexpr double entries_work = 1 << 22;  // of small matrices multiplied together, at least

// So many bytes in whole lines of a cache.
size_t whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

// The size of n's parts: an even number of them, of `most` or less where rounding allows.
int64_t part_of(int64_t n, int64_t most, int64_t round) {
  int64_t parts = (n + most - 1) / most;
  if (parts <= 1) return n;
  parts += parts % 2;
  return ((n + parts - 1) / parts + round - 1) / round * round;
}

// The library is at its best where the matrices of a tile have no gaps. Hence tiles of whole rows
// where b is transposed, and a copy of a tile's part of a transposed `a`, which the library would
// rearrange anyway.
struct Tiles {
  int64_t rows, columns;  // of each but the last ones
  bool copies = false;

  explicit Tiles(const Gemm& g) : rows(g.m), columns(g.n) {
    // In f64 one worker computes at a time: parts would only cost.
    if (work_of(g) < split_work || g.dtype == DType::f64) return;
    const int64_t strip = strip_bytes / static_cast<int64_t>(size_of(g.dtype));
    if (g.a_row == 1 && g.a_column >= g.m && g.m >= 2 * strip &&
        g.k <= most_copied_bytes / strip_bytes) {
      rows = part_of(g.m, strip, 16);
      copies = true;
    } else if (g.m >= 2 * tile_rows) {
      rows = part_of(g.m, tile_rows, 16);
      columns = part_of(g.n, tile_columns, 64);
    } else if (g.m >= tile_rows / 2 &&
               (g.dtype == DType::bf16 || (g.dtype == DType::f32 && g.b_column != 1))) {
      rows = part_of(g.m, g.m < tile_rows ? (g.m + 1) / 2 : tile_rows / 2, 16);
    } else if (g.n >= narrow_columns) {
      columns = part_of(g.n, g.n < 2 * narrow_columns ? (g.n + 1) / 2 : narrow_columns, 64);
    } else if (g.m >= tile_rows / 2) {
      rows = part_of(g.m, std::min(tile_rows / 2, (g.m + 1) / 2), 16);
    } else if (g.n >= narrow_columns / 2) {
      columns = part_of(g.n, (g.n + 1) / 2, 64);
    }
  }
};

// A product in tiles, or a batch of small ones in groups of entries. Tiles of the last row and
// column and the last group may be smaller: hence four kinds of them.
struct TiledProduct {
  Gemm g;
  int64_t rows = 0, columns = 0;                                // of a tile
  int64_t down = 0, across = 0, batch = 1;                      // tiles, and matrices
  int64_t entries = 1;                                          // matrices of an item
  std::array<std::shared_ptr<const onednn::Product>, 4> kinds;  // empty for f64
  bool copies = false;                                          // a tile's part of a, k by rows
  size_t copy_bytes = 0, slot_bytes = 0;

  int64_t groups() const { return (batch + entries - 1) / entries; }
  int64_t items() const { return groups() * down * across; }
  size_t kind_of(int64_t group, int64_t row, int64_t column) const {
    const bool last = entries > 1 ? group + 1 == groups() : row + 1 == down;
    return static_cast<size_t>(last * 2 + (column + 1 == across));
  }
};

openblas::Strides strides_a(const Gemm& g) { return {g.a_row, g.a_column}; }
openblas::Strides strides_b(const Gemm& g) { return {g.b_row, g.b_column}; }

// rows[i] = a[i], neighbours of `bytes` each that lie `stride` bytes apart. Fetches ahead: the
// processor does not foresee strides of pages.
void copy_strip(const std::byte* a, int64_t stride, int64_t rows, size_t bytes, std::byte* to) {
  for (int64_t i = 0; i < rows; ++i, a += stride, to += bytes) {
    if (i + prefetched_rows < rows)
      for (size_t at = 0; at < bytes; at += 64)
        __builtin_prefetch(a + prefetched_rows * stride + static_cast<int64_t>(at));
    std::memcpy(to, a, bytes);
  }
}

void run_item(const TiledProduct& p, int64_t item, std::byte* const* args, std::byte* scratch) {
  const Gemm& g = p.g;
  const int64_t column = item % p.across, row = item / p.across % p.down;
  const int64_t group = item / p.across / p.down;
  int64_t entry = group * p.entries;
  const int64_t i = row * p.rows, j = column * p.columns;
  int64_t a = i * g.a_row, b = j * g.b_column;
  const int64_t c = entry * g.m * g.n + i * g.n + j;
  for (size_t d = g.batch.size(); d-- > 0; entry /= g.batch[d].size) {
    a += entry % g.batch[d].size * g.batch[d].a_stride;
    b += entry % g.batch[d].size * g.batch[d].b_stride;
  }
  const auto size = static_cast<int64_t>(size_of(g.dtype));
  const std::byte *from_a = args[0] + a * size, *from_b = args[1] + b * size;
  std::byte* to = args[2] + c * size;
  if (g.dtype == DType::f64) {
    openblas::multiply(std::min(p.rows, g.m - i), std::min(p.columns, g.n - j), g.k,
                       reinterpret_cast<const double*>(from_a), strides_a(g),
                       reinterpret_cast<const double*>(from_b), strides_b(g),
                       reinterpret_cast<double*>(to), g.n);
    return;
  }
  if (p.copies) {
    copy_strip(from_a, g.a_column * size, g.k,
               static_cast<size_t>(std::min(p.rows, g.m - i) * size), scratch);
    from_a = scratch;
  }
  p.kinds[p.kind_of(group, row, column)]->run(from_a, from_b, to, scratch + p.copy_bytes);
}

void run_items(const TiledProduct& p, std::byte* const* args, KernelScope& scope) {
  run_in_slots(scope.workers, p.items(), [&](int64_t item, int64_t slot) {
    run_item(p, item, args, scope.scratch + static_cast<size_t>(slot) * p.slot_bytes);
  });
}

// The primitives of the kinds of tiles that there are; false where one is refused.
bool make_kinds(TiledProduct& p) {
  const Gemm& g = p.g;
  for (size_t kind = 0; kind < 4; ++kind) {
    const bool last = kind & 2, last_column = kind & 1;
    const int64_t first = p.entries > 1 ? p.groups() : p.down;
    if ((!last && first == 1) || (!last_column && p.across == 1)) continue;
    onednn::ProductSizes s{g.dtype,    p.rows,  p.columns,  g.k, g.a_row,
                           g.a_column, g.b_row, g.b_column, g.n, p.entries};
    if (last_column) s.n = g.n - (p.across - 1) * p.columns;
    if (p.entries > 1) {
      if (last) s.entries = p.batch - (p.groups() - 1) * p.entries;
      s.a_entry = g.batch[0].a_stride;
      s.b_entry = g.batch[0].b_stride;
    } else if (last) {
      s.m = g.m - (p.down - 1) * p.rows;
    }
    if (p.copies) s.a_column = s.m;
    p.kinds[kind] = onednn::Product::make(s);
    if (!p.kinds[kind]) return false;
    p.slot_bytes = std::max(p.slot_bytes, whole_lines(p.kinds[kind]->scratch_bytes()));
  }
  p.slot_bytes += p.copy_bytes;
  return true;
}

// Small matrices that one call multiplies: so many that the call does not show, in an even number
// of groups.
int64_t entries_of(const TiledProduct& p) {
  if (p.g.dtype == DType::f64 || p.g.batch.size() != 1 || p.down * p.across > 1) return 1;
  const auto together = static_cast<int64_t>(entries_work / work_of(p.g));
  return together <= 1 ? 1 : part_of(p.batch, together, 1);
}

// Whether a library reads operands where they lie so.
bool takes(const Gemm& g) {
  if (g.dtype != DType::f64) return true;
  return openblas::takes(g.m, g.k, strides_a(g)) && openblas::takes(g.k, g.n, strides_b(g)) &&
         g.n <= INT32_MAX;
}

}  // namespace

std::optional<Kernel> make_library(const Gemm& g) {
  if (!is_large(g) || !takes(g)) return std::nullopt;
  const Tiles tiles(g);
  TiledProduct p{g, tiles.rows, tiles.columns, (g.m + tiles.rows - 1) / tiles.rows,
                 (g.n + tiles.columns - 1) / tiles.columns};
  for (const Gemm::Batch& b : g.batch) p.batch *= b.size;
  if (p.batch == 0) return std::nullopt;
  p.copies = tiles.copies;
  if (p.copies) p.copy_bytes = whole_lines(static_cast<size_t>(p.rows * g.k) * size_of(g.dtype));
  p.entries = entries_of(p);
  if (g.dtype != DType::f64 && !make_kinds(p)) return std::nullopt;
  const size_t slots = static_cast<size_t>(std::min(p.items(), most_slots()));
  const size_t scratch = slots * p.slot_bytes;
  return Kernel::of<run_items>(std::move(p), scratch);
}

}  // namespace gradus::kernels
