#include "ops/gemm.h"

#include <algorithm>
#include <cmath>

#include "tensor/convert.h"

namespace gradus::ops {

namespace {

template <class C>
C fused(C a, C b, C c) {
  if constexpr (std::is_integral_v<C>)
    return static_cast<C>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b) +
                          static_cast<uint64_t>(c));
  else return std::fma(a, b, c);
}

template <class T, class C>
void matrix(const Gemm& g, const T* a, const T* b, T* c) {
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j) {
      C sum = 0;
      for (int64_t k = 0; k < g.k;) {
        C acc = 0;
        int64_t last = std::min(g.k, k + gemm_block), first = k;
        for (; k < last; ++k)
          acc = fused(convert<C>(a[i * g.a_row + k * g.a_column]),
                      convert<C>(b[k * g.b_row + j * g.b_column]), acc);
        sum = first == 0 ? acc : sum + acc;
      }
      c[i * g.n + j] = convert<T>(sum);
    }
}

}  // namespace

size_t gemm_scratch_bytes(const Gemm&) { return 0; }

void gemm(const Gemm& g, const std::byte* a, const std::byte* b, std::byte* c, std::byte*,
          WorkerPool&) {
  int64_t count = 1;
  for (const Gemm::Batch& batch : g.batch) count *= batch.size;
  visit_dtype(g.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = std::conditional_t<
        std::is_same_v<T, double>, double,
        std::conditional_t<std::is_integral_v<T>, int64_t, float>>;
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = i, at_a = 0, at_b = 0;
      for (size_t d = g.batch.size(); d-- > 0;) {
        at_a += rest % g.batch[d].size * g.batch[d].a_stride;
        at_b += rest % g.batch[d].size * g.batch[d].b_stride;
        rest /= g.batch[d].size;
      }
      matrix<T, C>(g, reinterpret_cast<const T*>(a) + at_a, reinterpret_cast<const T*>(b) + at_b,
                   reinterpret_cast<T*>(c) + i * g.m * g.n);
    }
  });
}

}  // namespace gradus::ops
