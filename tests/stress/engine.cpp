// Random backwards on many threads at once, while engines stop and are replaced. Runs for
// GRADUS_STRESS_SECONDS (2 by default) with a seed that is printed (GRADUS_TEST_SEED repeats it).
// Every gradient has to have the bits that a single thread gives it, every failure to be one that
// was asked for, and nothing may be left over.
#include "gradus/engine.h"

#include <cstdlib>
#include <random>
#include <thread>

#include "tests/autograd/support.h"

namespace gradus::autograd::testing {
namespace {

using Clock = std::chrono::steady_clock;
using Random = std::mt19937_64;

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Asked {  // the failure that a node was told to be
  int code;
};

// Counts of what happened, to see that the test does what it says.
struct Counts {
  std::atomic<size_t> runs{0}, failures{0}, stops{0}, nested{0}, hooks{0}, callbacks{0}, async{0};
};

// One graph: leaves, results, and how its nodes behave. Bodies hold only what they need by value,
// since a task that returns at its first failure may leave some running.
class Maker {
 public:
  Maker(Random& random, std::shared_ptr<Counts> counts, std::span<const Variable> shared)
      : random_(random), counts_(std::move(counts)), shared_(shared) {}

  std::vector<Variable> leaves;
  bool fails = false;

  Variable make() {
    int64_t n = below(3) == 0 ? 9000 : 1 + below(20);
    for (int i = 0; i < 3; ++i) leaves.emplace_back(tensor(n), true);
    std::vector<Variable> all = leaves;
    int64_t nodes = 3 + below(30);
    for (int64_t i = 0; i < nodes; ++i) all.push_back(node(all));
    Variable y = op("sum", {all.back()});
    // What other threads run too, on the way to a gradient of its own.
    if (below(2) == 0) y = op("add", {y, op("sum", {shared_[pick(shared_.size())]})});
    return y;
  }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  size_t pick(size_t n) { return static_cast<size_t>(random_() % n); }
  Tensor tensor(int64_t n) {
    std::uniform_real_distribution<double> number(-2, 2);
    std::vector<double> v(static_cast<size_t>(n));
    for (double& d : v) d = number(random_);
    return Tensor::from(DType::f64, Sizes{n}, v);
  }
  const Variable& recent(const std::vector<Variable>& all) {
    size_t back = std::min<size_t>(all.size(), 8);
    return all[all.size() - 1 - pick(back)];
  }

  Variable node(const std::vector<Variable>& all) {
    Variable x = recent(all), w = recent(all), y;
    switch (below(6)) {
      case 0:
        y = op("mul", {x, w});
        break;
      case 1:
        y = op("add", {x, w});
        break;
      case 2:
        y = op("tanh", {x});
        break;
      default:
        y = user_node({x, w, recent(all)});
    }
    if (below(4) == 0) hook(y);
    if (below(8) == 0) y.retain_grad();
    return y;
  }

  Variable user_node(std::vector<Variable> in) {
    size_t n = in.size();
    bool safe = below(2) == 0;
    int64_t delay = below(3) == 0 ? below(100) : 0, kind = below(12);
    int depth = below(40) == 0 ? 200 : static_cast<int>(below(5));
    if (fails && below(6) == 0) kind = 100 + below(4);
    return joined(
        "user", in,
        [n, delay, kind, depth, counts = counts_](Variables&& c) {
          if (delay) std::this_thread::sleep_for(std::chrono::microseconds(delay));
          if (kind == 0) nest(depth, *counts);
          if (kind == 1) Engine::queue_callback([counts] { ++counts->callbacks; });
          if (kind == 2) warn("a warning");
          if (kind == 3) {
            nodes_in_current_task();
            (void)current_node()->task_should_compute_output(0);
          }
          if (kind == 100) throw Asked{1};
          if (kind == 101) throw 5;
          if (kind == 102) throw std::runtime_error("asked for");
          if (kind == 103) throw Error("asked for");
          return Variables(n, c[0]);
        },
        safe);
  }

  // Backwards within each other, on graphs of their own.
  static void nest(int depth, Counts& counts) {
    ++counts.nested;
    Variable x = leaf({1, 2});
    through("nest", x, [&counts, depth](Variables&& c) {
      if (depth > 0) nest(depth - 1, counts);
      return std::move(c);
    }).backward(leaf({3, 4}, false));
    EXPECT_EQ(values(x.grad()), (std::vector<double>{3, 4}));
  }

