// Two ways to do the same, measured in turns so that a machine's noise hits both.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>
#include <vector>

#include <benchmark/benchmark.h>

namespace gradus::bench {

// Seconds: of this thread's own, where others' work is not to count, or of the clock on the wall.
enum class Clock { thread, wall };
inline double now(Clock clock) {
  if (clock == Clock::wall)
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

inline double median(std::vector<double> v) {
  auto middle = v.begin() + static_cast<int64_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

// Counters: `gradus_us` and `bare_us`, medians of a run, `ratio`, the median of the rounds', and
// the shortest rounds: on a busy machine all that says something of several threads. An iteration
// is a round of as many calls of each as can be read off the clock; its time is that of Gradus's.
template <class Ours, class Bare>
void side_by_side(benchmark::State& state, Clock clock, Ours ours, Bare bare) {
  auto timed = [&](auto& f, int times) {
    double start = now(clock);
    for (int i = 0; i < times; ++i) f();
    return (now(clock) - start) / times;
  };
  timed(ours, 2);
  timed(bare, 2);
  const int times = std::max(1, static_cast<int>(1e-3 / std::max(timed(ours, 3), 1e-9)));
  std::vector<double> a, b, ratios;
  for (auto _ : state) {
    a.push_back(timed(ours, times));
    b.push_back(timed(bare, times));
    ratios.push_back(a.back() / b.back());
    state.SetIterationTime(a.back() * times);
  }
  state.counters["gradus_us"] = median(a) * 1e6;
  state.counters["bare_us"] = median(b) * 1e6;
  state.counters["ratio"] = median(ratios);
  state.counters["gradus_best_us"] = *std::min_element(a.begin(), a.end()) * 1e6;
  state.counters["bare_best_us"] = *std::min_element(b.begin(), b.end()) * 1e6;
}

}  // namespace gradus::bench
