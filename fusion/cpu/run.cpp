// Loops around a kernel's two innermost ones, and their parts for the workers.
#include <algorithm>
#include <new>

#include "fusion/cpu/bound.h"

namespace gradus::fusion::cpu {

Walks::Walks(const Nest& nest, const Frame& frame) {
  const size_t rank = frame.sizes.size(), loads = nest.loads.size(), stores = nest.stores.size();
  const size_t row_stores = nest.row_stores.size();
  slots = loads + stores + row_stores + nest.column_stores.size();
  columns = frame.sizes.back();
  for (size_t d = 0; d + 2 < rank; ++d) outer.push_back(frame.sizes[d]);
  if (rank > 1) rows = frame.sizes[rank - 2];
  outer_steps.resize(outer.size() * slots);
  Sizes one_each = frame.sizes;
  one_each.back() = 1;
  const Sizes dense = contiguous_strides(frame.sizes), dense_rows = contiguous_strides(one_each);
  for (size_t k = 0; k < slots; ++k) {
    const bool load = k < loads, of_row = k >= loads + stores && k < loads + stores + row_stores,
               of_column = k >= loads + stores + row_stores;
    const DType dtype = load     ? nest.loads[k].dtype
                        : of_row ? nest.dtype_of(nest.row_stores[k - loads - stores])
                        : of_column
                            ? nest.dtype_of(nest.column_stores[k - loads - stores - row_stores])
                            : nest.dtype_of(nest.stores[k - loads]);
    const Sizes& strides = load ? frame.strides[k] : of_row ? dense_rows : dense;
    auto step = [&](size_t d) -> int64_t {
      // Of a loop of one element the stride has no say: the code walks as the nest says.
      bool still = frame.sizes[d] == 1 || (of_row && d + 1 == rank) ||
                   (of_column && d + 1 < rank) ||
                   (load && nest.loads[k].walks[d] == Walk::broadcast);
      return still ? 0 : strides[d] * static_cast<int64_t>(size_of(dtype));
    };
    column_steps.push_back(step(rank - 1));
    row_steps.push_back(rank > 1 ? step(rank - 2) : 0);
    for (size_t d = 0; d < outer.size(); ++d) outer_steps[d * slots + k] = step(d);
  }
  whole_rows = nest.reduces() || !nest.row_stores.empty();
}

namespace {

// A kernel in parts that a worker takes at a time.
struct Bound {
  Walks walks;
  int64_t rows_each, columns_each;  // of one part
  int64_t parts, each, chunks;      // a chunk is so many parts

  int64_t row_parts() const { return (walks.rows + rows_each - 1) / rows_each; }
  int64_t column_parts() const { return (walks.columns + columns_each - 1) / columns_each; }

  void run_part(std::byte* const* args, int64_t p) const {
    const int64_t column = p % column_parts() * columns_each;
    p /= column_parts();
    const int64_t row = p % row_parts() * rows_each;
    SmallVector<std::byte*, 32> pointers(args, args + walks.slots);
    walks.advance(pointers.data(), p / row_parts(), row, column);
    walks.entry(std::min(rows_each, walks.rows - row),
                std::min(columns_each, walks.columns - column), pointers.data(),
                walks.row_steps.data(), walks.column_steps.data());
  }

  void run_chunk(std::byte* const* args, int64_t c) const {
    for (int64_t p = c * each; p < std::min(parts, (c + 1) * each); ++p) run_part(args, p);
  }
};

// Of one part: pointers are where it begins.
void run_whole(const void* parameters, std::byte* const* args, ir::KernelScope&) {
  const Walks& w = static_cast<const Bound*>(parameters)->walks;
  w.entry(w.rows, w.columns, args, w.row_steps.data(), w.column_steps.data());
}

void run_parts(const void* parameters, std::byte* const* args, ir::KernelScope& scope) {
  const Bound& b = *static_cast<const Bound*>(parameters);
  if (b.chunks == 1) return b.run_chunk(args, 0);
  scope.workers.parallel_for(b.chunks, [&](int64_t c) { b.run_chunk(args, c); });
}

void run_nothing(const void*, std::byte* const*, ir::KernelScope&) {}

}  // namespace

ir::Kernel Kernel::bind(const Frame& frame) const {
  if (frame.count() == 0) return {run_nothing, nullptr, 0};
  Walks walks(nest_, frame);
  walks.kernel = shared_from_this();
  walks.entry = entry_;
  if (!nest_.column_stores.empty()) return bind_columns(nest_, std::move(walks));
  auto bound = std::make_shared<Bound>(Bound{std::move(walks), 1, 1, 1, 1, 1});
  Bound& b = *bound;
  // Parts of about as many elements: some columns of a row, or some rows.
  const Walks& w = b.walks;
  b.columns_each = w.whole_rows ? w.columns : std::min(w.columns, chunk_elements);
  b.rows_each = std::clamp<int64_t>(chunk_elements / b.columns_each, 1, w.rows);
  b.parts = numel(w.outer) * b.row_parts() * b.column_parts();
  b.each = std::max<int64_t>(1, chunk_elements / (b.rows_each * b.columns_each));
  b.chunks = (b.parts + b.each - 1) / b.each;
  const auto run = b.parts == 1 ? run_whole : run_parts;
  return {run, std::move(bound), 0};
}

void Kernel::run(const Frame& frame, std::byte* const* args, WorkerPool& workers) const {
  ir::Kernel bound = bind(frame);
  std::unique_ptr<std::byte, void (*)(std::byte*)> scratch(
      nullptr, [](std::byte* p) { ::operator delete(p, std::align_val_t(64)); });
  if (bound.scratch_bytes)
    scratch.reset(
        static_cast<std::byte*>(::operator new(bound.scratch_bytes, std::align_val_t(64))));
  ir::KernelScope scope{workers, scratch.get()};
  bound.run(bound.parameters.get(), args, scope);
}

}  // namespace gradus::fusion::cpu
