// Fused kernels beside the reference loops: tanh(a * b + c) * sigmoid(a) - c * 0.5 over 2^24 f32.
// `fused` is the bare kernel; `interpret` runs the program, and its derivative, fused and not;
// `compile` makes the kernel from nothing but a compiler that is there. Below is what small groups
// cost; the figures in fusion/cost.cpp are of bench/corpus.cpp.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include <benchmark/benchmark.h>

#include "bench/programs.h"
#include "fusion/cpu/compiler.h"
#include "fusion/group.h"
#include "fusion/store.h"

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

// The program by the interpreter, and its derivative: each round restarts a state whose plans are
// made.
void interpret(benchmark::State& state, FusionMode mode, int threads, int order) {
  ContextOptions options;
  options.workers = threads;
  auto context = std::make_shared<Context>(options);
  State run(Code::compile(ir::differentiate(*program(), {.order = order})), context,
            {.fusion = mode});
  std::vector<Tensor> inputs = operands(), cotangent{inputs[1]};
  run.run(inputs);  // compiles
  if (order) run.run(cotangent);
  for (auto _ : state) {
    run.restart();
    benchmark::DoNotOptimize(run.run(inputs));
    if (order) benchmark::DoNotOptimize(run.run(cotangent));
  }
  set_counters(state);
}

// Groups of `members` pointwise instructions one after the other, as many as make some hundred
// instructions; views keep the groups apart. What a group costs, fused and not.
std::string groups_text(int64_t members, int64_t groups, int64_t size,
                        std::span<const char* const> ops) {
  std::string s =
      fmt::format("graph g {{ stage 0 (%x: f32[{0}], %w0: f32[{0}], %w1: f32[1, {0}]) {{\n", size);
  std::string last = "x";
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t m = 0; m < members; ++m) {
      std::string op = ops[static_cast<size_t>(m) % ops.size()];
      s += fmt::format("%v{}_{} = {}(%{}{})\n", g, m, op, last,
                       op == "tanh" ? "" : fmt::format(", %w{}", g % 2));
      last = fmt::format("v{}_{}", g, m);
    }
    s += fmt::format("%g{} = reshape(%{}) {{shape = [{}{}]}}\n", g, last, g % 2 ? "" : "1, ", size);
    last = fmt::format("g{}", g);
  }
  return s + "return %" + last + " } }";
}