  void hook(Variable& y) {
    auto counts = counts_;
    switch (below(4)) {
      case 0:
        y.register_hook([counts, weak = WeakVariable(y)](const Variable& g) {
          ++counts->hooks;
          weak.lock();
          return g;
        });
        break;
      case 1:
        y.grad_fn()->hooks().add_pre(
            [counts](const Variables& g) {
              ++counts->hooks;
              return g;
            },
            below(2) == 0);
        break;
      case 2:
        y.grad_fn()->hooks().add_post(
            [counts](const Variables& out, const Variables&) {
              ++counts->hooks;
              return out;
            },
            below(2) == 0);
        break;
      default:
        leaves[0].register_hook([counts](const Variable& g) {
          ++counts->hooks;
          return g;
        });
    }
  }

  Random& random_;
  std::shared_ptr<Counts> counts_;
  std::span<const Variable> shared_;
};

// Whether the failure is one that the test makes: a node's, or an engine's that was stopped.
bool expected(std::exception_ptr error, bool may_fail, Counts& counts) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    std::string text = e.what();
    if (text.find("shut down") != std::string::npos) return ++counts.stops, true;
    if (may_fail && text.find("asked for") != std::string::npos) return ++counts.failures, true;
    ADD_FAILURE() << text;
    return false;
  } catch (const std::runtime_error&) {
  } catch (int) {
  } catch (const Asked&) {
  }
  ++counts.failures;
  return may_fail;
}

class Stress {
 public:
  Stress(uint64_t seed, Clock::duration length)
      : seed_(seed), end_(Clock::now() + length), random_(seed) {
    shared_ = {op("mul", {a_, b_}), op("tanh", {a_})};
    shared_.push_back(op("mul", {shared_[0], shared_[1]}));
    shared_.push_back(through("shared", shared_[2], hand_on, true));
  }

  void run() {
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 8; ++i)
      threads.emplace_back([this, i] {
        Random random(seed_ + 1 + i);
        ThreadState state;
        state.context = context_;
        state.warnings = [](const std::string&) {};
        StateGuard guard(std::move(state));
        while (Clock::now() < end_) one_round(random);
      });
    while (Clock::now() < end_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random_() % 60));
      std::shared_ptr<Engine> before = engine_of(context_);
      replace_engine(context_, new_engine(random_));
      before->shutdown(std::chrono::milliseconds(random_() % 30));
    }
    for (std::thread& t : threads) t.join();
    engine_of(context_)->shutdown();
  }

  const Counts& counts() const { return *counts_; }

 private:
  std::shared_ptr<Engine> new_engine(Random& random) {
    constexpr int limits[] = {1, 3, 60, 300};
    return std::make_shared<Engine>(context_,
                                    EngineOptions{.depth_limit = limits[random() % 4],
                                                  .multithreading = random() % 8 != 0,
                                                  .workers = static_cast<int>(1 + random() % 4)});
  }

  void one_round(Random& random) {
    Maker maker(random, counts_, shared_);
    maker.fails = random() % 4 == 0;
    Variable y = maker.make();
    // The shared graph is never let go.
    try {
      switch (random() % 4) {
        case 0:
          accumulates(y, maker.leaves);
          break;
        case 1:
          fails_early(y, maker.fails);
          break;
        default:
          compares(y, maker.leaves, random() % 3 == 0);
      }
      ++counts_->runs;
    } catch (...) {
      EXPECT_TRUE(expected(std::current_exception(), maker.fails, *counts_));
    }
  }

  void accumulates(const Variable& y, const std::vector<Variable>& leaves) {
    y.backward({}, true);
    Variable first = leaves[0].grad();
    Variable fresh = grad(std::array{y}, std::array{leaves[0]}, {}, {.keep_graph = true})[0];
    EXPECT_EQ(first.defined(), fresh.defined());
    if (first.defined()) {
      EXPECT_TRUE(bitwise_equal(first.data(), fresh.data()));
    }
  }

  void fails_early(const Variable& y, bool may_fail) {
    auto engine = engine_of(context_);
    try {
      testing::execute(*engine, y,
                       {.keep_graph = true, .accumulate_grad = true, .exit_on_error = true});
    } catch (...) {
      EXPECT_TRUE(expected(std::current_exception(), may_fail, *counts_));
    }
  }

  // The same graph on this engine, perhaps asynchronously, and on one thread.
  void compares(const Variable& y, const std::vector<Variable>& leaves, bool asynchronous) {
    std::vector<Capture> captures;
    for (const Variable& x : leaves) captures.push_back({x.gradient_edge(), {}});
    auto engine = engine_of(context_);
    Variables got;
    if (asynchronous) {
      ++counts_->async;
      got =
          engine->execute_async({y.gradient_edge()}, {ones_like(y)}, {.keep_graph = true}, captures)
              .get();
    } else {
      got = testing::execute(*engine, y, {.keep_graph = true}, captures);
    }
    Engine alone(context_, {.multithreading = false});
    Variables expected = testing::execute(alone, y, {.keep_graph = true}, captures);
    for (size_t i = 0; i < leaves.size(); ++i) {
      ASSERT_EQ(got[i].defined(), expected[i].defined());
      if (got[i].defined()) {
        EXPECT_TRUE(bitwise_equal(got[i].data(), expected[i].data())) << "leaf " << i;
      }
    }
  }

  const uint64_t seed_;
  const Clock::time_point end_;
  Random random_;
  std::shared_ptr<Context> context_ = std::make_shared<Context>(ContextOptions{.workers = 1});
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
  const Variable a_ = leaf({0.5, -1.5}), b_ = leaf({2, 3});
  std::vector<Variable> shared_;
};

