// Training steps of models beside libtorch's eager ones, in one run and in turns, on one thread and
// on two; what they compute is compared first. To see libtorch at its best:
// OPENBLAS_CORETYPE=SkylakeX ATEN_CPU_CAPABILITY=avx512.
#include <iostream>

#include "bench/peers/model_steps.h"
#include "bench/side_by_side.h"
#include "bench/train_step.h"

namespace gradus::bench {
namespace {

// The largest difference, by the largest value.
double difference(const std::vector<Tensor>& ours, const Tensors& theirs) {
  double worst = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    if (!theirs[i].defined()) continue;  // libtorch's b3 of a critic has none
    const Sizes& strides = ours[i].layout().strides;
    at::Tensor mine = at::from_blob(const_cast<std::byte*>(ours[i].data()), theirs[i].sizes(),
                                    at::IntArrayRef(strides.data(), strides.size()));
    worst = std::max(
        worst,
        ((mine - theirs[i]).abs().max() / theirs[i].abs().max().clamp_min(1e-6)).item<double>());
  }
  return worst;
}

void step(benchmark::State& bench, size_t n) {
  const Model model = models()[n];
  const Peer& peer = peers[n];
  const int workers = static_cast<int>(bench.range(0));
  at::set_num_threads(workers);
  TrainStep ours(model, workers, FusionMode::first);
  Tensors in = torch_inputs(model, ours.inputs());
  const double apart = difference(ours.run(), peer(in));
  if (!(apart < 1e-3)) return bench.SkipWithError(fmt::format("apart by {}", apart).c_str());
  side_by_side(
      bench, Clock::wall, [&] { benchmark::DoNotOptimize(ours.run()); },
      [&] { benchmark::DoNotOptimize(peer(in)); });
  bench.counters["difference"] = apart;
}

const bool registered = register_models(step);

}  // namespace
}  // namespace gradus::bench

BENCHMARK_MAIN();
