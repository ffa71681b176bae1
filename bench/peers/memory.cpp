// What training steps take of memory at their highest, beside libtorch: each in a process of its
// own, by what its resident memory rises above where it stood after everything was made and had run
// once. Counters, in bytes: `plan`, what State::prepare says of our step; `gradus`; `libtorch`; and
// the ratios `by_plan` and `by_libtorch` of ours.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <malloc.h>
#include <unistd.h>

#include "bench/peers/model_steps.h"
#include "bench/train_step.h"

namespace gradus::bench {
namespace {

// "VmHWM" or "VmRSS" of this process, in bytes.
double resident(const std::string& what) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(what + ":")) return std::stod(line.substr(what.size() + 1)) * 1024;
  return 0;
}

// How far resident memory rises while `run` runs, after `warm` has.
template <class Warm, class Run>
double rise(Warm warm, Run run) {
  warm();
  malloc_trim(0);
  const double start = resident("VmRSS");
  std::ofstream("/proc/self/clear_refs") << "5";  // the high water is where it stands
  run();
  return resident("VmHWM") - start;
}

std::vector<Tensor> drawn(const Model& model, Context& context) {
  std::vector<Tensor> inputs;
  for (const ModelInput& i : model.inputs) {
    std::vector<double> values =
        random_tensor(DType::f32, i.shape, i.name, 1, context).to_doubles();
    for (size_t k = 0; k < values.size(); ++k)
      values[k] = i.below ? static_cast<double>(static_cast<int64_t>(k) * 7 % i.below)
                          : values[k] * i.scale;
    inputs.push_back(Tensor::from(i.below ? DType::i64 : DType::f32, i.shape, values));
  }
  return inputs;
}

constexpr int runs = 3;

void run_gradus(const Model& model) {
  ContextOptions options;
  options.workers = 1;
  auto context = std::make_shared<Context>(options);
  auto code = Code::compile(ir::parse(model.text()).program());
  const std::vector<Tensor> inputs = drawn(model, *context);
  double plan = 0;
  auto step = [&] {
    State state(code, context, {.fusion = FusionMode::first});
    plan = 0;
    for (const StageMemory& m : state.prepare({}))
      plan += static_cast<double>(m.buffer + m.held + m.results);
    for (int i = 0; i < runs; ++i) {
      state.restart();
      state.run(inputs);
    }
  };
  const double peak = rise(step, step);
  std::printf("%.0f %.0f\n", peak, plan);
}

void run_libtorch(const Model& model, const Peer& peer) {
  at::set_num_threads(1);
  Context context;
  const Tensors in = torch_inputs(model, drawn(model, context));
  auto step = [&] {
    for (int i = 0; i < runs; ++i) peer(in);
  };
  std::printf("%.0f 0\n", rise(step, step));
}

// What a child says of the n-th model; nothing where it fails.
std::optional<std::pair<double, double>> ask(const std::string& who, size_t n) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  FILE* child = popen(fmt::format("'{}' --child {} {}", self, who, n).c_str(), "r");
  double peak = 0, plan = 0;
  const bool said = child && std::fscanf(child, "%lf %lf", &peak, &plan) == 2;
  if (child) pclose(child);
  return said ? std::optional(std::pair{peak, plan}) : std::nullopt;
}

void memory(benchmark::State& bench, size_t n) {
  for (auto _ : bench) {
    const auto gradus = ask("gradus", n), libtorch = ask("libtorch", n);
    if (!gradus || !libtorch) return bench.SkipWithError("a child failed");
    const auto [ours, plan] = *gradus;
    const double theirs = libtorch->first;
    // Resident memory rises by pages.
    if (ours <= 0 || theirs <= 0) return bench.SkipWithError("less than a page");
    bench.counters["plan"] = plan;
    bench.counters["gradus"] = ours;
    bench.counters["libtorch"] = theirs;
    bench.counters["by_plan"] = ours / plan;
    bench.counters["by_libtorch"] = ours / theirs;
  }
}

}  // namespace
}  // namespace gradus::bench

int main(int argc, char** argv) {
  using namespace gradus::bench;
  if (argc == 4 && std::string_view(argv[1]) == "--child") {
    const size_t n = std::stoul(argv[3]);
    if (std::string_view(argv[2]) == "gradus")
      run_gradus(models()[n]);
    else
      run_libtorch(models()[n], peers[n]);
    return 0;
  }
  for (size_t n = 0; n < models().size(); ++n)
    benchmark::RegisterBenchmark(models()[n].name.c_str(), [n](benchmark::State& bench) {
      memory(bench, n);
    })->Iterations(1);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
