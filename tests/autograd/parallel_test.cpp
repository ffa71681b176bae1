// Independent branches on several threads; state and warnings that go with them.
#include <condition_variable>
#include <random>
#include <set>
#include <thread>

#include "tests/autograd/support.h"

namespace gradus::autograd::testing {
namespace {

constexpr int64_t large = 10000;  // elements that are worth a worker

Tensor random_tensor(std::mt19937_64& random) {
  std::uniform_real_distribution<double> number(-1, 1);
  std::vector<double> v(large);
  for (double& d : v) d = number(random) * std::exp(20 * number(random));
  return Tensor::from(DType::f64, Sizes{large}, v);
}

// A delay that differs from run to run.
void dawdle() {
  static std::atomic<uint64_t> seed{std::random_device()()};
  thread_local std::mt19937_64 random(seed.fetch_add(1));
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
}

struct Wide {
  std::vector<Variable> leaves;
  Variable y;
};

// Branches whose sums depend on the order in which they are added. `threads` notes who ran them.
Wide wide_graph(std::mutex& mutex, std::set<std::thread::id>& threads, bool thread_safe) {
  std::mt19937_64 random(3);
  Wide g;
  for (int i = 0; i < 2; ++i) g.leaves.emplace_back(random_tensor(random), true);
  std::vector<Variable> layer = g.leaves;
  for (int depth = 0; depth < 3; ++depth) {
    std::vector<Variable> next;
    for (int i = 0; i < 8; ++i) {
      Variable factor(random_tensor(random));
      Variable in = op("mul", {layer[static_cast<size_t>(i) % layer.size()], factor});
      next.push_back(through(
          "branch", in,
          [&](Variables&& c) {
            dawdle();
            std::lock_guard guard(mutex);
            threads.insert(std::this_thread::get_id());
            return std::move(c);
          },
          thread_safe));
    }
    layer = next;
  }
  g.y = op("sum", {layer[0]});
  for (size_t i = 1; i < layer.size(); ++i) g.y = op("add", {g.y, op("sum", {layer[i]})});
  return g;
}

// SPEC E8
TEST(Parallel, BitsDoNotDependOnTheNumberOfWorkers) {
  std::vector<Tensor> expected;
  for (int workers : {1, 2, 8}) {
    OwnEngine engine({.workers = workers});
    std::set<std::thread::id> threads;
    std::mutex mutex;
    // A busy machine may take its time to start workers.
    for (int round = 0; round < 6 || (workers > 1 && threads.size() < 2 && round < 300); ++round) {
      Wide g = wide_graph(mutex, threads, true);
      g.y.backward();
      for (size_t i = 0; i < g.leaves.size(); ++i) {
        if (expected.size() < g.leaves.size())
          expected.push_back(g.leaves[i].grad().data());
        else
          EXPECT_TRUE(bitwise_equal(g.leaves[i].grad().data(), expected[i]))
              << workers << " workers, leaf " << i;
      }
    }
    if (workers == 1) {
      EXPECT_EQ(threads, std::set{std::this_thread::get_id()});
    } else {
      EXPECT_GT(threads.size(), 1u) << workers;
      EXPECT_LE(threads.size(), static_cast<size_t>(workers));
    }
  }
}

// SPEC E8
TEST(Parallel, BranchesRunAtTheSameTime) {
  OwnEngine engine({.workers = 2});
  std::mutex mutex;
  std::condition_variable both;
  int there = 0;
  auto meet = [&](Variables&& c) {
    std::unique_lock guard(mutex);
    ++there;
    both.notify_all();
    EXPECT_TRUE(both.wait_for(guard, std::chrono::seconds(20), [&] { return there == 2; }));
    return std::move(c);
  };
  Variable x(Tensor::zeros(DType::f64, Sizes{large}), true);
  Variable a = through("a", x, meet, true), b = through("b", x, meet, true);
  joined("top", {a, b}, copies(2)).backward(x.detach());
}

// SPEC E8
TEST(Parallel, UserCodeStaysOnTheCallerUnlessItIsThreadSafe) {
  OwnEngine engine({.workers = 4});
  std::mutex mutex;
  std::set<std::thread::id> node_threads, hook_threads;
  for (int round = 0; round < 5; ++round) {
    Wide g = wide_graph(mutex, node_threads, false);
    for (Variable& leaf : g.leaves)
      leaf.register_hook([&](const Variable&) {
        hook_threads.insert(std::this_thread::get_id());
        return Variable();
      });
    g.y.backward();
  }
  EXPECT_EQ(node_threads, std::set{std::this_thread::get_id()});
  EXPECT_EQ(hook_threads, std::set{std::this_thread::get_id()});
}

// SPEC E8
TEST(Parallel, HooksOfThreadSafeNodesStayOnTheCallerUnlessTheyAreTooToo) {
  for (bool safe : {false, true}) {
    OwnEngine engine({.workers = 4});
    std::mutex mutex;
    std::set<std::thread::id> threads;
    Variable x(Tensor::zeros(DType::f64, Sizes{large}), true);
    std::vector<Variable> branches;
    for (int i = 0; i < 40; ++i) {
      branches.push_back(through(
          "branch", x,
          [](Variables&& c) {
            dawdle();
            return std::move(c);
          },
          true));
      branches.back().grad_fn()->hooks().add_pre(
          [&](const Variables&) {
            std::lock_guard guard(mutex);
            threads.insert(std::this_thread::get_id());
            return Variables();
          },
          safe);
    }
    Variable y = joined("top", branches, copies(40));
    for (int round = 0; round == 0 || (safe && threads.size() < 2 && round < 300); ++round)
      y.backward(x.detach(), true);
    if (safe) {
      EXPECT_GT(threads.size(), 1u);
    } else {
      EXPECT_EQ(threads, std::set{std::this_thread::get_id()});
    }
  }
}

// SPEC E8
TEST(Parallel, AHookThatComesDuringTheRunStaysOnTheCaller) {
  OwnEngine engine({.workers = 4});
  std::mutex mutex;
  std::set<std::thread::id> threads;
  Variable x(Tensor::zeros(DType::f64, Sizes{large}), true);
  std::vector<Variable> branches;
  for (int i = 0; i < 40; ++i) branches.push_back(through("branch", x, hand_on, true));
  joined("top", branches, [&](Variables&& c) {
    for (Variable& b : branches)
      b.register_hook([&](const Variable&) {
        dawdle();
        std::lock_guard guard(mutex);
        threads.insert(std::this_thread::get_id());
        return Variable();
      });
    return Variables(40, c[0]);
  }).backward(x.detach());
  EXPECT_EQ(threads, std::set{std::this_thread::get_id()});
}

// SPEC E8
TEST(Parallel, SeveralTasksAccumulateIntoOneLeafCorrectly) {
  OwnEngine engine({.workers = 2});
  Variable x = leaf({1, 2});
  std::vector<std::thread> threads;
  ThreadState state = thread_state();
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      StateGuard guard(state);
      for (int i = 0; i < 50; ++i) op("sum", {op("mul", {x, scalar(2, false)})}).backward();
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{800, 800}));
}

