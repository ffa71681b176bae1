// Time of the scalar world's functions: `loop/...` per element in a loop over 2048 numbers that lie
// in the first-level cache, compiled for x86-64-v3; `single/...` one call on one number, the way a
// 0-d tensor pays.
#include <random>
#include <string>
#include <vector>

// At -O2 g++ leaves loops of unknown length alone.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("tree-vectorize", "vect-cost-model=dynamic")
#endif

#include <benchmark/benchmark.h>

#include "gradus/scalar/math.h"

namespace gradus::scalar {
namespace {

#if defined(__x86_64__)
#define GRADUS_BENCH_TARGET __attribute__((target("arch=x86-64-v3"), noinline))
bool can_run() { return __builtin_cpu_supports("x86-64-v3"); }
#else
#define GRADUS_BENCH_TARGET __attribute__((noinline))
bool can_run() { return true; }
#endif

template <class F, class T>
GRADUS_BENCH_TARGET void loop(T* __restrict out, const T* __restrict a, const T* __restrict b,
                              int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = F::apply(Num<T>{a[i]}, Num<T>{b[i]}).value;
}
template <class F, class T>
GRADUS_BENCH_TARGET T single(T a, T b) {
  return F::apply(Num<T>{a}, Num<T>{b}).value;
}

template <class T>
std::vector<T> numbers(double low, double high, unsigned seed) {
  std::vector<T> v(2048);
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> value(low, high);
  for (T& x : v) x = static_cast<T>(value(generator));
  return v;
}

template <class F, class T>
void run_loop(benchmark::State& state, double low, double high) {
  if (!can_run()) return state.SkipWithError("needs x86-64-v3");
  std::vector<T> a = numbers<T>(low, high, 1), b = numbers<T>(low, high, 2), out(a.size());
  for (auto _ : state) {
    loop<F, T>(out.data(), a.data(), b.data(), static_cast<int64_t>(a.size()));
    benchmark::ClobberMemory();
  }
  state.counters["element"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(a.size()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
template <class F, class T>
void run_single(benchmark::State& state, double low, double high) {
  if (!can_run()) return state.SkipWithError("needs x86-64-v3");
  std::vector<T> a = numbers<T>(low, high, 1), b = numbers<T>(low, high, 2);
  std::size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(single<F, T>(a[i], b[i]));
    i = (i + 1) % a.size();
  }
}

template <class F>
void add(const std::string& name, double low, double high) {
  auto by_range = [low, high](auto* body) {
    return [=](benchmark::State& state) { body(state, low, high); };
  };
  benchmark::RegisterBenchmark(("loop/" + name + "/f32").c_str(), by_range(run_loop<F, float>));
  benchmark::RegisterBenchmark(("loop/" + name + "/f64").c_str(), by_range(run_loop<F, double>));
  benchmark::RegisterBenchmark(("single/" + name + "/f32").c_str(), by_range(run_single<F, float>));
  benchmark::RegisterBenchmark(("single/" + name + "/f64").c_str(),
                               by_range(run_single<F, double>));
}

// clang-format off
#define GRADUS_BENCH_FUNCTIONS(X) \
  X(exp, (x), -10, 10) \
  X(exp2, (x), -10, 10) \
  X(expm1, (x), -10, 10) \
  X(log, (x), 0.1, 10) \
  X(log1p, (x), -0.5, 10) \
  X(log2, (x), 0.1, 10) \
  X(log10, (x), 0.1, 10) \
  X(sin, (x), -10, 10) \
  X(cos, (x), -10, 10) \
  X(sin_moderate, (x), -10, 10) \
  X(tan_moderate, (x), -10, 10) \
  X(asin, (x), -1, 1) \
  X(acos, (x), -1, 1) \
  X(atan, (x), -10, 10) \
  X(atan2, (x, y), -10, 10) \
  X(sinh, (x), -10, 10) \
  X(cosh, (x), -10, 10) \
  X(tanh, (x), -5, 5) \
  X(asinh, (x), -10, 10) \
  X(acosh, (x), 1, 10) \
  X(atanh, (x), -1, 1) \
  X(sigmoid, (x), -10, 10) \
  X(logsigmoid, (x), -10, 10) \
  X(erf, (x), -3, 3) \
  X(erfc, (x), -3, 3) \
  X(erfinv, (x), -1, 1) \
  X(lgamma, (x), -5, 10) \
  X(digamma, (x), -5, 10) \
  X(trigamma, (x), -5, 10) \
  X(pow, (x, y), 0.1, 10) \
  X(hypot, (x, y), -10, 10) \
  X(fmod, (x, y), -10, 10) \
  X(remainder, (x, y), -10, 10) \
  X(sqrt, (x), 0, 10) \
  X(round_even, (x), -10, 10) \
  X(maximum, (x, y), -10, 10)
// clang-format on

#define GRADUS_BENCH_BODY(name, arguments, low, high) \
  struct name##_body {                                \
    template <class S>                                \
    GRADUS_INLINE static S apply(S x, S y) {          \
      (void)y;                                        \
      return name arguments;                          \
    }                                                 \
  };
GRADUS_BENCH_FUNCTIONS(GRADUS_BENCH_BODY)

}  // namespace
}  // namespace gradus::scalar

int main(int argc, char** argv) {
  using namespace gradus::scalar;
#define GRADUS_BENCH_ADD(name, arguments, low, high) add<name##_body>(#name, low, high);
  GRADUS_BENCH_FUNCTIONS(GRADUS_BENCH_ADD)
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
