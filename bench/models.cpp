// Training steps of models: fused beside unfused, on one worker and on two.
#include "bench/side_by_side.h"
#include "bench/train_step.h"

namespace gradus::bench {
namespace {

void step(benchmark::State& bench, size_t n) {
  const Model model = models()[n];
  const int workers = static_cast<int>(bench.range(0));
  TrainStep fused(model, workers, FusionMode::first), unfused(model, workers, FusionMode::off);
  side_by_side(
      bench, Clock::wall, [&] { benchmark::DoNotOptimize(fused.run()); },
      [&] { benchmark::DoNotOptimize(unfused.run()); });
}

const bool registered = register_models(step);

}  // namespace
}  // namespace gradus::bench

BENCHMARK_MAIN();
