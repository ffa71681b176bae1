// Kernels of a thread for each element of a result, or four: divisions of integers that look at
// their divisors, windows of images as columns and back, their greatest elements, random bits,
// triangular solves.
#pragma once

#include "fusion/cuda/source.h"
#include "work/work.h"

namespace gradus::fusion::cuda {

// divide    a divisor of zero is told, and its result is 0
//           x, y, target, faults, items, size[rank], x_by[rank], y_by[rank]
Source division_source(const work::Pointwise& w, bool wide);

// unfold    an element of the columns, 0 beside the image
// fold      an element of the image: what each tap gives, in order
//           source, target, items, channels, then of the operand the strides of batch, channel or
//           row of the columns, image's row or window, image's column; then for the two axes each
//           image, windows, kernel, stride, padding, dilation
Source columns_source(const work::Columns& w, bool wide);

// max_pool  the greatest of each window, the first of several, or the last NaN
//           x, values, places, items, channels, then of x the strides of batch, channel and the
//           three axes, then for each axis as above
Source max_pool_source(const work::MaxPool& w, bool wide);

// random    four elements of philox's, of ops/philox.h
//           key, target, count, key_by
Source random_source(bool wide);

// solve     a column of a solution: rows in order, each with those before it
//           a, b, target, scratch (f64), count, n, m, then of a and b the strides of row and column
//           (a's the other way where it is transposed), size[rank], a_by[rank], b_by[rank]
Source solve_source(const work::Solve& w, int rank, bool wide);

}  // namespace gradus::fusion::cuda
