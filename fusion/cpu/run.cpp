// Loops around a kernel's two innermost ones, and their parts for the workers.
#include <algorithm>
#include <new>

#include "fusion/cost.h"
#include "fusion/cpu/bound.h"

namespace gradus::fusion::cpu {

namespace {

// A kernel that reads and writes more leaves nothing in the caches for the next one. Stores past
// the caches do not read the lines that they overwrite: softmax with its derivative, 64 MiB, took
// 0.6 of the time, the same of layer norm 0.55; (1.5 + b) a of 3 x 96 MiB 0.7 (two cores of an
// Intel Xeon).
constexpr int64_t most_cached_bytes = int64_t{48} << 20;

// How many elements a worker takes at a time: what takes some ten microseconds, and stays in the
// near caches. Whole lines of them.
int64_t elements_of_chunk(const Nest& nest, const Frame& frame) {
  constexpr double chunk_nanoseconds = 15e3;
  constexpr int64_t multiple = 64;
  const double chunks = std::max(1.0, nanoseconds_of(nest, frame) / chunk_nanoseconds);
  const auto each = static_cast<int64_t>(static_cast<double>(frame.count()) / chunks);
  return std::min(most_chunk_elements, (each / multiple + 1) * multiple);
}

// What a run reads and writes, about.
int64_t moved_bytes(const Nest& nest, const Frame& frame) {
  size_t of_element = 0;
  for (const Load& l : nest.loads)
    if (std::ranges::count(l.walks, Walk::broadcast) == 0) of_element += size_of(l.dtype);
  for (ValueNumber v : nest.stores) of_element += size_of(nest.dtype_of(v));
  return frame.count() * static_cast<int64_t>(of_element);
}

}  // namespace

Walks::Walks(const Nest& nest, const Frame& frame, const Cell& cell) {
  const size_t rank = frame.sizes.size(), loads = nest.loads.size(), stores = nest.stores.size();
  const size_t row_stores = nest.row_stores.size();
  slots = loads + stores + row_stores + nest.column_stores.size();
  columns = cell.sizes.back();
  for (size_t d = 0; d + 2 < rank; ++d) outer.push_back(cell.sizes[d]);
  if (rank > 1) rows = cell.sizes[rank - 2];
  outer_steps.resize(outer.size() * slots);
  Sizes one_each = frame.sizes;
  one_each.back() = 1;
  const Sizes dense = contiguous_strides(frame.sizes), dense_rows = contiguous_strides(one_each);
  size_t arg = 0;
  for (size_t k = 0; k < slots; ++k) {
    const bool load = k < loads, of_row = k >= loads + stores && k < loads + stores + row_stores,
               of_column = k >= loads + stores + row_stores;
    const Frame::Part* part =
        load && nest.loads[k].operands > 1 ? &frame.parts[k][cell.part[k]] : nullptr;
    const DType dtype = load     ? nest.loads[k].dtype
                        : of_row ? nest.dtype_of(nest.row_stores[k - loads - stores])
                        : of_column
                            ? nest.dtype_of(nest.column_stores[k - loads - stores - row_stores])
                            : nest.dtype_of(nest.stores[k - loads]);
    const Sizes& strides = part     ? part->strides
                           : load   ? frame.strides[k]
                           : of_row ? dense_rows
                                    : dense;
    const auto bytes = static_cast<int64_t>(size_of(dtype));
    auto step = [&](size_t d) -> int64_t {
      // Of a loop of one element the stride has no say: the code walks as the nest says.
      bool still = cell.sizes[d] == 1 || (of_row && d + 1 == rank) || (of_column && d + 1 < rank) ||
                   (load && nest.loads[k].walks[d] == Walk::broadcast);
      return still ? 0 : strides[d] * bytes;
    };
    int64_t offset = 0;
    for (size_t d = 0; d < rank && !of_column; ++d)
      offset += (cell.first[d] - (part ? part->first[d] : 0)) * strides[d] * bytes;
    args.push_back(arg + (part ? cell.part[k] : 0));
    arg += load ? nest.loads[k].operands : 1;
    offsets.push_back(offset);
    column_steps.push_back(step(rank - 1));
    row_steps.push_back(rank > 1 ? step(rank - 2) : 0);
    for (size_t d = 0; d < outer.size(); ++d) outer_steps[d * slots + k] = step(d);
  }
  for (size_t k = 0; k < loads; ++k)
    if (nest.loads[k].index)
      column_steps.push_back(frame.index_steps[k] *
                             static_cast<int64_t>(size_of(nest.loads[k].dtype)));
  column_steps.push_back(moved_bytes(nest, frame) > most_cached_bytes);
  whole_rows = nest.reduces() || !nest.row_stores.empty() || nest.row_size;
}

namespace {

// A cell in parts that a worker takes at a time.
struct CellRun {
  Walks walks;
  int64_t rows_each, columns_each;  // of one part
  int64_t parts, first_part;        // of the kernel's

