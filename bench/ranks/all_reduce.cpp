// all_reduce of a group of MPI's processes beside MPI_Allreduce called bare, in turns, in one run:
//   mpirun -np 2 build/dev/bin/bench_all_reduce
// Rank 0 prints medians in microseconds, and where the two differ.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include <dlfcn.h>

#include "gradus/communicator.h"
#include "gradus/error.h"
#include "ranks/mpi_library.h"

using namespace gradus;

namespace {

using Clock = std::chrono::steady_clock;
using Bare = int (*)(const void*, void*, int, ranks::MpiHandle, ranks::MpiHandle, ranks::MpiHandle);

// 8 bytes to 16 MiB.
constexpr int64_t elements[] = {1, 8, 64, 512, 4096, 1 << 15, 1 << 17, 1 << 18, 1 << 21};

double median(std::vector<double>& times) {
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

template <class F>
double microseconds(F call) {
  const auto begin = Clock::now();
  call();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

}  // namespace

int main() {
  const auto group = mpi_ranks();
  const ranks::MpiLibrary& mpi = ranks::mpi_library("");
  const auto bare = reinterpret_cast<Bare>(dlsym(RTLD_DEFAULT, "MPI_Allreduce"));
  GRADUS_CHECK(bare);
  if (group->rank() == 0)
    std::printf("%s, %d ranks; microseconds, medians\n%10s %10s %10s %8s\n", mpi.name.c_str(),
                group->size(), "bytes", "gradus", "bare", "ratio");
  for (const int64_t n : elements) {
    std::vector<double> x(static_cast<size_t>(n), 1.0), y(static_cast<size_t>(n));
    const auto* in = reinterpret_cast<const std::byte*>(x.data());
    auto* out = reinterpret_cast<std::byte*>(y.data());
    const CollectiveCall call{CollectiveKind::all_reduce, {}, DType::f64, n, 0};
    std::vector<double> ours, theirs;
    const int rounds = n < 1 << 15 ? 2000 : 100;
    for (int round = 0; round < rounds; ++round) {
      ours.push_back(microseconds([&] { group->run(call, in, out); }));
      theirs.push_back(microseconds(
          [&] { bare(x.data(), y.data(), static_cast<int>(n), mpi.doubles, mpi.sum, mpi.world); }));
    }
    const double a = median(ours), b = median(theirs);
    if (group->rank() == 0)
      std::printf("%10lld %10.2f %10.2f %8.2f\n", static_cast<long long>(8 * n), a, b, a / b);
  }
}
