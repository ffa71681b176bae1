// The inner loops of matrix products: tiles of the result that live in registers.
#pragma once

#include <cstdint>

#include "gradus/isa.h"

namespace gradus::kernels {

// c[i, j] = (first ? 0 : c[i, j]) + chain over k of a[i, k] * b[k, j], the chain as in
// work/product.h. Strides in elements; b's and c's columns are neighbours. Where there are offsets,
// they take the strides' place: b_rows for each k; a_rows for each i, and a_columns for each k.
template <class C>
struct GemmTile {
  int64_t rows, columns, k;
  const C* a;
  int64_t a_row, a_column;
  const C* b;
  int64_t b_row;
  C* c;
  int64_t c_row;
  bool first;
  const int64_t *b_rows = nullptr, *a_rows = nullptr, *a_columns = nullptr;
};

// C is double, float or int64_t. One set per instruction set; all give the same bits.
template <class C>
struct GemmKernels {
  static constexpr int64_t rows = 6;                  // of a tile, at most
  static constexpr int64_t read_rows = 8;             // by `transpose_rows`
  static constexpr int64_t columns = 64 / sizeof(C);  // of a tile everywhere, and of a panel
  static constexpr int64_t wide = 4 * columns;        // of a tile of one row
  static constexpr int64_t widest = 4 * wide;         // the same, of strides, where there is v4
  int64_t row_columns;                                // of those: `wide` or `widest`
  // Of a tile of several rows: `columns`, or twice as many.
  int64_t tile_columns;
  void (*tile)(const GemmTile<C>&);
  // target[k * columns + j] = source[k + j * stride]: packs a panel whose k are neighbours.
  void (*transpose)(const C* source, int64_t stride, int64_t k, C* target);
  // target[k * rows + i] = source[k + i * stride] for i < rows: the same for a's rows. Reads
  // `read_rows` of them.
  void (*transpose_rows)(const C* source, int64_t stride, int64_t k, C* target);
};

// The loops of this level, or of one below where the library has none.
template <class C>
const GemmKernels<C>& gemm_kernels(CpuLevel level);

}  // namespace gradus::kernels