void groups(benchmark::State& state, FusionMode mode, std::span<const char* const> ops) {
  const int64_t members = state.range(0), size = state.range(1), count = 240 / members;
  ContextOptions options;
  options.workers = 1;
  auto context = std::make_shared<Context>(options);
  State run(Code::compile(ir::parse(groups_text(members, count, size, ops), "g").program()),
            context, {.fusion = mode});
  std::vector<Tensor> inputs = bench::chain_inputs(size);
  inputs.push_back(inputs[1].view(Layout(DType::f32, {1, size}), 0));
  run.run(inputs);  // compiles
  for (auto _ : state) {
    run.restart();
    benchmark::DoNotOptimize(run.run(inputs));
  }
  state.counters["ns_per_group"] = benchmark::Counter(
      static_cast<double>(count) * 1e-9,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
void light_groups(benchmark::State& state, FusionMode mode) { groups(state, mode, bench::add_mul); }
void heavy_groups(benchmark::State& state, FusionMode mode) {
  groups(state, mode, bench::add_mul_tanh);
}
void sizes_of_groups(benchmark::internal::Benchmark* b) {
  b->ArgsProduct({{2, 3, 8, 40}, {1, 3, 8, 64, 256, 1000, 32768}});
}

// (a * b + c) * a in many layouts: no group that is chosen may be slower than its loops.
struct Case {
  const char* name;
  DType dtype;
  int64_t rows, columns;
  enum { dense, transposed, row, column } a, b;
};
constexpr Case cases[] = {
    {"f32", DType::f32, 1000, 1000, Case::dense, Case::dense},
    {"f32_odd", DType::f32, 999, 1001, Case::dense, Case::row},
    {"f32_row", DType::f32, 1000, 1000, Case::dense, Case::row},
    {"f32_column", DType::f32, 1000, 1000, Case::dense, Case::column},
    {"f32_transposed", DType::f32, 1000, 1000, Case::transposed, Case::dense},
    {"f32_both_transposed", DType::f32, 1000, 1000, Case::transposed, Case::transposed},
    {"f32_rows_of_3", DType::f32, 100000, 3, Case::dense, Case::row},
    {"f32_rows_of_40", DType::f32, 10000, 40, Case::dense, Case::row},
    {"f32_rows_of_100", DType::f32, 10000, 100, Case::dense, Case::row},
    {"f32_rows_of_128", DType::f32, 10000, 128, Case::dense, Case::row},
    {"f32_small", DType::f32, 20, 20, Case::dense, Case::row},
    {"f64", DType::f64, 1000, 1000, Case::dense, Case::row},
    {"f64_transposed", DType::f64, 1000, 1000, Case::transposed, Case::dense},
    {"f16", DType::f16, 1000, 1000, Case::dense, Case::row},
    {"bf16", DType::bf16, 1000, 1000, Case::dense, Case::row},
    {"i64", DType::i64, 1000, 1000, Case::dense, Case::row},
    {"i32", DType::i32, 1000, 1000, Case::dense, Case::row},
    {"i8", DType::i8, 1000, 1000, Case::dense, Case::row},
};

void layouts(benchmark::State& state, FusionMode mode) {
  const Case& c = cases[state.range(0)];
  ContextOptions options;
  options.workers = 1;
  auto context = std::make_shared<Context>(options);
  auto make = [&](int how) {
    Sizes shape{how == Case::row ? 1 : c.rows, how == Case::column ? 1 : c.columns};
    Sizes strides = contiguous_strides(shape);
    if (how == Case::transposed) strides = {1, c.rows};
    return Tensor::zeros(c.dtype, Sizes{numel(shape)}).view(Layout(c.dtype, shape, strides), 0);
  };
  std::vector<Tensor> inputs{make(c.a), make(c.b), make(Case::dense)};
  auto type = [&](const Tensor& t) {
    return fmt::format("{}{}", name_of(c.dtype), to_string(Sizes(t.shape())));
  };
  auto module = ir::parse(fmt::format(
      "graph g {{ stage 0 (%a: {}, %b: {}, %c: {}) {{ %p = mul(%a, %b) %s = add(%p, %c)\n"
      "%y = mul(%s, %a) %z = sum(%y) return %z }} }}",
      type(inputs[0]), type(inputs[1]), type(inputs[2])));
  State run(Code::compile(module.program()), context, {.fusion = mode});
  run.run(inputs);
  for (auto _ : state) {
    run.restart();
    benchmark::DoNotOptimize(run.run(inputs));
  }
  state.SetLabel(fmt::format("{} {}", c.name, run.groups().empty() ? "apart" : "fused"));
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

// The same from its file: found, read, its hash looked at, linked.
void load_from_disk(benchmark::State& state, Isa isa) {
  if (!cpu::runs_here(isa)) return state.SkipWithError("no such instructions here");
  std::string folder = (std::filesystem::temp_directory_path() / "gradus_bench_XXXXXX").string();
  if (!mkdtemp(folder.data())) return state.SkipWithError("no folder");
  {
    cpu::Compiler compiler;
    const ObjectStore store(folder);
    const Group g = group();
    const std::string key = cpu::Compiler::key(g.nest, isa);
    cpu::CompileTimes times;
    store.put(key, compiler.object(g.nest, isa, times));
    for (auto _ : state) compiler.load(g.nest, store.find(key).value());
  }
  std::filesystem::remove_all(folder);
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
#define INTERPRET(name, ...) \
  BENCHMARK_CAPTURE(interpret, name, __VA_ARGS__)->Unit(benchmark::kMillisecond)->UseRealTime()
INTERPRET(forward_unfused_1_thread, FusionMode::off, 1, 0);
INTERPRET(forward_fused_1_thread, FusionMode::first, 1, 0);
INTERPRET(forward_unfused_2_threads, FusionMode::off, 2, 0);
INTERPRET(forward_fused_2_threads, FusionMode::first, 2, 0);
INTERPRET(both_ways_unfused_1_thread, FusionMode::off, 1, 1);
INTERPRET(both_ways_fused_1_thread, FusionMode::first, 1, 1);
INTERPRET(both_ways_unfused_2_threads, FusionMode::off, 2, 1);
INTERPRET(both_ways_fused_2_threads, FusionMode::first, 2, 1);
BENCHMARK_CAPTURE(layouts, unfused, FusionMode::off)->DenseRange(0, std::size(cases) - 1);
BENCHMARK_CAPTURE(layouts, fused, FusionMode::first)->DenseRange(0, std::size(cases) - 1);
BENCHMARK_CAPTURE(light_groups, unfused, FusionMode::off)->Apply(sizes_of_groups);
BENCHMARK_CAPTURE(light_groups, fused, FusionMode::first)->Apply(sizes_of_groups);
BENCHMARK_CAPTURE(heavy_groups, unfused, FusionMode::off)->Apply(sizes_of_groups);
BENCHMARK_CAPTURE(heavy_groups, fused, FusionMode::first)->Apply(sizes_of_groups);
BENCHMARK_CAPTURE(compile, avx2, Isa::avx2)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compile, avx512, Isa::avx512)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(load, avx512, Isa::avx512)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(load_from_disk, avx512, Isa::avx512)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace gradus::fusion

BENCHMARK_MAIN();
