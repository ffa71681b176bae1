// Every program of the corpus, all its stages, with names for sizes and with numbers, in every
// width of registers that runs here: as the cost model chooses, with one loop for each
// instruction, and with a kernel for every group. The choice may take at most 5 % longer than the
// better of the two: rows that do are measured again, printed, and make the status 1. Time is of
// one thread.
#include <algorithm>
#include <array>
#include <iostream>

#include "bench/grown.h"
#include "bench/side_by_side.h"
#include "fusion/kernels.h"
#include "gradus/error.h"
#include "tests/corpus/sizes.h"
#include "tests/functions.h"
#include "tools/functions.h"

namespace gradus::bench {
namespace {

constexpr double most_ratio = 1.05;
// A row is slow if it is in each of so many measurements.
constexpr int measurements = 5;

struct Row {
  std::string name;
  double ratio;  // to the better of the others
  bool unfused;  // is the better one
};
std::vector<Row> rows;

struct Width {
  std::string name;
  std::shared_ptr<Context> chosen, always;
};

std::shared_ptr<Context> context_with(const KernelOptions& options) {
  ContextOptions one_worker;
  one_worker.workers = 1;
  auto context = std::make_shared<Context>(one_worker);
  set_kernel_options(*context, options);
  return context;
}

// Those that run here; the one that GRADUS_ISA names, where it is set.
std::vector<Width> all_widths() {
  std::vector<Width> widths;
  const char* isa = std::getenv("GRADUS_ISA");
  const bool named = isa && *isa;
  for (unsigned bits : {128U, 256U, 512U}) try {
      KernelOptions options{.most_kernels = 1 << 16, .vector_bits = named ? 0 : bits};
      Width width{named ? isa : fmt::format("{}", bits), context_with(options), nullptr};
      options.always = true;
      width.always = context_with(options);
      if (named) return {width};
      widths.push_back(std::move(width));
    } catch (const Error&) {
      continue;  // not of this machine
    }
  return widths;
}

uint64_t kernels_asked_for(Context& context) {
  const KernelStatistics n = fusion::kernels_of(context)->statistics();
  return n.hits + n.misses;
}

// Medians of rounds in turns: seconds of each way, and how many times as long as each the first
// takes.
struct Measured {
  std::array<double, 3> seconds, ratios;
};
template <class Run>
Measured measure(std::array<State*, 3> ways, int rounds, const Run& run) {
  auto timed = [&](State& state, int times) {
    const double start = now(Clock::thread);
    for (int i = 0; i < times; ++i) run(state);
    return (now(Clock::thread) - start) / times;
  };
  for (State* state : ways) timed(*state, 2);
  const int times = std::max(1, static_cast<int>(1e-3 / std::max(timed(*ways[0], 3), 1e-9)));
  std::array<std::vector<double>, 3> seconds, ratios;
  for (int round = 0; round < rounds; ++round)
    for (size_t way = 0; way < ways.size(); ++way) {
      seconds[way].push_back(timed(*ways[way], times));
      ratios[way].push_back(seconds[0].back() / seconds[way].back());
    }
  Measured m{};
  for (size_t way = 0; way < ways.size(); ++way) {
    m.seconds[way] = median(seconds[way]);
    m.ratios[way] = median(ratios[way]);
  }
  return m;
}

void compare(benchmark::State& bench, const std::string& name, const corpus::Subject& subject,
             const Width& width) {
  auto run = [&](State& state) {
    state.restart();
    for (const auto& inputs : subject.inputs) benchmark::DoNotOptimize(state.run(inputs));
  };
  const auto asked = [&] {
    return kernels_asked_for(*width.chosen) + kernels_asked_for(*width.always);
  };
  const uint64_t before = asked();
  State chosen(subject.code, width.chosen, {.fusion = FusionMode::first});
  State unfused(subject.code, width.chosen, {.fusion = FusionMode::off});
  State always(subject.code, width.always, {.fusion = FusionMode::first});
  run(chosen);
  run(always);
  if (asked() == before) return bench.SkipWithError("no kernel");
  Measured least{};
  double ratio = 0;
  for (int n = 0; n < measurements && (n == 0 || ratio > most_ratio); ++n) {
    const Measured m = measure({&chosen, &unfused, &always}, n == 0 ? 9 : 25, run);
    const double worse = std::max(m.ratios[1], m.ratios[2]);
    if (n == 0 || worse < ratio) ratio = worse, least = m;
  }
  for (auto _ : bench) bench.SetIterationTime(least.seconds[0]);
  bench.counters["chosen_us"] = least.seconds[0] * 1e6;
  bench.counters["unfused_us"] = least.seconds[1] * 1e6;
  bench.counters["always_us"] = least.seconds[2] * 1e6;
  bench.counters["to_unfused"] = least.ratios[1];
  bench.counters["ratio"] = ratio;
  rows.push_back({name, ratio, least.ratios[1] >= least.ratios[2]});
}

// How many rows are slow.
size_t report() {
  std::ranges::sort(rows, std::ranges::greater(), &Row::ratio);
  const auto slow = static_cast<size_t>(
      std::ranges::count_if(rows, [](const Row& r) { return r.ratio > most_ratio; }));
  std::cout << fmt::format(
      "{} programs by widths have kernels; {} take more than 5 % longer than the better of unfused "
      "and all groups fused\n",
      rows.size(), slow);
  for (const Row& r : std::span(rows).first(slow))
    std::cout << fmt::format("  {:.3f} {}: {} is faster\n", r.ratio, r.name,
                             r.unfused ? "unfused" : "all fused");
  if (!rows.empty())
    std::cout << fmt::format("median ratio {:.3f}, largest {:.3f}\n", rows[rows.size() / 2].ratio,
                             rows[0].ratio);
  return slow;
}

void add(const std::string& name, corpus::Subject subject, std::span<const Width> widths) {
  const auto shared = std::make_shared<const corpus::Subject>(std::move(subject));
  for (const Width& width : widths) {
    const std::string row = fmt::format("{}/{}", name, width.name);
    benchmark::RegisterBenchmark(
        row.c_str(),
        [row, shared, width](benchmark::State& bench) { compare(bench, row, *shared, width); })
        ->UseManualTime()
        ->Iterations(1);
  }
}

}  // namespace
}  // namespace gradus::bench

int main(int argc, char** argv) {
  using namespace gradus;
  test::register_test_functions();
  cli::register_functions();
  const std::vector<bench::Width> widths = bench::all_widths();
  for (const std::string& file : corpus::fixture_files()) {
    size_t n = 0;
    for (corpus::Subject& s : corpus::subjects(corpus::load(file))) {
      const std::string name = fmt::format("{}/{}", file, n++);
      // Stages whose sizes are known may be one function each.
      if (!s.code->dimensions().empty() && corpus::can_know_sizes(s))
        bench::add(name + "/known", corpus::with_known_sizes(s), widths);
      bench::add(name, std::move(s), widths);
    }
  }
  for (auto& [name, subject] : bench::grown_subjects())
    bench::add(name, std::move(subject), widths);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return bench::report() ? 1 : 0;
}
