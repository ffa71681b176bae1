// What other processes on the machine cost: a fused chain over 2^20 f32 and a small LSTM's training
// step, on one worker and on two, beside no, one and two processes that compute without end, pinned
// by nobody.
//
// Rounds of a fifth of a second take turns, with the others running and with them stopped.
// Counters: `alone_us` and `median_us` are medians of a call; `median`, `mean` and `p99` how many
// times as long as alone calls take, by the same statistic; `fair` how many times as long if all
// that wants a core got the same share of it.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <numeric>
#include <thread>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/programs.h"
#include "bench/side_by_side.h"
#include "bench/train_step.h"

namespace gradus::bench {
namespace {

// Processes that compute while they are let. Made before there are threads.
class Others {
 public:
  static constexpr size_t most = 2;

  Others() {
    for (pid_t& child : children_) {
      child = fork();
      if (child < 0) std::abort();
      if (child > 0) continue;
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (uint64_t n = 0;; ++n) benchmark::DoNotOptimize(n);
    }
    signal_first(most, SIGSTOP);
  }
  ~Others() {
    signal_first(most, SIGKILL);
    for (pid_t child : children_) waitpid(child, nullptr, 0);
  }
  Others(const Others&) = delete;

  void let(size_t n) const { signal_first(n, SIGCONT); }
  void stop(size_t n) const { signal_first(n, SIGSTOP); }

 private:
  void signal_first(size_t n, int what) const {
    for (size_t i = 0; i < n; ++i) kill(children_[i], what);
  }
  pid_t children_[most] = {};
};

struct Spread {
  std::vector<double> seconds;
  double at(double part) {
    const auto k = static_cast<size_t>(part * static_cast<double>(seconds.size() - 1));
    std::nth_element(seconds.begin(), seconds.begin() + static_cast<long>(k), seconds.end());
    return seconds[k];
  }
  double mean() const {
    return std::accumulate(seconds.begin(), seconds.end(), 0.0) /
           static_cast<double>(seconds.size());
  }
};

template <class Call>
void beside(benchmark::State& bench, const Others& others, size_t busy, int workers, Call call) {
  Spread alone, with;
  auto round = [&](Spread& into) {
    for (double start = now(Clock::wall), at = start; at < start + 0.2;) {
      call();
      const double end = now(Clock::wall);
      into.seconds.push_back(end - std::exchange(at, end));
    }
  };
  call();
  for (auto _ : bench) {
    round(alone);
    others.let(busy);
    round(with);
    others.stop(busy);
  }
  const double cores = std::max(1u, std::thread::hardware_concurrency());
  bench.counters["alone_us"] = alone.at(0.5) * 1e6;
  bench.counters["median_us"] = with.at(0.5) * 1e6;
  bench.counters["median"] = with.at(0.5) / alone.at(0.5);
  bench.counters["mean"] = with.mean() / alone.mean();
  bench.counters["p99"] = with.at(0.99) / alone.at(0.99);
  bench.counters["p99_us"] = with.at(0.99) * 1e6;
  bench.counters["fair"] =
      std::max(1.0, (static_cast<double>(busy) + static_cast<double>(workers)) / cores);
}

void chain(benchmark::State& bench, const Others& others, size_t busy, int workers) {
  constexpr int64_t n = int64_t{1} << 20;
  ContextOptions options;
  options.workers = workers;
  gradus::State state(Code::compile(ir::parse(gated_chain_text(n)).program()),
                      std::make_shared<Context>(options), {.fusion = FusionMode::first});
  std::vector<Tensor> inputs;
  for (int i = 0; i < 3; ++i) {
    Tensor t = Tensor::of_layout(Layout(DType::f32, {n}), *Context::default_context());
    for (int64_t k = 0; k < n; ++k)
      t.mutable_data_as<float>()[k] = static_cast<float>(k * (i + 1) % 2003) / 1000 - 1;
    inputs.push_back(std::move(t));
  }
  std::vector<Tensor> results(1);
  beside(bench, others, busy, workers, [&] {
    state.restart();
    state.run_into(inputs, results);
    benchmark::DoNotOptimize(results.data());
  });
}

void step(benchmark::State& bench, const Others& others, size_t busy, int workers) {
  TrainStep step(lstm(1, 16, 20), workers, FusionMode::first);
  beside(bench, others, busy, workers, [&] { benchmark::DoNotOptimize(step.run()); });
}

void register_all(const Others& others) {
  for (auto [name, run] : {std::pair{"chain", &chain}, {"lstm", &step}})
    for (int workers : {1, 2})
      for (size_t busy = 0; busy <= Others::most; ++busy)
        benchmark::RegisterBenchmark(
            fmt::format("{}/{}_workers/{}_others", name, workers, busy).c_str(), run,
            std::cref(others), busy, workers)
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime()
            ->Iterations(8);
}

}  // namespace
}  // namespace gradus::bench

int main(int argc, char** argv) {
  const gradus::bench::Others others;
  gradus::bench::register_all(others);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