  CellRun(Walks w, int64_t first, int64_t chunk) : walks(std::move(w)), first_part(first) {
    // Of about as many elements: some columns of a row, or some rows.
    columns_each = walks.whole_rows ? walks.columns : std::min(walks.columns, chunk);
    rows_each = std::clamp<int64_t>(chunk / columns_each, 1, walks.rows);
    parts = numel(walks.outer) * row_parts() * column_parts();
  }

  int64_t row_parts() const { return (walks.rows + rows_each - 1) / rows_each; }
  int64_t column_parts() const { return (walks.columns + columns_each - 1) / columns_each; }

  void run_part(std::byte* const* args, int64_t p) const {
    const int64_t column = p % column_parts() * columns_each;
    p /= column_parts();
    const int64_t row = p % row_parts() * rows_each;
    SmallVector<std::byte*, 32> pointers(walks.slots);
    walks.begin(args, pointers.data());
    walks.advance(pointers.data(), p / row_parts(), row, column);
    walks.entry(std::min(rows_each, walks.rows - row),
                std::min(columns_each, walks.columns - column), pointers.data(),
                walks.row_steps.data(), walks.column_steps.data());
  }

  // Parts that are all of the two innermost loops: short ones, which take no longer than finding
  // them does.
  void run_whole_parts(std::byte* const* args, int64_t first, int64_t last) const {
    SmallVector<std::byte*, 32> pointers(walks.slots);
    walks.begin(args, pointers.data());
    walks.advance(pointers.data(), first, 0, 0);
    for (int64_t p = first;; walks.step(pointers.data(), p++)) {
      walks.entry(walks.rows, walks.columns, pointers.data(), walks.row_steps.data(),
                  walks.column_steps.data());
      if (p + 1 == last) return;
    }
  }

  void run_parts(std::byte* const* args, int64_t first, int64_t last) const {
    if (row_parts() == 1 && column_parts() == 1) return run_whole_parts(args, first, last);
    for (int64_t p = first; p < last; ++p) run_part(args, p);
  }
};

// A kernel's cells.
struct Bound {
  std::vector<CellRun> cells;
  int64_t parts = 0, each = 1, chunks = 1;  // a chunk is so many parts

  void run_chunk(std::byte* const* args, int64_t c) const {
    int64_t p = c * each;
    const int64_t end = std::min(parts, p + each);
    auto cell = std::ranges::upper_bound(cells, p, {}, &CellRun::first_part) - 1;
    for (; p < end; ++cell) {
      const int64_t last = std::min(end, cell->first_part + cell->parts);
      cell->run_parts(args, p - cell->first_part, last - cell->first_part);
      p = last;
    }
  }
};

// Of one part: pointers are where it begins.
void run_whole(const void* parameters, std::byte* const* args, work::KernelScope&) {
  const Walks& w = static_cast<const Bound*>(parameters)->cells[0].walks;
  w.entry(w.rows, w.columns, args, w.row_steps.data(), w.column_steps.data());
}

void run_parts(const void* parameters, std::byte* const* args, work::KernelScope& scope) {
  const Bound& b = *static_cast<const Bound*>(parameters);
  if (b.chunks == 1) return b.run_chunk(args, 0);
  scope.workers.parallel_for(b.chunks, [&](int64_t c) { b.run_chunk(args, c); });
}

void run_nothing(const void*, std::byte* const*, work::KernelScope&) {}

}  // namespace

work::Kernel Kernel::bind(const Frame& frame) const {
  if (frame.count() == 0) return {run_nothing, nullptr, 0};
  auto bound = std::make_shared<Bound>();
  Bound& b = *bound;
  const int64_t chunk = elements_of_chunk(nest_, frame);
  for (const Cell& cell : cells_of(nest_, frame)) {
    Walks walks(nest_, frame, cell);
    walks.kernel = shared_from_this();
    walks.entry = entry_;
    if (!nest_.column_stores.empty()) return bind_columns(nest_, std::move(walks), chunk);
    b.cells.emplace_back(std::move(walks), b.parts, chunk);
    b.parts += b.cells.back().parts;
  }
  const int64_t elements = (frame.count() + b.parts - 1) / b.parts;  // of a part
  b.each = std::max<int64_t>(1, chunk / elements);
  b.chunks = (b.parts + b.each - 1) / b.each;
  const auto run = b.parts == 1 ? run_whole : run_parts;
  return {run, std::move(bound), 0};
}

void Kernel::run(const Frame& frame, std::byte* const* args, WorkerPool& workers) const {
  work::Kernel bound = bind(frame);
  std::unique_ptr<std::byte, void (*)(std::byte*)> scratch(
      nullptr, [](std::byte* p) { ::operator delete(p, std::align_val_t(64)); });
  if (bound.scratch_bytes)
    scratch.reset(
        static_cast<std::byte*>(::operator new(bound.scratch_bytes, std::align_val_t(64))));
  work::KernelScope scope{workers, scratch.get()};
  bound.run(bound.parameters.get(), args, scope);
}

}  // namespace gradus::fusion::cpu
