// Kernels that are not made of nests: copies, reading and writing by indices, reductions of any
// dimensions, products. Text, of which a type and a rank make a source.
#pragma once

#include <string>

#include "fusion/cuda/source.h"
#include "work/work.h"

namespace gradus::fusion::cuda {

// A source's kernel takes one struct of fields of 64 bits: `fields`, in this order. Lists have the
// kernel's rank. Items are counted in 64 bits where `wide`, else in 32.
//
// copy    target[i . to] = source[i . from] for i < size; or = value
//         source, target, items, value, size[rank], from[rank], to[rank]
Source copy_source(const work::Copy& move, bool wide);

// index   see work::Index. Threads share the first `parallel` dimensions, and each of them
//         walks all others in order. `atomic`: the sums are atomic additions.
//         indexed, plain, faults, items, steps, alpha (bits), size[rank], indexed_by[rank],
//         plain_by[rank], then for each index its address, bound, step, by[rank]
struct IndexShape {
  int rank, parallel;
  bool wide, atomic;
};
Source index_source(const work::Index& w, const IndexShape& shape);
// Whether it adds up numbers of 32 or 64 bits, which there are atomic additions of.
bool adds_atomically(const work::Index& w);

// reduce  the partials of chunks of 1024 elements, in the order of work/reduce.h: of 16
//         outputs at a time. With one chunk that is the result.
//         source, target, outputs, count, chunks, kept_size[kept], kept_by[kept],
//         reduced_size[reduced], reduced_by[reduced]
Source reduce_source(const work::Reduce& w, bool one_chunk);
// fold    the partials of each output into one
//         partials, target, outputs, chunks
Source fold_source(const work::Reduce& w);

// product in the order of work/product.h, by tiles of 16 by 16
//         a, b, c, batch, m, n, k, a_row, a_column, b_row, b_column, size[rank], a_by[rank],
//         b_by[rank]
Source product_source(DType dtype, int batch_rank);

// triangle  row-major elements of x, or 0: column - row <= diagonal where `lower`, else >=
//           source, target, items, rows, columns, diagonal, size[rank], by[rank]
Source triangle_source(const work::Triangle& w, bool wide);

// scan      one thread for each line along the dimension
//           a, b, result, lines, length, inner, a_by, b_by, size[rank], a_of[rank], b_of[rank]
Source scan_source(const work::Scan& w, int rank);

// range     first + i * step
//           target, items, start, step, first (bits), by (bits)
Source range_source(const work::Range& w, bool wide);

}  // namespace gradus::fusion::cuda
