// The places of the elements that are not zero.
#include "ops/nonzero.h"

#include "gradus/error.h"
#include "kernels/make.h"

namespace gradus::kernels {

namespace {

void run_nonzero(const Nonzero& p, std::byte* const* args, KernelScope&) {
  if (int64_t n = ops::count_nonzero(p.x, args[0]); n != p.count)
    throw Error("nonzero: {} elements are not zero, and `count` is {}", n, p.count);
  auto* y = reinterpret_cast<int64_t*>(args[1]);
  ops::for_each_nonzero(p.x, args[0], [&](const Sizes& place) {
    for (int64_t i : place) *y++ = i;
  });
}

}  // namespace

Kernel make_kernel(const Nonzero& w) { return Kernel::of<run_nonzero>(w); }

}  // namespace gradus::kernels
