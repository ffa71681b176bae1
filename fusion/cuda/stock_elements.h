// Kernels of a thread for each element of a result, or four: divisions of integers that look at
// their divisors, windows of images as columns and back, their greatest elements, random bits,
// triangular solves.
#pragma once

#include "fusion/cuda/parameters.h"
#include "work/work.h"

namespace gradus::fusion::cuda {

// divide    a divisor of zero is told to the argument `faults`, and its result is 0
StockKernel division_kernel(const work::Pointwise& w, int faults);

// unfold    an element of the columns, 0 beside the image
// fold      an element of the image: what each tap gives, in order
StockKernel columns_kernel(const work::Columns& w);

// max_pool  the greatest of each window, the first of several, or the last NaN
StockKernel max_pool_kernel(const work::MaxPool& w);

// random    four elements of philox's, of ops/philox.h
StockKernel random_kernel(const work::RandomBits& w);

// solve     a column of a solution: rows in order, each with those before it; in f64, in scratch
//           memory
StockKernel solve_kernel(const work::Solve& w);

}  // namespace gradus::fusion::cuda
