// The interpreter beside libtorch's eager operators, in one run: the same chains, one thread.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <c10/core/InferenceMode.h>

#include "bench/programs.h"

namespace gradus::bench {
namespace {

constexpr int64_t nodes = 999;

void report(benchmark::State& bench) {
  bench.counters["ns_per_instruction"] = benchmark::Counter(
      static_cast<double>(nodes) * 1e-9,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void run_gradus(benchmark::State& bench, std::span<const char* const> ops) {
  ir::Module module = ir::parse(chain_text(nodes, ops, bench.range(0)));
  State state(Code::compile(module.program()));
  auto inputs = chain_inputs(bench.range(0));
  for (auto _ : bench) {
    state.restart();
    benchmark::DoNotOptimize(state.run(inputs));
  }
  report(bench);
}

void run_torch(benchmark::State& bench, std::span<const char* const> ops) {
  c10::InferenceMode inference;  // eager at its cheapest
  at::set_num_threads(1);
  at::Tensor x = at::full({bench.range(0)}, 0.5f), w = at::full({bench.range(0)}, 0.99f);
  for (auto _ : bench) {
    at::Tensor y = x;
    for (int64_t n = 0; n < nodes; ++n) {
      std::string_view op = ops[static_cast<size_t>(n) % ops.size()];
      y = op == "add" ? at::add(y, w) : op == "mul" ? at::mul(y, w) : at::tanh(y);
    }
    benchmark::DoNotOptimize(y);
  }
  report(bench);
}

void gradus_add_mul_tanh(benchmark::State& b) { run_gradus(b, add_mul_tanh); }
void torch_add_mul_tanh(benchmark::State& b) { run_torch(b, add_mul_tanh); }
void gradus_add_mul(benchmark::State& b) { run_gradus(b, add_mul); }
void torch_add_mul(benchmark::State& b) { run_torch(b, add_mul); }
void gradus_tanh(benchmark::State& b) { run_gradus(b, only_tanh); }
void torch_tanh(benchmark::State& b) { run_torch(b, only_tanh); }
BENCHMARK(gradus_add_mul_tanh)->Arg(1);
BENCHMARK(torch_add_mul_tanh)->Arg(1);
BENCHMARK(gradus_add_mul)->Arg(64);
BENCHMARK(torch_add_mul)->Arg(64);
BENCHMARK(gradus_tanh)->Arg(64);
BENCHMARK(torch_tanh)->Arg(64);

}  // namespace
}  // namespace gradus::bench

BENCHMARK_MAIN();
