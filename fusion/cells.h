// Where every load has one operand.
#pragma once

#include "fusion/nest.h"

namespace gradus::fusion {

// A box of the loops in which no load goes from one operand to the next.
struct Cell {
  Sizes first, sizes;
  std::vector<size_t> part;  // by load: which operand, from its first one
};

// The boxes that a frame falls into; together they are the loops. Where no load has several
// operands, that is one. The frame fits.
std::vector<Cell> cells_of(const Nest& nest, const Frame& frame);

// How many they are.
int64_t count_cells(const Nest& nest, const Frame& frame);

// The lengths of the pieces into which they cut a row.
std::vector<int64_t> row_pieces(const Nest& nest, const Frame& frame);

}  // namespace gradus::fusion
