// What the engine costs beside what nodes do, and what a derivative costs by it and by stages.
#include "gradus/engine.h"

#include <benchmark/benchmark.h>

#include "bench/double_backward.h"
#include "gradus/apply.h"

namespace gradus::bench {
namespace {

using namespace autograd;

// Its body hands the cotangent on.
class HandOn final : public Node {
 public:
  explicit HandOn(Edge edge) : Node({std::move(edge)}) {}
  std::string name() const override { return "HandOn"; }

 private:
  Variables apply(Variables&& cotangents) override { return std::move(cotangents); }
};

Variable chain(const Variable& x, int64_t nodes) {
  Variable y = x;
  for (int64_t i = 0; i < nodes; ++i)
    y = create_gradient_edge(x.data(), make_ref<HandOn>(y.gradient_edge()));
  return y;
}

benchmark::Counter per_node(int64_t nodes) {
  return {static_cast<double>(nodes) * 1e-9,
          benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert};
}

void build_chain(benchmark::State& bench) {
  Variable x(Tensor::scalar(DType::f32, 1), true);
  for (auto _ : bench) {
    Variable y = chain(x, bench.range(0));
    bench.PauseTiming();
    y = Variable();
    bench.ResumeTiming();
  }
  bench.counters["ns_per_node"] = per_node(bench.range(0));
}
BENCHMARK(build_chain)->Arg(10'000)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

void run_chain(benchmark::State& bench) {
  Variable x(Tensor::scalar(DType::f32, 1), true);
  Variable y = chain(x, bench.range(0));
  for (auto _ : bench) y.backward({}, /*keep_graph=*/true);
  bench.counters["ns_per_node"] = per_node(bench.range(0));
}
BENCHMARK(run_chain)->Arg(10'000)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

void destroy_chain(benchmark::State& bench) {
  Variable x(Tensor::scalar(DType::f32, 1), true);
  for (auto _ : bench) {
    bench.PauseTiming();
    Variable y = chain(x, bench.range(0));
    bench.ResumeTiming();
    y = Variable();
  }
  bench.counters["ns_per_node"] = per_node(bench.range(0));
}
BENCHMARK(destroy_chain)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

template <class Chain>
void run(benchmark::State& bench, Chain&& chain) {
  for (auto _ : bench) benchmark::DoNotOptimize(chain.run());
  bench.counters["ns_per_operation"] = per_node(bench.range(0));
}

// Three orders of a chain of tanh: see double_backward.h.
void eager_double_backward(benchmark::State& bench) { run(bench, EagerChain(bench.range(0))); }
void staged_double_backward(benchmark::State& bench) { run(bench, symbolic_chain(bench.range(0))); }
void evaluated_double_backward(benchmark::State& bench) {
  run(bench, evaluated_chain(bench.range(0)));
}
BENCHMARK(eager_double_backward)->Arg(100)->Arg(10'000)->Unit(benchmark::kMillisecond);
BENCHMARK(staged_double_backward)->Arg(10'000)->Unit(benchmark::kMillisecond);
BENCHMARK(evaluated_double_backward)->Arg(10'000)->Unit(benchmark::kMillisecond);

// Two heavy independent branches; the argument is the number of workers.
void two_branches(benchmark::State& bench) {
  auto context = std::make_shared<Context>(ContextOptions{.workers = 1});
  auto engine =
      std::make_shared<Engine>(context, EngineOptions{.workers = static_cast<int>(bench.range(0))});
  StateGuard guard(ThreadState{.context = context});
  replace_engine(context, engine);
  const std::array<int64_t, 2> shape{256, 256};
  std::vector<double> values(256 * 256, 1e-3);
  Variable a(Tensor::from(DType::f32, shape, values), true);
  Variable b(Tensor::from(DType::f32, shape, values), true);
  auto branch = [](const Variable& x) {
    Variable y = x;
    for (int i = 0; i < 20; ++i) y = apply("mm", {y, x})[0];
    return y;
  };
  Variable y = apply("sum", {apply("add", {branch(a), branch(b)})[0]})[0];
  for (auto _ : bench) {
    a.set_grad({});
    b.set_grad({});
    y.backward({}, /*keep_graph=*/true);
  }
}
BENCHMARK(two_branches)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace gradus::bench

BENCHMARK_MAIN();
