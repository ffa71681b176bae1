// The pointwise chain beside loops by hand, NumExpr and the machine's own bandwidth, on one thread
// and on two. With libtorch as well: bench_peer_chain.
#include "bench/chain.h"

namespace gradus::bench {
namespace {

void chain(benchmark::State& bench) { ChainContest(static_cast<int>(bench.range(0))).run(bench); }
BENCHMARK(chain)->Arg(1)->Arg(2)->UseManualTime()->Iterations(15);

}  // namespace
}  // namespace gradus::bench

BENCHMARK_MAIN();
