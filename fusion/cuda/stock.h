// Kernels that are not made of nests: copies, reading and writing by indices, reductions of any
// dimensions, products. Text, of which work makes a source and the parameters of its launches.
#pragma once

#include "fusion/cuda/parameters.h"
#include "work/work.h"

namespace gradus::fusion::cuda {

// copy      target[i . to] = source[i . from] for i < size; or = value
StockKernel copy_kernel(const work::Copy& move);

// index     see work::Index. The argument `faults` has a fault for each index. `atomics`: the sums
//           are atomic additions where there are such.
StockKernel index_kernel(const work::Index& w, int faults, bool atomics);
// Whether it adds up numbers of 32 or 64 bits, which there are atomic additions of.
bool adds_atomically(const work::Index& w);

// reduce    the partials of chunks of 1024 elements, in the order of work/reduce.h: of 16
//           outputs at a time. With one chunk that is the result.
StockKernel reduce_kernel(const work::Reduce& w);
// fold      the partials of each output into one, where there are several
StockKernel fold_kernel(const work::Reduce& w);
int64_t partial_bytes(const work::Reduce& w);  // of scratch memory

// The fields kept_size[], kept_by[], reduced_size[], reduced_by[].
void add_axes(Parameters& p, const work::Axes& kept, const work::Axes& reduced);

// product   in the order of work/product.h, by tiles of 16 by 16
StockKernel product_kernel(work::Gemm g);

// triangle  row-major elements of x, or 0: column - row <= diagonal where `lower`, else >=
StockKernel triangle_kernel(const work::Triangle& w);

// scan      one thread for each line along the dimension; of log_sum_exp there is none
StockKernel scan_kernel(const work::Scan& w);

// range     first + i * step
StockKernel range_kernel(const work::Range& w);

}  // namespace gradus::fusion::cuda
