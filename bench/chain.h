// tanh(a * b + c) * sigmoid(a) - c * 0.5 over 2^24 f32: Gradus beside a loop written by hand,
// NumExpr where it is, and what the machine can do at most (triad, memcpy), in turns in one run.
#pragma once

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/programs.h"
#include "bench/side_by_side.h"
#include "fusion/kernels.h"
#include "gradus/inputs.h"

namespace gradus::bench {

inline constexpr int64_t chain_elements = int64_t{1} << 24;

// exp(x) for |x| below 80, to some 2 ulp: 2^n e^r, |r| <= ln(2) / 2, by the Taylor polynomial of
// degree 7.
__attribute__((always_inline)) inline float hand_exp(float x) {
  constexpr float shift = 12582912.0f;  // 1.5 2^23: adding it rounds
  const float n = (x * 1.44269504f + shift) - shift;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

// A loop that the compiler makes vectors of, as wide as the machine has them.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define GRADUS_BY_HAND                                                         \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), \
                 optimize("O3,fp-contract=fast"), noinline))
#else
#define GRADUS_BY_HAND
#endif

// The whole chain in one loop.
GRADUS_BY_HAND static void hand_chain(const float* __restrict a, const float* __restrict b,
                                      const float* __restrict c, float* __restrict y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    float s = a[i] * b[i] + c[i];
    s = s < -15.0f ? -15.0f : s;
    s = s > 15.0f ? 15.0f : s;
    float v = a[i] < -60.0f ? -60.0f : a[i];
    v = v > 60.0f ? 60.0f : v;
    const float t = 1.0f - 2.0f / (hand_exp(2.0f * s) + 1.0f);
    y[i] = t / (hand_exp(-v) + 1.0f) - c[i] * 0.5f;
  }
}

// y = b + 3 c.
GRADUS_BY_HAND static void triad(const float* __restrict b, const float* __restrict c,
                                 float* __restrict y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = b[i] + 3.0f * c[i];
}

// NumExpr in a process of its own, which waits between its turns: bench/peers/numexpr_peer.py, run
// by $GRADUS_NUMEXPR_PYTHON.
class NumExpr {
 public:
  static std::unique_ptr<NumExpr> start(int threads) {
    const char* python = std::getenv("GRADUS_NUMEXPR_PYTHON");
    if (!python) return nullptr;
    auto peer = std::unique_ptr<NumExpr>(new NumExpr(python, threads));
    return std::isnan(peer->seconds()) ? nullptr : std::move(peer);
  }
  ~NumExpr() {
    fclose(to_);
    fclose(from_);
    waitpid(child_, nullptr, 0);
  }
  NumExpr(const NumExpr&) = delete;
  NumExpr& operator=(const NumExpr&) = delete;

  // Of one evaluation, by its own clock; NaN where it is gone.
  double seconds() {
    fputs("run\n", to_);
    fflush(to_);
    double value = NAN;
    return fscanf(from_, "%lf", &value) == 1 ? value : NAN;
  }

