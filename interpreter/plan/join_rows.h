// Sums of a large product and a row.
#pragma once

#include "interpreter/plan/draft.h"

namespace gradus::interpreter {

// Given    all instructions are bound; how often each local is read
// Execute  finds sums of a large product, which nobody else reads, and a row, where no kernel reads
//          the sum: such a kernel would read the product as well
// Result   where there is code for both in one, the two are a group of that work
void join_rows(Draft& draft, const std::vector<uint32_t>& uses);

// Whether an instruction computes one result that somebody reads, into memory of its own, by work
// that nests can do.
bool can_fuse(Draft& draft, uint32_t index);

}  // namespace gradus::interpreter
