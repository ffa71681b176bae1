// A fused kernel beside the reference loops: tanh(a * b + c) * sigmoid(a) - c * 0.5 over 2^24 f32.
// `reference` runs one loop after the other, each over the whole tensor, as an unfused plan does;
// `compile` makes the kernel from nothing but a compiler that is there.
#include <cstring>
#include <random>

#include <benchmark/benchmark.h>

#include "fusion/cpu/compiler.h"
#include "fusion/group.h"
#include "ir/text/parser.h"
#include "ops/bound_call.h"

namespace gradus::fusion {
namespace {

using cpu::Isa;

constexpr int64_t count = int64_t{1} << 24;

std::shared_ptr<const ir::Graph> program() {
  return ir::parse(
             "graph p { stage 0 (%a: f32[16777216], %b: f32[16777216], %c: f32[16777216]) {\n"
             "%p = mul(%a, %b) %s = add(%p, %c) %t = tanh(%s) %g = sigmoid(%a) %m = mul(%t, %g)\n"
             "%h = mul(%c, 0.5) %y = sub(%m, %h) return %y } }")
      .graphs[0];
}

Group group() {
  Layout l(DType::f32, {count});
  return *group_stage(*program(), std::vector{l, l, l});
}

std::vector<Tensor> operands() {
  std::vector<Tensor> list;
  std::mt19937 random(1);
  std::uniform_real_distribution<float> value(-4, 4);
  for (int k = 0; k < 3; ++k) {
    list.push_back(Tensor::of_layout(Layout(DType::f32, {count}), *Context::default_context()));
    float* x = list.back().mutable_data_as<float>();
    for (int64_t i = 0; i < count; ++i) x[i] = value(random);
  }
  return list;
}

void set_counters(benchmark::State& state) {
  state.SetItemsProcessed(state.iterations() * count);
  state.SetBytesProcessed(state.iterations() * count * 16);  // what a fused run has to move
}

void fused(benchmark::State& state, Isa isa, int threads) {
  if (!cpu::runs_here(isa)) return state.SkipWithError("no such instructions here");
  cpu::Compiler compiler;
  Group g = group();
  auto kernel = compiler.compile(g.nest, isa);
  std::vector<Tensor> tensors = operands();
  tensors.push_back(Tensor::of_layout(g.results[0], *Context::default_context()));
  std::vector<std::byte*> args;
  for (Tensor& t : tensors) args.push_back(t.mutable_data());
  WorkerPool workers(threads);
  for (auto _ : state) kernel->run(g.frame, args.data(), workers);
  set_counters(state);
}

void reference(benchmark::State& state, int threads) {
  auto graph = program();
  ContextOptions options;
  options.workers = threads;
  Context context(options);
  const ir::Stage& stage = graph->stages[0];
  std::vector<Tensor> values(graph->values.size());
  std::vector<Tensor> inputs = operands();
  for (size_t i = 0; i < 3; ++i) values[ir::index_of(stage.inputs[i])] = inputs[i];
  auto run = [&] {
    for (const ir::Node& node : stage.nodes) {
      SmallVector<ops::CallOperand, 4> bound;
      SmallVector<ops::RunOperand, 4> operands;
      for (const ir::Operand& o : node.operands) {
        ops::CallOperand c;
        ops::RunOperand r;
        if (ir::ValueId v = ir::value_in(o); v != ir::no_value) {
          r.tensor = &values[ir::index_of(v)];
          c.layout = &r.tensor->layout();
        } else {
          c.number = r.number = std::get_if<ir::Number>(&o);
        }
        bound.push_back(c);
        operands.push_back(r);
      }
      auto call = ops::bound_call(*node.op, node.attributes, bound);
      values[ir::index_of(node.results[0])] = ops::run_call(*call, operands, context)[0];
    }
  };
  for (auto _ : state) run();
  set_counters(state);
}

void compile(benchmark::State& state, Isa isa) {
  if (!cpu::runs_here(isa)) return state.SkipWithError("no such instructions here");
  cpu::Compiler compiler;
  Group g = group();
  cpu::CompileTimes sum;
  for (auto _ : state) {
    cpu::CompileTimes t = compiler.compile(g.nest, isa)->times();
    sum.lower += t.lower;
    sum.verify += t.verify;
    sum.optimize += t.optimize;
    sum.generate += t.generate;
    sum.link += t.link;
  }
  auto mean = [](double seconds) {
    return benchmark::Counter(seconds * 1e3, benchmark::Counter::kAvgIterations);
  };
  state.counters["lower_ms"] = mean(sum.lower);
  state.counters["verify_ms"] = mean(sum.verify);
  state.counters["optimize_ms"] = mean(sum.optimize);
  state.counters["generate_ms"] = mean(sum.generate);
  state.counters["link_ms"] = mean(sum.link);
}

// From an object that was made before, as a cache on disk has it.
void load(benchmark::State& state, Isa isa) {
  if (!cpu::runs_here(isa)) return state.SkipWithError("no such instructions here");
  cpu::Compiler compiler;
  Group g = group();
  cpu::CompileTimes times;
  const std::string object = compiler.object(g.nest, isa, times);
  for (auto _ : state) compiler.load(g.nest, object);
  state.counters["object_bytes"] = static_cast<double>(object.size());
}

BENCHMARK_CAPTURE(fused, avx2_1_thread, Isa::avx2, 1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(fused, avx2_2_threads, Isa::avx2, 2)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(fused, avx512_1_thread, Isa::avx512, 1)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(fused, avx512_2_threads, Isa::avx512, 2)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(reference, 1_thread, 1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(reference, 2_threads, 2)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(compile, avx2, Isa::avx2)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compile, avx512, Isa::avx512)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(load, avx512, Isa::avx512)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace gradus::fusion

BENCHMARK_MAIN();
