#include <algorithm>
#include <array>

#include "gradus/error.h"
#include "kernels/accumulate.h"
#include "kernels/copies.h"
#include "kernels/index_parts.h"
#include "kernels/make.h"
#include "kernels/tiles.h"

namespace gradus::kernels {

namespace {

constexpr int64_t tile = 512;
constexpr int64_t chunk_elements = 1 << 16;
constexpr int64_t column_block = 1024;

int64_t bytes(int64_t elements, DType d) { return elements * static_cast<int64_t>(size_of(d)); }

// Where a `write` or `add` works: the result begins as a copy of operand 0; 16-bit floats are added
// up in scratch memory and rounded once.
struct Target {
  Copies begin, end;
  bool sums = false;

  explicit Target(const Index& w) : begin(w.begin), end(w.end), sums(w.sums > 0) {}
};

// Offsets of a range. Neighbours have one owner, so that no other processor holds their lines.
struct Places {
  int64_t first, end;
  bool have(int64_t offset) const { return offset >= first && offset < end; }
  static Places of_owner(int64_t all, int64_t owner, int64_t owners) {
    return {all * owner / owners, all * (owner + 1) / owners};
  }
};

// One index tensor per picked dimension, all of one common shape: y[outer, i.., inner].
struct Slabs {
  const ir::Operator* op;
  IndexSides sides;
  SmallVector<IndexOperand, 2> indices;
  Sizes shape, plain_strides;               // of the index tensors' common shape
  Sizes outer, outer_plain, outer_indexed;  // before it
  Sizes inner, inner_plain, inner_indexed;  // after it
  Target target;
  int64_t picks = 0, outer_count = 0, inner_count = 0;
  size_t offsets_at = 0;  // in the scratch memory, behind the sums
  bool is_single() const { return inner_count == 1 && shape.size() == 1; }  // one element a pick
  // Writers of one place are of one block of columns.
  int64_t column_blocks() const { return (inner.back() + column_block - 1) / column_block; }
  // Whether picks are rows long enough for workers that each have some of the places: all of them
  // look through all picks.
  bool has_owners() const {
    constexpr int64_t least_columns = 96;
    return shape.size() == 1 && inner.size() == 1 && inner_count >= least_columns;
  }
  // Offsets that indices lead to are less.
  int64_t span() const {
    int64_t n = 1;
    for (const IndexOperand& o : indices) n += (o.size - 1) * o.step;
    return n;
  }
  int64_t parts() const {
    if (is_single()) return 1;
    return outer_count * (has_owners() ? std::max(picks, column_blocks()) : column_blocks());
  }
};
// One index per element, along one dimension: gather and scatter.
struct Elements {
  const ir::Operator* op;
  IndexSides sides;
  IndexOperand index;
  // Of the index tensor; indexed: 0 along its dimension.
  Sizes shape, plain_strides, indexed_strides;
  Target target;
  size_t picked;  // which dimension of the shape that is
  // Writers of one place share the indices before the indexed dimension, so those split the work.
  int64_t parts() const {
    int64_t n = 1;
    for (size_t d = 0; d < picked && d + 1 < shape.size(); ++d) n *= shape[d];
    return n;
  }
};

// offsets[i] += index[i] * step, i < n, every index checked.
void add_offsets(const ir::Operator& op, const IndexOperand& o, const std::byte* index,
                 int64_t stride, int64_t n, int64_t* offsets) {
  alignas(64) int64_t values[tile];
  for (int64_t done = 0; done < n; done += tile) {
    int64_t m = std::min(tile, n - done);
    load_tile(o.dtype, DType::i64, index + bytes(done * stride, o.dtype), stride, m, values);
    bool bad = false;
    for (int64_t i = 0; i < m; ++i) {
      int64_t v = values[i];
      if (o.wraps && v < 0) v += o.size;
      bad |= v < 0 || v >= o.size;
      values[i] = v;
    }
    if (bad)
      for (int64_t i = 0; i < m; ++i)
        if (values[i] < 0 || values[i] >= o.size) {
          int64_t raw = 0;
          load_tile(o.dtype, DType::i64, index + bytes((done + i) * stride, o.dtype), 0, 1, &raw);
          throw index_error(op, o, raw);
        }
    for (int64_t i = 0; i < m; ++i) offsets[done + i] += values[i] * o.step;
  }
}

// The two sides' first elements.
struct Ends {
  std::byte* indexed;
  std::byte* plain;
  DType indexed_dtype;  // of what is written or read there
  alignas(8) std::byte number[8];

