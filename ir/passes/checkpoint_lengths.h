// How long segments of loops are, so that they keep no more than they may.
#pragma once

#include "gradus/attributes.h"

namespace gradus::ir {

// Bytes, and steps.
struct LoopCosts {
  int64_t memory = 0;   // what may be kept
  int64_t steps = 0;    // of each loop
  int64_t step = 0;     // what is stacked of a step
  int64_t carries = 0;  // what is carried
};

// No segments where everything fits, else as few levels of them as fit: with m levels some
// (m + 1) (T s / c)^(1 / (m + 1)) c bytes are kept, for T steps of s bytes and carries of c, and
// each level takes the steps once more (A. Griewank, Achieving logarithmic growth of temporal and
// spatial complexity in reverse automatic differentiation, 1992, of which these are the uniform
// schedules). Throws Error with how many bytes would do.
ops::Ints checkpoint_lengths(const LoopCosts& costs);

}  // namespace gradus::ir
