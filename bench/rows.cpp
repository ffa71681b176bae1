// Programs over the rows of [4096, 1024] f32: softmax and layer norm, their derivative and its
// derivative, fused and not, beside copying as many bytes as a result has. Each row is a stage of
// its own, into the memory of the round before; the counter `memcpys` is its time by that of one
// copy, read and written.
#include <algorithm>
#include <chrono>
#include <cstring>

#include <benchmark/benchmark.h>

#include "bench/programs.h"
#include "fusion/kernels.h"
#include "gradus/passes.h"

namespace gradus::bench {
namespace {

constexpr int64_t rows = 4096, columns = 1024;

constexpr const char* softmax = R"(graph softmax {
  stage 0 (%x: f32[4096, 1024]) {
    %y = softmax(%x) {dim = -1}
    return %y
  }
})";
constexpr const char* layer_norm = R"(graph layer_norm {
  stage 0 (%x: f32[4096, 1024], %w: f32[1024], %b: f32[1024]) {
    %y = layer_norm(%x, %w, %b) {normalized_shape = [1024]}
    return %y
  }
})";

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Tensor wave(const ir::Type& type) {
  Sizes shape;
  for (const ir::Dim& d : type.dims) shape.push_back(d.value());
  Tensor t = Tensor::of_layout(Layout(DType::f32, shape), *Context::default_context());
  for (int64_t i = 0; i < t.numel(); ++i)
    t.mutable_data_as<float>()[i] = static_cast<float>(i * 7919 % 2003) / 1000 - 1;
  return t;
}

// The shortest of ten copies on this thread.
double copy_time() {
  std::vector<float> from(rows * columns, 1), to(rows * columns);
  double best = 1;
  for (int i = 0; i < 10; ++i) {
    const double start = seconds();
    std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
    benchmark::DoNotOptimize(to.data());
    best = std::min(best, seconds() - start);
  }
  return best;
}

void stage(benchmark::State& bench, const char* text, size_t timed, FusionMode mode, int workers) {
  ContextOptions options;
  options.workers = workers;
  auto context = std::make_shared<Context>(options);
  auto code = Code::compile(ir::differentiate(ir::parse(text).program(), {.order = 2}));
  gradus::State state(code, context, {.fusion = mode});
  std::vector<std::vector<Tensor>> inputs(code->stages());
  for (size_t s = 0; s < code->stages(); ++s)
    for (size_t i = 0; i < code->inputs(s); ++i) inputs[s].push_back(wave(code->input_type(s, i)));
  state.prepare({});
  std::vector<std::vector<Tensor>> results(code->stages());
  for (size_t s = 0; s < results.size(); ++s) results[s].resize(code->stage(s).returns.size());
  std::vector<double> times;
  for (auto _ : bench) {
    state.restart();
    for (size_t s = 0; s < timed; ++s) state.run_into(inputs[s], results[s]);
    const double start = seconds();
    state.run_into(inputs[timed], results[timed]);
    benchmark::DoNotOptimize(results[timed].data());
    times.push_back(seconds() - start);
    bench.SetIterationTime(times.back());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
  bench.counters["median_ms"] = times[times.size() / 2] * 1e3;
  bench.counters["memcpys"] = times[times.size() / 2] / copy_time();
}

void register_all() {
  constexpr const char* names[] = {"forward", "backward", "second"};
  for (auto [program, text] : {std::pair{"softmax", softmax}, {"layer_norm", layer_norm}})
    for (size_t s = 0; s < std::size(names); ++s)
      for (int workers : {1, 2})
        for (auto [way, mode] :
             {std::pair{"unfused", FusionMode::off}, {"fused", FusionMode::first}})
          benchmark::RegisterBenchmark(
              fmt::format("{}/{}/{}/{}", program, names[s], way, workers).c_str(), stage, text, s,
              mode, workers)
              ->Unit(benchmark::kMillisecond)
              ->UseManualTime();
}

}  // namespace
}  // namespace gradus::bench

int main(int argc, char** argv) {
  gradus::bench::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
