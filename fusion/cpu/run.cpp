// Loops around a kernel's two innermost ones, and their parts for the workers.
#include <algorithm>

#include "fusion/cpu/compiler.h"

namespace gradus::fusion::cpu {

namespace {

constexpr int64_t chunk_elements = 1 << 15;  // what one worker takes at a time, about

// A kernel and all that follows from the sizes.
struct Bound {
  std::shared_ptr<const fusion::Kernel> kernel;  // keeps the code
  void (*entry)(int64_t, int64_t, std::byte* const*, const int64_t*, const int64_t*);
  size_t slots;                                      // loads, stores and row stores
  Sizes outer;                                       // sizes of all loops but the two innermost
  int64_t rows = 1, columns = 1;                     // those
  int64_t rows_each, columns_each;                   // of one part
  int64_t parts, each, chunks;                       // a chunk is so many parts
  SmallVector<int64_t, 16> row_steps, column_steps;  // in bytes, by slot
  std::vector<int64_t> outer_steps;                  // in bytes, by dimension, then slot

  int64_t row_parts() const { return (rows + rows_each - 1) / rows_each; }
  int64_t column_parts() const { return (columns + columns_each - 1) / columns_each; }

  void run_part(std::byte* const* args, int64_t p) const {
    const int64_t column = p % column_parts() * columns_each;
    p /= column_parts();
    const int64_t row = p % row_parts() * rows_each;
    p /= row_parts();
    SmallVector<std::byte*, 32> pointers(args, args + slots);
    for (size_t d = outer.size(); d-- > 0; p /= outer[d])
      for (size_t k = 0; k < slots; ++k) pointers[k] += p % outer[d] * outer_steps[d * slots + k];
    for (size_t k = 0; k < slots; ++k) pointers[k] += row * row_steps[k] + column * column_steps[k];
    entry(std::min(rows_each, rows - row), std::min(columns_each, columns - column),
          pointers.data(), row_steps.data(), column_steps.data());
  }

  void run_chunk(std::byte* const* args, int64_t c) const {
    for (int64_t p = c * each; p < std::min(parts, (c + 1) * each); ++p) run_part(args, p);
  }
};

// Of one part: pointers are where it begins.
void run_whole(const void* parameters, std::byte* const* args, ir::KernelScope&) {
  const Bound& b = *static_cast<const Bound*>(parameters);
  b.entry(b.rows, b.columns, args, b.row_steps.data(), b.column_steps.data());
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
  auto bound = std::make_shared<Bound>();
  Bound& b = *bound;
  b.kernel = shared_from_this();
  b.entry = entry_;
  const size_t rank = frame.sizes.size(), loads = nest_.loads.size(), stores = nest_.stores.size();
  b.slots = loads + stores + nest_.row_stores.size();
  b.columns = frame.sizes.back();
  for (size_t d = 0; d + 2 < rank; ++d) b.outer.push_back(frame.sizes[d]);
  if (rank > 1) b.rows = frame.sizes[rank - 2];
  b.outer_steps.resize(b.outer.size() * b.slots);
  Sizes one_each = frame.sizes;
  one_each.back() = 1;
  const Sizes dense = contiguous_strides(frame.sizes), dense_rows = contiguous_strides(one_each);
  for (size_t k = 0; k < b.slots; ++k) {
    const bool load = k < loads, of_row = k >= loads + stores;
    const DType dtype = load     ? nest_.loads[k].dtype
                        : of_row ? nest_.dtype_of(nest_.row_stores[k - loads - stores])
                                 : nest_.dtype_of(nest_.stores[k - loads]);
    const Sizes& strides = load ? frame.strides[k] : of_row ? dense_rows : dense;
    auto step = [&](size_t d) -> int64_t {
      // Of a loop of one element the stride has no say: the code walks as the nest says.
      bool still = frame.sizes[d] == 1 || (of_row && d + 1 == rank) ||
                   (load && nest_.loads[k].walks[d] == Walk::broadcast);
      return still ? 0 : strides[d] * static_cast<int64_t>(size_of(dtype));
    };
    b.column_steps.push_back(step(rank - 1));
    b.row_steps.push_back(rank > 1 ? step(rank - 2) : 0);
    for (size_t d = 0; d < b.outer.size(); ++d) b.outer_steps[d * b.slots + k] = step(d);
  }
  // Parts of about as many elements: some columns of a row, or some rows. What a row shares is made
  // in one part.
  const bool whole_rows = nest_.reduces() || !nest_.row_stores.empty();
  b.columns_each = whole_rows ? b.columns : std::min(b.columns, chunk_elements);
  b.rows_each = std::clamp<int64_t>(chunk_elements / b.columns_each, 1, b.rows);
  b.parts = numel(b.outer) * b.row_parts() * b.column_parts();
  b.each = std::max<int64_t>(1, chunk_elements / (b.rows_each * b.columns_each));
  b.chunks = (b.parts + b.each - 1) / b.each;
  const auto run = b.parts == 1 ? run_whole : run_parts;
  return {run, std::move(bound), 0};
}

void Kernel::run(const Frame& frame, std::byte* const* args, WorkerPool& workers) const {
  ir::Kernel bound = bind(frame);
  ir::KernelScope scope{workers, nullptr};
  bound.run(bound.parameters.get(), args, scope);
}

}  // namespace gradus::fusion::cpu
