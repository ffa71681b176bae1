// The engine beside libtorch's, in one run: the same graphs, one thread.
#include "gradus/engine.h"

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include "bench/double_backward.h"
#include "gradus/custom_function.h"

namespace gradus::bench {
namespace {

benchmark::Counter per_node(int64_t nodes) {
  return {static_cast<double>(nodes) * 1e-9,
          benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert};
}

// A custom function whose backward hands the cotangent on.
struct HandOn final : autograd::CustomFunction {
  std::string name() const override { return "HandOn"; }
  std::vector<Tensor> forward(autograd::FunctionContext&,
                              std::span<const autograd::Variable> in) const override {
    return {in[0].data().copy()};
  }
  autograd::Variables backward(autograd::FunctionContext&,
                               const autograd::Variables& dy) const override {
    return dy;
  }
};
struct TorchHandOn : torch::autograd::Function<TorchHandOn> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, torch::Tensor x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list dy) {
    return dy;
  }
};

autograd::Variable one(bool requires_grad) {
  return autograd::Variable(one_value(0.5), requires_grad);
}
torch::Tensor torch_one(bool requires_grad) {
  at::set_num_threads(1);
  return torch::full({1}, 0.5f, torch::requires_grad(requires_grad));
}

autograd::Variable chain(const autograd::Variable& x, int64_t nodes) {
  auto function = std::make_shared<const HandOn>();
  autograd::Variable y = x;
  for (int64_t i = 0; i < nodes; ++i)
    y = autograd::CustomFunction::apply(function, std::array{y})[0];
  return y;
}
torch::Tensor torch_chain(const torch::Tensor& x, int64_t nodes) {
  torch::Tensor y = x;
  for (int64_t i = 0; i < nodes; ++i) y = TorchHandOn::apply(y);
  return y;
}

// Building a chain of custom functions, and taking it down.
void gradus_build_custom(benchmark::State& bench) {
  autograd::Variable x = one(true);
  for (auto _ : bench) benchmark::DoNotOptimize(chain(x, bench.range(0)));
  bench.counters["ns_per_node"] = per_node(bench.range(0));
}
void torch_build_custom(benchmark::State& bench) {
  torch::Tensor x = torch_one(true);
  for (auto _ : bench) benchmark::DoNotOptimize(torch_chain(x, bench.range(0)));
  bench.counters["ns_per_node"] = per_node(bench.range(0));
}
BENCHMARK(gradus_build_custom)->Arg(10'000)->Unit(benchmark::kMillisecond);
BENCHMARK(torch_build_custom)->Arg(10'000)->Unit(benchmark::kMillisecond);

// Its backward.
void gradus_run_custom(benchmark::State& bench) {
  autograd::Variable x = one(true), y = chain(x, bench.range(0)), ct = one(false);
  for (auto _ : bench)
    benchmark::DoNotOptimize(
        autograd::grad(std::array{y}, std::array{x}, std::array{ct}, {.keep_graph = true}));
  bench.counters["ns_per_node"] = per_node(bench.range(0));
}
void torch_run_custom(benchmark::State& bench) {
  torch::Tensor x = torch_one(true), y = torch_chain(x, bench.range(0)), ct = torch_one(false);
  for (auto _ : bench)
    benchmark::DoNotOptimize(torch::autograd::grad({y}, {x}, {ct}, /*retain_graph=*/true));
  bench.counters["ns_per_node"] = per_node(bench.range(0));
}
BENCHMARK(gradus_run_custom)->Arg(10'000)->Unit(benchmark::kMillisecond);
BENCHMARK(torch_run_custom)->Arg(10'000)->Unit(benchmark::kMillisecond);

template <class Chain>
void run(benchmark::State& bench, Chain&& chain) {
  for (auto _ : bench) benchmark::DoNotOptimize(chain.run());
  bench.counters["ns_per_operation"] = per_node(bench.range(0));
}

// Forward, backward and the backward of that, of a chain of tanh: eagerly, by `eval`, by stages.
void gradus_double_backward(benchmark::State& bench) { run(bench, EagerChain(bench.range(0))); }
void gradus_double_backward_by_eval(benchmark::State& bench) {
  run(bench, evaluated_chain(bench.range(0)));
}
void gradus_double_backward_by_stages(benchmark::State& bench) {
  run(bench, symbolic_chain(bench.range(0)));
}
void torch_double_backward(benchmark::State& bench) {
  torch::Tensor x = torch_one(true), ct = torch_one(false);
  for (auto _ : bench) {
    torch::Tensor y = x;
    for (int64_t i = 0; i < bench.range(0); ++i) y = torch::tanh(y);
    torch::Tensor g = torch::autograd::grad({y}, {x}, {ct}, true, /*create_graph=*/true)[0];
    benchmark::DoNotOptimize(torch::autograd::grad({g}, {x}, {ct}));
  }
  bench.counters["ns_per_operation"] = per_node(bench.range(0));
}
BENCHMARK(gradus_double_backward)->Arg(10'000)->Unit(benchmark::kMillisecond);
BENCHMARK(torch_double_backward)->Arg(10'000)->Unit(benchmark::kMillisecond);
BENCHMARK(gradus_double_backward_by_eval)->Arg(10'000)->Unit(benchmark::kMillisecond);
BENCHMARK(gradus_double_backward_by_stages)->Arg(10'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace gradus::bench

BENCHMARK_MAIN();
