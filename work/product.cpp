#include "work/product.h"

#include <utility>

namespace gradus::work {

namespace {

// Multiplications from which on a library is called. Measured on Zen 4, own loops against library:
// f32 64^3 4.8 / 5.0 us, 128^3 38.2 / 37.5, 256^3 339 / 304; f64 64^3 10.1 / 9.2, 128^3 78 / 89,
// 256^3 778 / 739; bf16 16^3 0.41 / 0.70, 32^3 1.75 / 1.01, 64^3 7.4 / 2.8.
constexpr double library_work = 1 << 20, library_work_bf16 = 1 << 14;

}  // namespace

Gemm with_wide_result(const Gemm& g) {
  if (g.n != 1 || g.m == 1) return g;
  Gemm t = g;
  t.m = 1;
  t.n = g.m;
  t.a_row = 0;
  t.a_column = g.b_row;
  t.b_row = g.a_column;
  t.b_column = g.a_row;
  for (Gemm::Batch& b : t.batch) std::swap(b.a_stride, b.b_stride);
  return t;
}

double work_of(const Gemm& g) {
  return static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
}

std::optional<Gemm> packed(const Gemm& g) {
  constexpr int64_t most_rows = 12;  // of a: with more, rearranging b is little beside the work
  constexpr int64_t most_elements = 1 << 14;
  if ((g.dtype != DType::f32 && g.dtype != DType::f64) || !g.batch.empty() || g.k < 2 || g.n < 2 ||
      g.k > gemm_block || g.k * g.n > most_elements || g.m < 1 || g.m > most_rows || g.b_row != 1 ||
      g.b_column < g.k || is_large(g))
    return std::nullopt;
  Gemm p = g;
  p.b_row = g.n;
  p.b_column = 1;
  return p;
}

bool is_large(const Gemm& g) {
  // A vector's product is bound by memory: it reads the matrix once.
  if (g.m < 2 || g.n < 2 || g.k < 2) return false;
  switch (g.dtype) {
    case DType::f64:
    case DType::f32:
      return work_of(g) >= library_work;
    case DType::bf16:
      return work_of(g) >= library_work_bf16;
    default:
      return false;
  }
}

}  // namespace gradus::work
