// Random bits: Philox.
#include <algorithm>

#include "kernels/make.h"
#include "ops/philox.h"

namespace gradus::kernels {

namespace {

constexpr int64_t chunk = 1 << 14;  // elements; a multiple of 4

void run_key(const RandomBits& p, const int64_t* given, int64_t* y, KernelScope& scope) {
  const auto key = static_cast<uint64_t>(given[0]);
  const auto second = static_cast<uint64_t>(given[p.key_stride]);
  const uint64_t stream = p.by_block ? 0 : second, begin = p.by_block ? second : 0;
  scope.workers.parallel_parts(p.count, chunk, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i += 4) {
      const uint64_t at = begin + static_cast<uint64_t>(i / 4);
      auto four = ops::philox({static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32),
                               static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                              {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
      for (int64_t k = 0; k < std::min<int64_t>(4, last - i); ++k)
        y[i + k] = four[static_cast<size_t>(k)];
    }
  });
}

void run_bits(const RandomBits& p, std::byte* const* args, KernelScope& scope) {
  const auto* keys = reinterpret_cast<const int64_t*>(args[0]);
  auto* y = reinterpret_cast<int64_t*>(args[1]);
  for (int64_t k = 0; k < p.keys; ++k) run_key(p, keys + k * p.keys_stride, y + k * p.count, scope);
}

}  // namespace

Kernel make_kernel(const RandomBits& w) { return Kernel::of<run_bits>(w); }

}  // namespace gradus::kernels