 private:
  NumExpr(const char* python, int threads) {
    signal(SIGPIPE, SIG_IGN);
    int in[2], out[2];
    if (pipe(in) || pipe(out)) std::abort();
    const std::string n = std::to_string(threads), elements = std::to_string(chain_elements);
    child_ = fork();
    if (child_ == 0) {
      dup2(in[0], 0);
      dup2(out[1], 1);
      for (int f : {in[0], in[1], out[0], out[1]}) close(f);
      execl(python, python, "bench/peers/numexpr_peer.py", n.c_str(), elements.c_str(), nullptr);
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    to_ = fdopen(in[1], "w");
    from_ = fdopen(out[0], "r");
  }
  pid_t child_ = -1;
  FILE *to_ = nullptr, *from_ = nullptr;
};

// Somebody who takes part: seconds of one turn.
struct Contestant {
  std::string name;
  std::function<double()> turn;
};

// What the rounds give: counters NAME_ms, medians; and of triad and memcpy their GB/s, where a
// triad's bytes are those of its three arrays and a copy's are counted read and written.
class ChainContest {
 public:
  explicit ChainContest(int workers) : workers_(workers) {
    ContextOptions options;
    options.workers = workers;
    context_ = std::make_shared<Context>(options);
    auto code = Code::compile(ir::parse(gated_chain_text(chain_elements)).program());
    state_.emplace(code, context_, StateOptions{.fusion = FusionMode::first});
    for (const char* name : {"a", "b", "c"})
      inputs_.push_back(random_tensor(DType::f32, Sizes{chain_elements}, name, 1, *context_));
    hand_ = Tensor::zeros(DType::f32, Sizes{chain_elements});
    check_hand();
    add("gradus", [this] {
      state_->restart();
      state_->run_into(inputs_, result_);
      benchmark::DoNotOptimize(result_.data());
    });
    float* y = hand_.mutable_data_as<float>();
    parts("by_hand", [this, y](int64_t at, int64_t n) {
      hand_chain(data(0) + at, data(1) + at, data(2) + at, y + at, n);
    });
    parts("triad",
          [this, y](int64_t at, int64_t n) { triad(data(1) + at, data(2) + at, y + at, n); });
    parts("memcpy", [this, y](int64_t at, int64_t n) {
      std::memcpy(y + at, data(0) + at, static_cast<size_t>(n) * sizeof(float));
    });
    numexpr_ = NumExpr::start(workers);
    if (numexpr_) contestants_.push_back({"numexpr", [this] { return numexpr_->seconds(); }});
  }

  const std::vector<Tensor>& inputs() const { return inputs_; }
  // Timed by the clock on the wall.
  void add(const std::string& name, std::function<void()> run) {
    contestants_.push_back({name, [run = std::move(run)] {
                              const double start = now(Clock::wall);
                              run();
                              return now(Clock::wall) - start;
                            }});
  }

  void run(benchmark::State& bench) {
    std::vector<std::vector<double>> times(contestants_.size());
    for (auto& c : contestants_) c.turn();
    for (auto _ : bench) {
      for (size_t i = 0; i < times.size(); ++i) times[i].push_back(contestants_[i].turn());
      bench.SetIterationTime(times[0].back());
    }
    constexpr double bytes = 4.0 * chain_elements;
    for (size_t i = 0; i < times.size(); ++i) {
      const double seconds = median(times[i]);
      bench.counters[contestants_[i].name + "_ms"] = seconds * 1e3;
      if (contestants_[i].name == "triad") bench.counters["triad_GBps"] = 3e-9 * bytes / seconds;
      if (contestants_[i].name == "memcpy") bench.counters["memcpy_GBps"] = 2e-9 * bytes / seconds;
    }
  }

 private:
  const float* data(size_t i) const { return inputs_[i].data_as<float>(); }
  // As many parts as workers, twice.
  void parts(const std::string& name, std::function<void(int64_t, int64_t)> part) {
    add(name, [this, part = std::move(part)] {
      const int64_t n = 2 * workers_, each = chain_elements / n;
      context_->workers().parallel_for(n, [&](int64_t i) { part(i * each, each); });
    });
  }
  // The loop by hand computes the same.
  void check_hand() {
    hand_chain(data(0), data(1), data(2), hand_.mutable_data_as<float>(), chain_elements);
    const Tensor ours = state_->run(inputs_)[0];
    const float *x = ours.data_as<float>(), *y = hand_.data_as<float>();
    for (int64_t i = 0; i < chain_elements; ++i)
      if (!(std::fabs(x[i] - y[i]) <= 1e-5f * std::max(1.0f, std::fabs(x[i])))) {
        fmt::print(stderr, "the loop by hand gives {} where Gradus gives {}\n", y[i], x[i]);
        std::abort();
      }
  }

  const int workers_;
  std::shared_ptr<Context> context_;
  std::optional<State> state_;
  std::vector<Tensor> inputs_, result_ = std::vector<Tensor>(1);
  Tensor hand_;
  std::unique_ptr<NumExpr> numexpr_;
  std::vector<Contestant> contestants_;
};

}  // namespace gradus::bench
