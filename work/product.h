// Matrix products.
//
// The order, which every element of a product keeps whatever the layout, the blocking, the
// instruction set and the number of threads: the sum over k is cut into blocks of gemm_block;
// within a block, an accumulator starts from +0 and takes acc = fma(a[i,k], b[k,j], acc), k
// ascending; the blocks' accumulators add up in order, c = ((s0 + s1) + s2) + …. Accumulators are
// f64 for f64, f32 for f32, f16 and bf16 (rounded once, at the end), and wrap for integers. A
// product over no k is 0.
#pragma once

#include "work/fields.h"

namespace gradus::work {

inline constexpr int64_t gemm_block = 256;

// c[batch, i, j] = sum over k of a[batch, i, k] * b[batch, k, j]; c lies without gaps, batch
// row-major. Strides are in elements, of any value from 0 up; all three have one dtype, not bool.
struct Gemm {
  struct Batch {
    int64_t size = 1, a_stride = 0, b_stride = 0;
    static constexpr auto fields() {
      return std::tuple(field("size", &Batch::size), field("a_stride", &Batch::a_stride),
                        field("b_stride", &Batch::b_stride));
    }
    friend bool operator==(const Batch&, const Batch&) = default;
  };
  DType dtype = DType::f32;
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_column = 0;  // strides of a over i and k
  int64_t b_row = 0, b_column = 0;  // strides of b over k and j
  SmallVector<Batch, 3> batch;      // outermost first
  static constexpr auto fields() {
    return std::tuple(field("dtype", &Gemm::dtype), field("m", &Gemm::m), field("n", &Gemm::n),
                      field("k", &Gemm::k), field("a_row", &Gemm::a_row),
                      field("a_column", &Gemm::a_column), field("b_row", &Gemm::b_row),
                      field("b_column", &Gemm::b_column), field("batch", &Gemm::batch));
  }
  friend bool operator==(const Gemm&, const Gemm&) = default;
};

// A product of one column is one of one row, b^T a^T: who computes in tiles has them wider than
// they are high. Operands change places then. Others stay as they are.
Gemm with_wide_result(const Gemm& g);

// Operands 0 and 1 into result 0.
struct Product {
  static constexpr std::string_view name = "product";
  Gemm gemm;
  // Operand 2, n elements without gaps, is added to each row of the product, in the accumulators'
  // type: the sum is rounded once. For a library, or not at all.
  bool adds_row = false;
  static constexpr auto fields() {
    return std::tuple(field("gemm", &Product::gemm), field("adds_row", &Product::adds_row));
  }
  friend bool operator==(const Product&, const Product&) = default;
};

// A small product that reads b across its rows had better read a copy of b that lies by rows, where
// more than one product reads b. That product, with the same sums; nothing for all else.
std::optional<Gemm> packed(const Gemm& g);

// Whether a product is worth a library's call: f32, f64 and bf16 from a size on. A library adds up
// in an order of its own.
bool is_large(const Gemm& g);
// Multiplications.
double work_of(const Gemm& g);

}  // namespace gradus::work
