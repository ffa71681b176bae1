// A compiled nest and all that follows from the sizes of its runs.
#pragma once

#include "fusion/cells.h"
#include "fusion/cpu/compiler.h"

namespace gradus::fusion::cpu {

// Which elements of a cell a call of the code begins at: its two innermost loops are the code's,
// those around them ours. Slots are loads, stores, row stores and column stores.
struct Walks {
  std::shared_ptr<const fusion::Kernel> kernel;  // keeps the code
  void (*entry)(int64_t, int64_t, std::byte* const*, const int64_t*, const int64_t*);
  size_t slots;
  Sizes outer;                            // sizes of all loops but the two innermost
  int64_t rows = 1, columns = 1;          // those
  SmallVector<size_t, 16> args;           // by slot: which argument of the kernel,
  SmallVector<int64_t, 16> offsets;       // and where the cell begins there, in bytes
  SmallVector<int64_t, 16> row_steps;     // in bytes, by slot
  SmallVector<int64_t, 16> column_steps;  // likewise; then the rest of lower.h's
  std::vector<int64_t> outer_steps;       // in bytes, by dimension, then slot
  bool whole_rows;                        // what a row shares is made in one call

  Walks(const Nest& nest, const Frame& frame, const Cell& cell);
  // The slots' pointers at the cell's first element.
  void begin(std::byte* const* arguments, std::byte** pointers) const {
    for (size_t k = 0; k < slots; ++k) pointers[k] = arguments[args[k]] + offsets[k];
  }
  // Adds to the slots' pointers what leads to an element, by the index of the outer loops.
  void advance(std::byte** pointers, int64_t outer_index, int64_t row, int64_t column) const {
    for (size_t d = outer.size(); d-- > 0; outer_index /= outer[d])
      for (size_t k = 0; k < slots; ++k)
        pointers[k] += outer_index % outer[d] * outer_steps[d * slots + k];
    for (size_t k = 0; k < slots; ++k) pointers[k] += row * row_steps[k] + column * column_steps[k];
  }
  // Moves the slots' pointers from one index of the outer loops to the next, if there is one.
  void step(std::byte** pointers, int64_t outer_index) const {
    for (size_t d = outer.size(); d-- > 0; outer_index /= outer[d]) {
      const int64_t* steps = &outer_steps[d * slots];
      const int64_t at = outer_index % outer[d];
      if (at + 1 < outer[d]) {
        for (size_t k = 0; k < slots; ++k) pointers[k] += steps[k];
        return;
      }
      for (size_t k = 0; k < slots; ++k) pointers[k] -= at * steps[k];
    }
  }
};

inline constexpr int64_t most_chunk_elements = 1 << 15;  // what one worker takes at a time, about

// Of a nest that reduces columns, in the order of work/reduce.h: run_columns.cpp. The frame
// has elements. Up to `alone` of them are one worker's.
work::Kernel bind_columns(const Nest& nest, Walks walks, int64_t alone);

}  // namespace gradus::fusion::cpu