// SPEC E8, E9, E10, E14
TEST(Stress, RandomBackwardsOnManyThreads) {
  uint64_t seed = number_from("GRADUS_TEST_SEED", std::random_device()());
  auto seconds = std::chrono::seconds(number_from("GRADUS_STRESS_SECONDS", 2));
  std::printf("stress: GRADUS_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  size_t nodes = living_nodes(), variables = living_variables();
  {
    Stress stress(seed, seconds);
    stress.run();
    const Counts& c = stress.counts();
    std::printf(
        "%zu runs, %zu failures, %zu stops, %zu nested, %zu hooks, %zu callbacks, %zu async\n",
        c.runs.load(), c.failures.load(), c.stops.load(), c.nested.load(), c.hooks.load(),
        c.callbacks.load(), c.async.load());
    for (const auto* count : {&c.runs, &c.failures, &c.nested, &c.hooks, &c.callbacks, &c.async})
      EXPECT_GT(count->load(), 0u);
  }
  // Threads that were left behind end soon.
  for (int i = 0; i < 500 && (living_nodes() != nodes || living_variables() != variables); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(living_nodes(), nodes);
  EXPECT_EQ(living_variables(), variables);
}

// Many threads differentiate one graph of operators, of shapes that no thread has met, up to the
// third order: tapes and their derivatives are recorded by several at once.
TEST(Stress, OneGraphOfOperatorsOnManyThreads) {
  for (int64_t n = 1; n <= 24; ++n) {
    Variable x(Tensor::from(DType::f64, Sizes{n}, std::vector<double>(static_cast<size_t>(n), 0.3)),
               true);
    Variable y = x;
    for (int i = 0; i < 3; ++i) y = op("tanh", {op("exp", {op("mul", {y, x})})});
    Variable g = grad(std::array{op("sum", {y})}, std::array{x}, {}, {.create_graph = true})[0];
    auto run = [&](std::vector<Tensor>& all) {
      Variable z = op("sum", {op("mul", {g, g})});
      for (int order = 2; order <= 3; ++order) {
        Variable next =
            grad(std::array{z}, std::array{x}, {}, {.keep_graph = true, .create_graph = true})[0];
        all.push_back(next.data());
        z = op("sum", {op("mul", {next, next})});
      }
    };
    std::vector<std::vector<Tensor>> found(4);
    std::vector<std::thread> threads;
    for (auto& all : found) threads.emplace_back([&] { run(all); });
    for (std::thread& t : threads) t.join();
    for (const auto& all : found)
      for (size_t k = 0; k < all.size(); ++k)
        ASSERT_TRUE(bitwise_equal(all[k], found[0][k])) << "size " << n << ", order " << k + 2;
  }
}

}  // namespace
}  // namespace gradus::autograd::testing
