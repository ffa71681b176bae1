// Every program of the corpus, all its stages, with names for sizes and with numbers: fused beside
// one loop for each instruction, to see whether the cost model ever takes the slower way. Time is
// of one thread.
#include <algorithm>
#include <iostream>

#include "bench/side_by_side.h"
#include "fusion/kernels.h"
#include "tests/corpus/sizes.h"
#include "tests/functions.h"
#include "tools/functions.h"

namespace gradus::bench {
namespace {

struct Row {
  std::string name;
  double ratio;
};
std::vector<Row> rows;

void compare(benchmark::State& bench, const std::string& name, const corpus::Subject& subject,
             const std::shared_ptr<Context>& context) {
  const auto asked = [&] {
    const KernelStatistics n = fusion::kernels_of(*context)->statistics();
    return n.hits + n.misses;
  };
  const uint64_t before = asked();
  State fused(subject.code, context, {.fusion = FusionMode::first});
  State unfused(subject.code, context, {.fusion = FusionMode::off});
  auto run = [&](State& state) {
    state.restart();
    for (const auto& inputs : subject.inputs) benchmark::DoNotOptimize(state.run(inputs));
  };
  run(fused);
  if (asked() == before) return bench.SkipWithError("no kernel");
  side_by_side(
      bench, Clock::thread, [&] { run(fused); }, [&] { run(unfused); });
  rows.push_back({name, bench.counters["ratio"]});
}

void report() {
  std::ranges::sort(rows, {}, &Row::ratio);
  const auto slower = std::ranges::count_if(rows, [](const Row& r) { return r.ratio > 1.05; });
  std::cout << rows.size() << " programs have kernels; fused, " << slower
            << " are slower by more than 5 %\n";
  for (const Row& r : rows)
    if (r.ratio > 1.05) std::cout << fmt::format("  {:.3f} {}\n", r.ratio, r.name);
  if (!rows.empty())
    std::cout << fmt::format("median ratio {:.3f}, least {:.3f}\n", rows[rows.size() / 2].ratio,
                             rows[0].ratio);
}

}  // namespace
}  // namespace gradus::bench

int main(int argc, char** argv) {
  using namespace gradus;
  test::register_test_functions();
  cli::register_functions();
  ContextOptions options;
  options.workers = 1;
  auto context = std::make_shared<Context>(options);
  for (const std::string& file : corpus::fixture_files()) {
    size_t n = 0;
    auto add = [&](std::string name, corpus::Subject s) {
      benchmark::RegisterBenchmark(name.c_str(),
                                   [name, s = std::move(s), context](benchmark::State& bench) {
                                     bench::compare(bench, name, s, context);
                                   })
          ->UseManualTime()
          ->Iterations(15);
    };
    for (corpus::Subject& s : corpus::subjects(corpus::load(file))) {
      const std::string name = fmt::format("{}/{}", file, n++);
      // Stages whose sizes are known may be one function each.
      if (!s.code->dimensions().empty() && corpus::can_know_sizes(s))
        add(name + "/known", corpus::with_known_sizes(s));
      add(name, std::move(s));
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  bench::report();
}
