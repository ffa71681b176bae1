#include <algorithm>
#include <optional>

#include "gradus/error.h"
#include "gradus/isa.h"
#include "kernels/gemm.h"
#include "kernels/gemm_kernel.h"
#include "kernels/library_product.h"
#include "kernels/make.h"

namespace gradus::kernels {

namespace {

// Of own products that are worth neither packing operands nor a second worker.
constexpr double few_tiles_work = 1 << 14;

void run_own(const Gemm& g, std::byte* const* args, KernelScope& scope) {
  gemm(g, args[0], args[1], args[2], scope.scratch, scope.workers);
}

// A product that is one tile of ours: nothing is left to decide when it runs.
template <class C>
void run_tile(const GemmTile<C>& tile, std::byte* const* args, KernelScope&) {
  GemmTile<C> t = tile;
  t.a = reinterpret_cast<const C*>(args[0]);
  t.b = reinterpret_cast<const C*>(args[1]);
  t.c = reinterpret_cast<C*>(args[2]);
  gemm_kernels<C>(cpu_level()).tile(t);
}

// A product of several such tiles, of operands that are read where they lie.
template <class C>
void run_tiles(const GemmTile<C>& whole, std::byte* const* args, KernelScope&) {
  using K = GemmKernels<C>;
  const GemmKernels<C>& kernels = gemm_kernels<C>(cpu_level());
  GemmTile<C> t = whole;
  const int64_t width = whole.rows == 1 ? kernels.row_columns : kernels.tile_columns;
  for (int64_t j = 0; j < whole.columns; j += width) {
    t.columns = std::min(width, whole.columns - j);
    t.b = reinterpret_cast<const C*>(args[1]) + j;
    for (int64_t i = 0; i < whole.rows; i += K::rows) {
      t.rows = std::min(K::rows, whole.rows - i);
      t.a = reinterpret_cast<const C*>(args[0]) + i * whole.a_row;
      t.c = reinterpret_cast<C*>(args[2]) + i * whole.c_row + j;
      kernels.tile(t);
    }
  }
}

template <class C>
std::optional<Kernel> make_tile(const Gemm& g) {
  using K = GemmKernels<C>;
  const bool fits = (g.m <= K::rows && g.n <= K::columns) || (g.m == 1 && g.n <= K::wide);
  if (!g.batch.empty() || std::min({g.m, g.n, g.k}) < 1 || g.k > gemm_block ||
      (g.b_column != 1 && g.n > 1) || (!fits && (g.n == 1 || work_of(g) > few_tiles_work)))
    return std::nullopt;
  const GemmTile<C> tile{g.m,     g.n,     g.k,     nullptr, g.a_row, g.a_column,
                         nullptr, g.b_row, nullptr, g.n,     true};
  return fits ? Kernel::of<run_tile<C>>(tile) : Kernel::of<run_tiles<C>>(tile);
}

}  // namespace

// A library for large products with AVX-512, and without AVX2; our own loops elsewhere, and for
// every vector. With AVX2, our loops are as fast as a library's or faster.
Kernel make_kernel(const Product& w) {
  GRADUS_CHECK(!w.adds_row);
  const Gemm& g = w.gemm;
  if (cpu_level() != CpuLevel::v3)
    if (auto kernel = make_library(g)) return *kernel;
  if (g.dtype == DType::f32)
    if (auto kernel = make_tile<float>(g)) return *kernel;
  if (g.dtype == DType::f64)
    if (auto kernel = make_tile<double>(g)) return *kernel;
  return Kernel::of<run_own>(g, gemm_scratch_bytes(g));
}

}  // namespace gradus::kernels