  Ends(const IndexSides& s, const Target& t, std::byte* const* args, KernelScope& scope)
      : indexed(args[s.indexed]), plain(args[s.plain]), indexed_dtype(s.dtype) {
    if (s.plain_is_number) {
      convert_row(s.number_dtype, plain, 0, s.dtype, number, 1, 1);
      plain = number;
    }
    if (t.sums) {
      indexed = scope.scratch;
      indexed_dtype = accumulation_dtype(s.dtype);
    }
  }
};

// Elements one by one: offsets on the indexed side, a stride on the plain one.
template <class T>
void move_elements(IndexAction action, std::byte* indexed, const int64_t* offsets, std::byte* plain,
                   int64_t stride, int64_t n) {
  T* a = reinterpret_cast<T*>(indexed);
  T* b = reinterpret_cast<T*>(plain);
  if (action == IndexAction::read)
    for (int64_t i = 0; i < n; ++i) b[i * stride] = a[offsets[i]];
  else
    for (int64_t i = 0; i < n; ++i) a[offsets[i]] = b[i * stride];
}
void run_elements(const IndexSides& s, std::byte* indexed, const int64_t* offsets, std::byte* plain,
                  int64_t stride, int64_t n) {
  if (s.action == IndexAction::add) {
    if (s.alpha.value == 1) return add_at(s.dtype, plain, stride, indexed, offsets, n);
    int64_t acc = static_cast<int64_t>(size_of(accumulation_dtype(s.dtype)));
    for (int64_t i = 0; i < n; ++i)
      add_row(s.dtype, plain + bytes(i * stride, s.dtype), 0, indexed + offsets[i] * acc, 0, 1,
              s.alpha);
    return;
  }
  switch (size_of(s.dtype)) {
    case 1:
      return move_elements<uint8_t>(s.action, indexed, offsets, plain, stride, n);
    case 2:
      return move_elements<uint16_t>(s.action, indexed, offsets, plain, stride, n);
    case 4:
      return move_elements<uint32_t>(s.action, indexed, offsets, plain, stride, n);
    default:
      return move_elements<uint64_t>(s.action, indexed, offsets, plain, stride, n);
  }
}

// A run of n elements on both sides.
void run_row(const IndexSides& s, std::byte* indexed, int64_t indexed_stride, std::byte* plain,
             int64_t plain_stride, int64_t n) {
  size_t size = size_of(s.dtype);
  if (s.action == IndexAction::read)
    copy_row(size, indexed, indexed_stride, plain, plain_stride, n);
  else if (s.action == IndexAction::write)
    copy_row(size, plain, plain_stride, indexed, indexed_stride, n);
  else
    add_row(s.dtype, plain, plain_stride, indexed, indexed_stride, n, s.alpha);
}

// Rows for which a call each would take longer than what they add.
bool adds_short_rows(const Slabs& p, int64_t rows, int64_t columns) {
  constexpr int64_t most = 32;
  return p.sides.action == IndexAction::add && p.sides.alpha.value == 1 && !p.target.sums &&
         !p.sides.plain_is_number && p.shape.size() == 1 && rows == 1 && columns <= most &&
         p.inner_indexed.back() == 1 && p.inner_plain.back() == 1;
}

// Picks [first, last) of one outer index, columns [c0, c1) of the inner rows.
void run_picks(const Slabs& p, const Ends& ends, const int64_t* offsets, int64_t outer,
               int64_t first, int64_t last, int64_t c0, int64_t c1) {
  Walk<2> at(p.outer, {p.outer_indexed, p.outer_plain}, outer);
  Walk<1> pick(p.shape, {p.plain_strides}, first);
  const size_t rows_rank = p.inner.size() - 1;
  const int64_t rows = p.inner.back() == 0 ? 0 : p.inner_count / p.inner.back();
  const int64_t along_indexed = p.inner_indexed.back(), along_plain = p.inner_plain.back();
  auto leading = [&](const Sizes& v) { return std::span<const int64_t>(v.data(), rows_rank); };
  std::byte* indexed = ends.indexed + bytes(at.offset(0) + c0 * along_indexed, ends.indexed_dtype);
  std::byte* plain = ends.plain + bytes(at.offset(1) + c0 * along_plain, p.sides.dtype);
  if (adds_short_rows(p, rows, c1 - c0))
    return add_rows_at(p.sides.dtype, plain + bytes(pick.offset(0), p.sides.dtype),
                       p.plain_strides[0], indexed, offsets + first, last - first, c1 - c0);
  for (int64_t i = first; i < last; ++i, pick.next()) {
    std::byte* a = indexed + bytes(offsets[i], ends.indexed_dtype);
    std::byte* b = plain + bytes(pick.offset(0), p.sides.dtype);
    if (rows == 1) {
      run_row(p.sides, a, along_indexed, b, along_plain, c1 - c0);
      continue;
    }
    Walk<2> row(leading(p.inner), {leading(p.inner_indexed), leading(p.inner_plain)}, 0);
    for (int64_t r = 0; r < rows; ++r, row.next())
      run_row(p.sides, a + bytes(row.offset(0), ends.indexed_dtype), along_indexed,
              b + bytes(row.offset(1), p.sides.dtype), along_plain, c1 - c0);
  }
}

// Of one outer index the picks that lead to some places; each is a row.
void run_rows_of(const Slabs& p, const Ends& ends, const int64_t* offsets, int64_t outer,
                 Places places) {
  constexpr int64_t some = 256;
  constexpr size_t ahead = 4;
  Walk<2> at(p.outer, {p.outer_indexed, p.outer_plain}, outer);
  std::byte* const indexed = ends.indexed + bytes(at.offset(0), ends.indexed_dtype);
  std::byte* const plain = ends.plain + bytes(at.offset(1), p.sides.dtype);
  const int64_t row_bytes = bytes(p.inner_count * p.inner_plain.back(), p.sides.dtype);
  std::array<int64_t, some> mine;
  auto row = [&](size_t k) { return plain + bytes(mine[k] * p.plain_strides[0], p.sides.dtype); };
  for (int64_t first = 0; first < p.picks; first += some) {
    const int64_t last = std::min(p.picks, first + some);
    size_t count = 0;  // without a branch, which would be a wrong guess every other time
    for (int64_t i = first; i < last; ++i) {
      mine[count] = i;
      count += places.have(offsets[i]);
    }
    for (size_t k = 0; k < count; ++k) {
      // Rows that are left out keep the processor from looking ahead.
      if (k + ahead < count)
        for (int64_t b = 0; b < row_bytes; b += 64) __builtin_prefetch(row(k + ahead) + b);
      run_row(p.sides, indexed + bytes(offsets[mine[k]], ends.indexed_dtype),
              p.inner_indexed.back(), row(k), p.inner_plain.back(), p.inner_count);
    }
  }
}

void run_slabs(const Slabs& p, std::byte* const* args, KernelScope& scope) {
  int64_t* offsets = reinterpret_cast<int64_t*>(scope.scratch + p.offsets_at);
  std::fill(offsets, offsets + p.picks, 0);
  for (const IndexOperand& o : p.indices) {
    const size_t outer = p.shape.size() - 1;
    const int64_t row = p.shape.back();
    Walk<1> walk({p.shape.data(), outer}, {std::span(o.strides.data(), outer)}, 0);
    for (int64_t done = 0; done < p.picks; done += row, walk.next())
      add_offsets(*p.op, o, args[o.argument] + bytes(walk.offset(0), o.dtype), o.strides.back(),
                  row, offsets + done);
  }
  p.target.begin.run(args, scope);
  Ends ends(p.sides, p.target, args, scope);
  const int64_t total = p.outer_count * p.picks * p.inner_count;
  if (total == 0) {
  } else if (p.is_single()) {
    Walk<2> at(p.outer, {p.outer_indexed, p.outer_plain}, 0);
    for (int64_t o = 0; o < p.outer_count; ++o, at.next())
      run_elements(p.sides, ends.indexed + bytes(at.offset(0), ends.indexed_dtype), offsets,
                   ends.plain + bytes(at.offset(1), p.sides.dtype), p.plain_strides[0], p.picks);
  } else if (p.sides.action == IndexAction::read) {
    int64_t units = p.outer_count * p.picks;
    int64_t per_chunk = std::max<int64_t>(1, chunk_elements / p.inner_count);
    scope.workers.parallel_parts(units, per_chunk, [&](int64_t first, int64_t last) {
      for (int64_t u = first; u < last;) {
        int64_t pick = u % p.picks, n = std::min(last - u, p.picks - pick);
        run_picks(p, ends, offsets, u / p.picks, pick, pick + n, 0, p.inner.back());
        u += n;
      }
    });
  } else {  // all picks of a place by one worker, in order
    const int64_t columns = p.inner.back(), blocks = p.column_blocks();
    const int64_t units = p.outer_count * blocks, workers = scope.workers.workers();
    const int64_t owners =
        p.has_owners() && workers > units ? workers / std::max<int64_t>(1, p.outer_count) : 1;
    if (total <= chunk_elements) {
      for (int64_t u = 0; u < p.outer_count; ++u)
        run_picks(p, ends, offsets, u, 0, p.picks, 0, columns);
    } else if (owners > 1) {
      scope.workers.parallel_for(p.outer_count * owners, [&](int64_t u) {
        run_rows_of(p, ends, offsets, u / owners, Places::of_owner(p.span(), u % owners, owners));
      });
    } else {
      scope.workers.parallel_for(units, [&](int64_t u) {
        const int64_t c0 = u % blocks * column_block;
        run_picks(p, ends, offsets, u / blocks, 0, p.picks, c0,
                  std::min(columns, c0 + column_block));
      });
    }
  }
  p.target.end.run(args, scope);
}

// Whether its elements, in order, lie at one distance from each other.
bool is_one_run(const Sizes& shape, const Sizes& strides) {
  for (size_t d = 0; d + 1 < shape.size(); ++d)
    if (strides[d] != strides[d + 1] * shape[d + 1]) return false;
  return true;
}

void run_element_plan(const Elements& p, std::byte* const* args, KernelScope& scope) {
  p.target.begin.run(args, scope);
  Ends ends(p.sides, p.target, args, scope);
  const size_t outer = p.shape.size() - 1;
  const int64_t row = p.shape.back(), count = numel(p.shape);
  const int64_t rows = row == 0 ? 0 : count / row;
  auto leading = [&](const Sizes& v) { return std::span<const int64_t>(v.data(), outer); };
  const bool is_run = is_one_run(p.shape, p.index.strides) && is_one_run(p.shape, p.plain_strides);
  const int64_t along_index = p.index.strides.back(), along_plain = p.plain_strides.back();
  auto run = [&](int64_t first, int64_t last) {
    alignas(64) int64_t offsets[tile];
    Walk<3> walk(leading(p.shape),
                 {leading(p.index.strides), leading(p.indexed_strides), leading(p.plain_strides)},
                 first);
    int64_t c = 0;
    // The next elements in order, from row to row.
    auto lay_offsets = [&](int64_t n) {
      for (int64_t i = 0; i < n;) {
        const int64_t end = i + std::min(n - i, row - c);
        for (; i < end; ++i, ++c) offsets[i] = walk.offset(1) + c * p.indexed_strides.back();
        if (c < row) continue;
        c = 0;
        walk.next();
      }
    };
    const int64_t rows_of_run = is_run ? last - first : 1;
    for (int64_t r = first; r < last; r += rows_of_run) {
      const std::byte* index = args[p.index.argument] + bytes(walk.offset(0), p.index.dtype);
      std::byte* plain = ends.plain + bytes(walk.offset(2), p.sides.dtype);
      for (int64_t left = rows_of_run * row; left > 0; left -= tile) {
        const int64_t n = std::min(tile, left);
        lay_offsets(n);
        add_offsets(*p.op, p.index, index, along_index, n, offsets);
        run_elements(p.sides, ends.indexed, offsets, plain, along_plain, n);
        index += bytes(n * along_index, p.index.dtype);
        plain += bytes(n * along_plain, p.sides.dtype);
      }
    }
  };
  int64_t units = rows, each = 1;
  if (p.sides.action != IndexAction::read) {
    units = p.parts();
    each = units == 0 ? 0 : rows / units;
  }
  int64_t per_chunk = std::max<int64_t>(1, chunk_elements / std::max<int64_t>(1, each * row));
  scope.workers.parallel_parts(rows == 0 ? 0 : units, per_chunk, [&](int64_t first, int64_t last) {
    run(first * each, last * each);
  });
  p.target.end.run(args, scope);
}

// Whether all indices are of some neighbouring dimensions alone, the picks, and others stand before
// or after them. One dimension alone is better off element by element.
bool picks_slabs(const Index& w) {
  if (w.shape.size() < 2) return false;
  for (size_t d = 0; d < w.shape.size(); ++d)
    for (const IndexOperand& o : w.indices)
      if (!w.serial[d] && o.strides[d] != 0) return false;
  return true;
}

Sizes part(const Sizes& list, size_t first, size_t last) {
  return Sizes(list.begin() + first, list.begin() + last);
}

Slabs slabs_of(const Index& w) {
  const auto begin = static_cast<size_t>(std::ranges::find(w.serial, true) - w.serial.begin());
  size_t end = begin;
  while (end < w.serial.size() && w.serial[end]) ++end;
  const size_t rank = w.shape.size();
  Slabs k{w.op,
          w.sides,
          w.indices,
          part(w.shape, begin, end),
          part(w.plain, begin, end),
          part(w.shape, 0, begin),
          part(w.plain, 0, begin),
          part(w.indexed, 0, begin),
          part(w.shape, end, rank),
          part(w.plain, end, rank),
          part(w.indexed, end, rank),
          Target(w)};
  for (IndexOperand& o : k.indices) o.strides = part(o.strides, begin, end);
  k.picks = numel(k.shape);
  k.outer_count = numel(k.outer);
  k.inner_count = numel(k.inner);
  k.offsets_at = (static_cast<size_t>(w.sums_bytes()) + 63) / 64 * 64;
  return k;
}

Elements elements_of(const Index& w) {
  GRADUS_CHECK(w.indices.size() == 1);
  return {w.op,         w.sides,
          w.indices[0], w.shape,
          w.plain,      w.indexed,
          Target(w),    static_cast<size_t>(std::ranges::find(w.serial, true) - w.serial.begin())};
}

bool is_sum_of_box(const Index& w) {
  return w.indices.empty() && w.sides.action == IndexAction::add;
}

void run_check(const IndexCheck& c, std::byte* const* args, KernelScope& scope) {
  const size_t outer = c.shape.size() - 1;
  const int64_t row = c.shape.back(), rows = numel(c.shape) / row;
  const int64_t each = std::max<int64_t>(1, chunk_elements / row);
  scope.workers.parallel_parts(rows, each, [&](int64_t first, int64_t last) {
    alignas(64) int64_t offsets[tile];
    Walk<1> walk({c.shape.data(), outer}, {std::span(c.of.strides.data(), outer)}, first);
    for (int64_t r = first; r < last; ++r, walk.next())
      for (int64_t i = 0; i < row; i += tile) {
        const int64_t n = std::min(tile, row - i);
        std::fill(offsets, offsets + n, 0);
        add_offsets(*c.op, c.of,
                    args[0] + bytes(walk.offset(0) + i * c.of.strides.back(), c.of.dtype),
                    c.of.strides.back(), n, offsets);
      }
  });
}

}  // namespace

Kernel make_kernel(const Index& w) {
  if (is_sum_of_box(w)) return make_sums(w);
  if (!picks_slabs(w))
    return Kernel::of<run_element_plan>(elements_of(w), static_cast<size_t>(w.sums_bytes()));
  Slabs k = slabs_of(w);
  const size_t scratch = k.offsets_at + static_cast<size_t>(k.picks) * sizeof(int64_t);
  return Kernel::of<run_slabs>(std::move(k), scratch);
}

int64_t parts_of(const Index& w) {
  if (is_sum_of_box(w)) return numel(w.shape);
  return picks_slabs(w) ? slabs_of(w).parts() : elements_of(w).parts();
}

Kernel make_kernel(const IndexCheck& w) { return Kernel::of<run_check>(w); }

}  // namespace gradus::kernels