// SPEC E8
TEST(Parallel, TasksMayShareNodes) {
  OwnEngine engine({.workers = 3});
  Variable x(Tensor::from(DType::f64, Sizes{large}, std::vector<double>(large, 2)), true);
  Variable shared = op("mul", {op("mul", {x, x}), x});
  std::vector<std::thread> threads;
  ThreadState state = thread_state();
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      StateGuard guard(state);
      for (int i = 0; i < 10; ++i) {
        Variable y = op("sum", {op("mul", {shared, shared})});
        Variable g = grad(std::array{y}, std::array{x}, {}, {.keep_graph = true})[0];
        EXPECT_EQ(g.data().item(large - 1), 6 * 32);
      }
    });
  for (std::thread& t : threads) t.join();
}

// SPEC E21
TEST(Parallel, WarningsOfOtherThreadsAreReplayedOnTheCaller) {
  for (bool fails : {false, true}) {
    OwnEngine engine({.workers = 4});
    const auto self = std::this_thread::get_id();
    std::multiset<std::string> heard;
    thread_state().warnings = [&](const std::string& message) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      heard.insert(message);
    };
    Variable x(Tensor::zeros(DType::f64, Sizes{large}), true);
    std::atomic<int> elsewhere{0};
    std::vector<Variable> branches;
    for (int i = 0; i < 40; ++i)
      branches.push_back(through(
          "branch", x,
          [&](Variables&& c) {
            dawdle();
            elsewhere += std::this_thread::get_id() != self;
            warn("look here");
            return std::move(c);
          },
          true));
    Variable down = joined("bottom", {x}, [&](Variables&& c) -> Variables {
      if (fails) throw Error("bottom");
      return std::move(c);
    });
    std::vector<Variable> second;
    for (Variable& b : branches) second.push_back(joined("pair", {b, down}, copies(2)));
    auto run = [&] { joined("top", second, copies(40)).backward(x.detach()); };
    if (fails) {
      // What was warned of until then is heard, and the failure too.
      EXPECT_NE(error_of(run).find("'bottom'"), std::string::npos);
      EXPECT_LE(heard.size(), 40u);
    } else {
      size_t runs = 0;
      for (; runs == 0 || (elsewhere == 0 && runs < 300); ++runs) run();
      EXPECT_GT(elsewhere, 0);
      EXPECT_EQ(heard.count("look here"), 40 * runs);
    }
  }
}

