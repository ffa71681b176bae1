// Reductions of what lies in a row.
#pragma once

#include "work/reduce.h"

namespace gradus::kernels {

// The reduction of x[0 .. n), of the accumulator's type (bool for `all` and `any`), into result.
void reduce_run(work::Reducer reducer, Compute compute, const void* x, int64_t n, void* result);

}  // namespace gradus::kernels
