// Training steps of models: fused beside unfused, on one worker and on two.
#include "bench/side_by_side.h"
#include "bench/train_step.h"

namespace gradus::bench {
namespace {

using fusion::FusionMode;

void step(benchmark::State& bench, const Model& model) {
  const int workers = static_cast<int>(bench.range(0));
  TrainStep fused(model, workers, FusionMode::first), unfused(model, workers, FusionMode::off);
  side_by_side(
      bench, Clock::wall, [&] { benchmark::DoNotOptimize(fused.run()); },
      [&] { benchmark::DoNotOptimize(unfused.run()); });
}

const bool registered = [] {
  for (const Model& m : models())
    benchmark::RegisterBenchmark(m.name.c_str(), [m](benchmark::State& bench) { step(bench, m); })
        ->Arg(1)
        ->Arg(2)
        ->UseManualTime()
        ->Iterations(20);
  return true;
}();

}  // namespace
}  // namespace gradus::bench

BENCHMARK_MAIN();