// SPEC E21, E10
TEST(Parallel, WarningsAreHeardThoughTheTaskFails) {
  OwnEngine engine({.workers = 2});
  const auto self = std::this_thread::get_id();
  int heard = 0;
  thread_state().warnings = [&](const std::string&) { ++heard; };
  std::mutex mutex;
  std::condition_variable changed;
  bool warned = false, met = false;
  auto meet = [&](Variables&& c) -> Variables {
    std::unique_lock guard(mutex);
    if (std::this_thread::get_id() != self) {
      warn("from a worker");
      warned = true;
      changed.notify_all();
      // Else it might be done, and take the caller's node too, before the caller is there.
      EXPECT_TRUE(changed.wait_for(guard, std::chrono::seconds(20), [&] { return met; }));
      return std::move(c);
    }
    met = true;
    changed.notify_all();
    EXPECT_TRUE(changed.wait_for(guard, std::chrono::seconds(20), [&] { return warned; }));
    throw Error("on the caller");
  };
  Variable x(Tensor::zeros(DType::f64, Sizes{large}), true);
  Variable a = through("a", x, meet, true), b = through("b", x, meet, true);
  error_of([&] { joined("top", {a, b}, copies(2)).backward(x.detach()); });
  EXPECT_EQ(heard, 1);
}

// SPEC E23
TEST(Parallel, TheCallersStateHoldsWhereverNodesRun) {
  for (bool create_graph : {false, true}) {
    OwnEngine engine({.workers = 4});
    auto mark = std::make_shared<const int>(5);
    ThreadState state = thread_state();
    state.user = mark;
    state.anomaly = AnomalyMode::nan;
    state.mode = GradMode::enabled;
    StateGuard guard(state);
    std::atomic<int> checked{0};
    GradMode expected = create_graph ? GradMode::enabled : GradMode::no_grad;
    auto check = [&] {
      EXPECT_EQ(thread_state().user, mark);
      EXPECT_EQ(thread_state().anomaly, AnomalyMode::nan);
      EXPECT_EQ(grad_mode(), expected);
      EXPECT_EQ(current_context(), engine.context());
      ++checked;
    };
    Variable x(Tensor::zeros(DType::f64, Sizes{large}), true);
    std::vector<Variable> branches;
    for (int i = 0; i < 20; ++i)
      branches.push_back(through(
          "branch", x,
          [&](Variables&& c) {
            dawdle();
            check();
            return std::move(c);
          },
          true));
    Variable y = joined("top", branches, [&](Variables&& c) {
      Engine::queue_callback(check);
      return Variables(20, c[0]);
    });
    thread_state().mode = GradMode::inference;  // of the caller; not of what runs
    grad(std::array{y}, std::array{x},
         std::array{Variable(Tensor::zeros(DType::f64, Sizes{large}))},
         {.create_graph = create_graph});
    EXPECT_EQ(grad_mode(), GradMode::inference);
    thread_state().mode = GradMode::enabled;
    EXPECT_EQ(checked, 21);
  }
}

// SPEC N13
TEST(Parallel, NothingOfTheUsersDiesUnderTheTasksLock) {
  // Memory whose owner, when it is let go, asks the running task for something that it guards.
  OwnEngine engine({.workers = 2});
  std::atomic<int> asked{0};
  Variable x(Tensor::zeros(DType::f64, Sizes{large}), true);
  auto foreign = [&] {
    auto memory = std::make_shared<std::vector<double>>(large, 1.0);
    return Variable(Tensor(make_ref<Storage>(memory->data(), large * 8, Device(),
                                             [&asked, memory] {
                                               nodes_in_current_task();
                                               ++asked;
                                             }),
                           Layout(DType::f64, Sizes{large})));
  };
  std::vector<Variable> branches;
  for (int i = 0; i < 12; ++i)
    branches.push_back(through(
        "branch", x, [&](Variables&&) { return Variables{foreign()}; }, true));
  Variable bad = through("bad", x, [](Variables&&) -> Variables { throw 1; });
  branches.push_back(bad);
  EXPECT_THROW(joined("top", branches, copies(13)).backward(x.detach()), int);
  x.set_grad({});
  branches.pop_back();
  asked = 0;
  joined("top", branches, copies(12)).backward(x.detach());
  EXPECT_EQ(asked, 12);
}

}  // namespace
}  // namespace gradus::autograd::testing
