#include "ops/packing.h"

#include <algorithm>
#include <cstring>

#include "ops/attributes.h"
#include "ops/gemm_kernel.h"
#include "ops/isa.h"
#include "ops/matmul.h"
#include "ops/product_kernel.h"
#include "ops/registry.h"

namespace gradus::ops {

namespace {

constexpr int64_t most_rows = 12;  // of a: with more, rearranging b is little beside the work
constexpr int64_t most_elements = 1 << 14;

// to[i, j] = from[i + j * stride], j neighbours.
struct Turn {
  int64_t rows, columns, stride;
};

template <class C>
void run_turn(const void* parameters, std::byte* const* args, ir::KernelScope&) {
  using K = GemmKernels<C>;
  const Turn& t = *static_cast<const Turn*>(parameters);
  const C* from = reinterpret_cast<const C*>(args[0]);
  C* to = reinterpret_cast<C*>(args[1]);
  alignas(64) C panel[gemm_block * K::columns];
  int64_t j = 0;
  for (; j + K::columns <= t.columns; j += K::columns) {
    gemm_kernels<C>(cpu_has_v3()).transpose(from + j * t.stride, t.stride, t.rows, panel);
    for (int64_t i = 0; i < t.rows; ++i)
      std::memcpy(to + i * t.columns + j, panel + i * K::columns, K::columns * sizeof(C));
  }
  for (; j < t.columns; ++j)
    for (int64_t i = 0; i < t.rows; ++i) to[i * t.columns + j] = from[i + j * t.stride];
}

}  // namespace

std::optional<Packing> packing_of(const ir::Operator& op, const ir::Attributes& attributes,
                                  std::span<const Layout> in) {
  if (&op != &operator_record<Matmul> || in[0].rank() != 2 || in[1].rank() != 2) return {};
  const Layout &a = in[0], &b = in[1];
  if (b.dtype != DType::f32 && b.dtype != DType::f64) return {};
  // Where b's k are among its dimensions.
  const int inner = attributes_as<MatmulAttr>(attributes).transpose_b ? 1 : 0;
  const int64_t k = b.shape[inner], n = b.shape[1 - inner];
  if (k < 2 || n < 2 || k > gemm_block || k * n > most_elements || a.shape[0] < 1 ||
      a.shape[0] > most_rows || b.strides[inner] != 1 || b.strides[1 - inner] < k)
    return {};
  Gemm g;
  g.dtype = b.dtype;
  g.m = a.shape[0], g.n = n, g.k = k;
  g.a_row = a.strides[0], g.a_column = a.strides[1];
  g.b_row = 1, g.b_column = b.strides[1 - inner];
  if (is_for_library(g)) return {};
  Packing packing{1, b};
  packing.layout.strides[inner] = n;
  packing.layout.strides[1 - inner] = 1;
  return packing;
}

ir::Kernel bind_packing(const Layout& from, const Packing& packing) {
  const int column = packing.layout.strides[0] == 1 ? 0 : 1;
  const Turn turn{from.shape[1 - column], from.shape[column], from.strides[column]};
  return {from.dtype == DType::f64 ? run_turn<double> : run_turn<float>,
          std::make_shared<const Turn>(turn), 0};
}

}  // namespace gradus::ops
