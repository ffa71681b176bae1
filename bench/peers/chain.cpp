// The pointwise chain beside libtorch, loops by hand, NumExpr and the machine's own bandwidth, all
// in turns in one run, on one thread and on two.
#include "bench/chain.h"

#include <torch/torch.h>

namespace gradus::bench {
namespace {

void chain(benchmark::State& bench) {
  const int workers = static_cast<int>(bench.range(0));
  at::set_num_threads(workers);
  ChainContest contest(workers);
  std::vector<at::Tensor> in;
  for (const Tensor& t : contest.inputs())
    in.push_back(at::from_blob(const_cast<std::byte*>(t.data()), {chain_elements}).clone());
  contest.add("libtorch", [&] {
    benchmark::DoNotOptimize(at::tanh(in[0] * in[1] + in[2]) * at::sigmoid(in[0]) - in[2] * 0.5);
  });
  contest.run(bench);
}
BENCHMARK(chain)->Arg(1)->Arg(2)->UseManualTime()->Iterations(15);

}  // namespace
}  // namespace gradus::bench

BENCHMARK_MAIN();
