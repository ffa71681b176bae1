// Code for putting rows in order.
#pragma once

#include "fusion/cuda/parameters.h"
#include "work/work.h"

namespace gradus::fusion::cuda {

// sort    a launch for each pass: runs of `width` places of each row, in order, become runs of
//         twice as many. An element's place is its place in its own run and the number of those in
//         the other that come before it. Runs of one element, of two, of four, .. go by turns from
//         one half of the scratch memory into the other; the last ones are the results.
StockKernel sort_kernel(const work::Sort& w);
int64_t sort_bytes(const work::Sort& w);  // of scratch memory

}  // namespace gradus::fusion::cuda
