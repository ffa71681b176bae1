// What an instruction costs, and how compile time grows with the program.
//
// `ns_per_instruction` is the interpreter's figure: a state that is restarted and run again, all
// memory planned, nothing fused, one thread. The peers beside it are in bench/peers.
#include <benchmark/benchmark.h>

#include "bench/programs.h"

namespace gradus::bench {
namespace {

void run_chain(benchmark::State& bench, std::span<const char* const> ops) {
  const int64_t nodes = 999, size = bench.range(0);
  ir::Module module = ir::parse(chain_text(nodes, ops, size));
  // Kernels that were compiled behind an earlier state are none of the interpreter's figures.
  State state(Code::compile(module.program()), Context::default_context(),
              {.fusion = FusionMode::off});
  auto inputs = chain_inputs(size);
  for (auto _ : bench) {
    state.restart();
    benchmark::DoNotOptimize(state.run(inputs));
  }
  bench.counters["ns_per_instruction"] = benchmark::Counter(
      static_cast<double>(nodes) * 1e-9,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
void add_mul_tanh_chain(benchmark::State& b) { run_chain(b, add_mul_tanh); }
void add_mul_chain(benchmark::State& b) { run_chain(b, add_mul); }
void tanh_chain(benchmark::State& b) { run_chain(b, only_tanh); }
BENCHMARK(add_mul_tanh_chain)->Arg(1);
BENCHMARK(add_mul_chain)->Arg(1)->Arg(8)->Arg(64);
BENCHMARK(tanh_chain)->Arg(64);

// Text to first result. `us_per_node` is the whole of it.
void parse_compile_run(benchmark::State& bench) {
  const int64_t nodes = bench.range(0);
  std::string text = chain_text(nodes, add_mul_tanh, 1);
  auto inputs = chain_inputs(1);
  for (auto _ : bench) {
    ir::Module module = ir::parse(text);
    State state(Code::compile(module.program()));
    benchmark::DoNotOptimize(state.run(inputs));
  }
  bench.counters["us_per_node"] = benchmark::Counter(
      static_cast<double>(nodes) * 1e-6,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(parse_compile_run)
    ->Arg(10'000)
    ->Arg(100'000)
    ->Arg(1'000'000)
    ->Unit(benchmark::kMillisecond);

// One more stage behind a straight line.
void differentiate_chain(benchmark::State& bench) {
  ir::Module module = ir::parse(chain_text(bench.range(0), add_mul_tanh, 1));
  for (auto _ : bench) benchmark::DoNotOptimize(ir::differentiate(module.program(), {.order = 1}));
}
BENCHMARK(differentiate_chain)->Arg(16'000)->Arg(160'000)->Unit(benchmark::kMillisecond);

// Everything, stage 1 included: what a million nodes take.
void million_nodes_forward_and_backward(benchmark::State& bench) {
  std::string text = chain_text(1'000'000, add_mul_tanh, 1);
  auto inputs = chain_inputs(1);
  for (auto _ : bench) {
    ir::Module module = ir::parse(text);
    State state(Code::compile(ir::differentiate(module.program(), {.order = 1})));
    auto out = state.run(inputs);
    benchmark::DoNotOptimize(state.run(std::vector<Tensor>{out[0]}));
  }
}
BENCHMARK(million_nodes_forward_and_backward)->Unit(benchmark::kSecond)->Iterations(1);

}  // namespace
}  // namespace gradus::bench

BENCHMARK_MAIN();
