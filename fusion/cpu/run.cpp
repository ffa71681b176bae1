// Loops around a kernel's two innermost ones, and their parts for the workers.
#include <algorithm>

#include "fusion/cpu/compiler.h"

namespace gradus::fusion::cpu {

namespace {

constexpr int64_t chunk_elements = 1 << 15;  // what one worker takes at a time, about

struct Run {
  void (*entry)(int64_t, int64_t, std::byte* const*, const int64_t*, const int64_t*);
  const Frame& frame;
  std::byte* const* args;
  size_t slots;                     // loads and stores
  Sizes outer;                      // sizes of all loops but the two innermost
  int64_t rows, columns;            // those
  int64_t rows_each, columns_each;  // of one part
  std::vector<Sizes> steps;         // in bytes, of each slot in each dimension
  std::vector<int64_t> row_steps, column_steps;

  int64_t row_parts() const { return (rows + rows_each - 1) / rows_each; }
  int64_t column_parts() const { return (columns + columns_each - 1) / columns_each; }
  int64_t parts() const { return numel(outer) * row_parts() * column_parts(); }

  void part(int64_t p) const {
    const int64_t column = p % column_parts() * columns_each;
    p /= column_parts();
    const int64_t row = p % row_parts() * rows_each;
    p /= row_parts();
    SmallVector<std::byte*, 8> pointers(args, args + slots);
    for (size_t d = outer.size(); d-- > 0; p /= outer[d])
      for (size_t k = 0; k < slots; ++k) pointers[k] += p % outer[d] * steps[k][d];
    for (size_t k = 0; k < slots; ++k) pointers[k] += row * row_steps[k] + column * column_steps[k];
    entry(std::min(rows_each, rows - row), std::min(columns_each, columns - column),
          pointers.data(), row_steps.data(), column_steps.data());
  }
};

}  // namespace

void Kernel::run(const Frame& frame, std::byte* const* args, WorkerPool& workers) const {
  if (frame.count() == 0) return;
  const size_t rank = frame.sizes.size(), loads = nest_.loads.size();
  Run r{entry_,
        frame,
        args,
        loads + nest_.stores.size() + nest_.row_stores.size(),
        {},
        1,
        frame.sizes.back(),
        1,
        1,
        {},
        {},
        {}};
  for (size_t d = 0; d + 2 < rank; ++d) r.outer.push_back(frame.sizes[d]);
  if (rank > 1) r.rows = frame.sizes[rank - 2];
  const Sizes dense = contiguous_strides(frame.sizes);
  Sizes rows = frame.sizes;
  rows.back() = 1;
  const Sizes dense_rows = contiguous_strides(rows);
  for (size_t k = 0; k < r.slots; ++k) {
    const bool load = k < loads;
    const bool of_row = k >= loads + nest_.stores.size();
    const DType dtype = load     ? nest_.loads[k].dtype
                        : of_row ? nest_.dtype_of(nest_.row_stores[k - loads - nest_.stores.size()])
                                 : nest_.dtype_of(nest_.stores[k - loads]);
    const Sizes& strides = load ? frame.strides[k] : of_row ? dense_rows : dense;
    Sizes steps;
    for (size_t d = 0; d < rank; ++d) {
      // Of a loop of one element the stride has no say: the code walks as the nest says.
      bool still = frame.sizes[d] == 1 || (load && nest_.loads[k].walks[d] == Walk::broadcast) ||
                   (of_row && d + 1 == rank);
      steps.push_back(still ? 0 : strides[d] * static_cast<int64_t>(size_of(dtype)));
    }
    r.column_steps.push_back(steps[rank - 1]);
    r.row_steps.push_back(rank > 1 ? steps[rank - 2] : 0);
    r.steps.push_back(std::move(steps));
  }
  // Parts of about as many elements: some columns of a row, or some rows.
  r.columns_each = nest_.reduces() || !nest_.row_stores.empty()
                       ? r.columns
                       : std::min(r.columns, chunk_elements);
  r.rows_each = std::clamp<int64_t>(chunk_elements / r.columns_each, 1, r.rows);
  const int64_t parts = r.parts();
  const int64_t each = std::max<int64_t>(1, chunk_elements / (r.rows_each * r.columns_each));
  const int64_t chunks = (parts + each - 1) / each;
  auto run_chunk = [&](int64_t c) {
    for (int64_t p = c * each; p < std::min(parts, (c + 1) * each); ++p) r.part(p);
  };
  if (chunks == 1)
    run_chunk(0);
  else
    workers.parallel_for(chunks, run_chunk);
}

}  // namespace gradus::fusion::cpu
