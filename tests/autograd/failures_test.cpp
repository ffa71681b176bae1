// Failures and callbacks.
#include <condition_variable>
#include <thread>

#include "tests/autograd/support.h"

namespace gradus::autograd::testing {
namespace {

const Variable one = leaf({1}, false);
constexpr int64_t large = 10000;

template <class E>
Variable throwing(std::string name, const Variable& x, E error, bool thread_safe = false) {
  return through(
      std::move(name), x, [error](Variables&&) -> Variables { throw error; }, thread_safe);
}

struct SpecialError : Error {
  explicit SpecialError(int n) : Error("special"), code(n) {}
  int code;
};

// SPEC E10
TEST(Failures, OfAnyTypeReachTheCaller) {
  Variable x = leaf({1});
  EXPECT_THROW(throwing("n", x, 5).backward(one), int);
  EXPECT_THROW(throwing("n", x, std::string("text")).backward(one), std::string);
  EXPECT_THROW(throwing("n", x, std::range_error("r")).backward(one), std::range_error);
  EXPECT_THROW(throwing("n", x, ResourceError("no memory")).backward(one), ResourceError);
  EXPECT_THROW(throwing("n", x, InternalError("ours")).backward(one), InternalError);
  try {
    throwing("n", x, SpecialError(42)).backward(one);
    ADD_FAILURE();
  } catch (const SpecialError& e) {
    EXPECT_EQ(e.code, 42);
  }
  std::string text = error_of([&] { throwing("my node", x, Error("went wrong")).backward(one); });
  EXPECT_EQ(text, "'my node': went wrong");
  text = error_of([&] { throwing("n", x, Error("it was 'n'")).backward(one); });
  EXPECT_EQ(text, "it was 'n'");
}

struct Nameless final : Node {
  using Node::Node;
  std::string name() const override { throw 7L; }
  Variables apply(Variables&&) override { throw Error("the first"); }
};

// SPEC E10
TEST(Failures, OfANodeWhoseNameFailsTooReachTheCaller) {
  Variable x = leaf({1});
  auto n = make_ref<Nameless>(collect_next_edges(std::array{x}));
  EXPECT_EQ(error_of([&] { create_gradient_edge(x.data(), n).backward(one); }), "the first");
}

// SPEC E10
TEST(Failures, SkipTheRestAndLeaveTheEngineUsable) {
  OwnEngine engine;
  int ran = 0;
  Variable x = leaf({1});
  auto count = [&](Variables&& c) {
    ++ran;
    return std::move(c);
  };
  Variable low = through("low", x, count), low2 = through("low2", x, count);
  Variable bad = throwing("bad", low, 1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(joined("top", {bad, low2}, copies(2)).backward(one, true), int);
    EXPECT_EQ(ran, 0);
  }
  EXPECT_FALSE(x.grad().defined());
  low2.backward(one);
  EXPECT_EQ(ran, 1);
}

// SPEC E10
TEST(Failures, WhileSomethingElseIsReadyDoNotHang) {
  // The node fails after its first gradient has made the next node ready.
  Variable x = leaf({1}), w = leaf({1, 2});
  Variable low = through("low", x, hand_on), twice = through("twice", w, hand_on);
  Variable y = joined("top", {low, x, low}, [](Variables&& c) {
    return Variables{c[0], c[0], c[0]};
  });
  // An addition that fails: a cleared input takes any shape.
  auto n = make_ref<LambdaNode>("cleared", collect_next_edges(std::array{w}), hand_on);
  Variable cleared = create_gradient_edge(w.data(), n);
  n->clear_input_metadata();
  Variable other = leaf({5});
  Variable mixed = joined("mixed", {other, cleared, cleared}, [](Variables&&) {
    return Variables{leaf({1}, false), leaf({1, 2}, false), leaf({1, 2, 3}, false)};
  });
  std::string text = error_of([&] { mixed.backward(one); });
  EXPECT_NE(text.find("'cleared'"), std::string::npos) << text;
  y.backward(one);
  EXPECT_EQ(values(x.grad()), std::vector<double>{3});
}

// SPEC E10
TEST(Failures, ReturnOnlyWhenNoNodeRuns) {
  OwnEngine engine({.workers = 2});
  std::mutex mutex;
  std::condition_variable changed;
  bool other_runs = false;
  std::atomic<bool> other_done{false};
  const auto self = std::this_thread::get_id();
  auto meet = [&](Variables&& c) -> Variables {
    std::unique_lock guard(mutex);
    if (std::this_thread::get_id() != self) {
      other_runs = true;
      changed.notify_all();
      guard.unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      other_done = true;
      return std::move(c);
    }
    EXPECT_TRUE(changed.wait_for(guard, std::chrono::seconds(20), [&] { return other_runs; }));
    throw 3;
  };
  Variable x(Tensor::zeros(DType::f64, Sizes{large}), true);
  Variable a = through("a", x, meet, true), b = through("b", x, meet, true);
  EXPECT_THROW(joined("top", {a, b}, copies(2)).backward(x.detach()), int);
  EXPECT_TRUE(other_done);
}

void end_at_once() {
  OwnEngine engine({.workers = 2});
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    bool runs = false, go = false, done = false;
  };
  auto shared = std::make_shared<Shared>();
  const auto self = std::this_thread::get_id();
  auto meet = [shared, self](Variables&& c) -> Variables {
    std::unique_lock guard(shared->mutex);
    if (std::this_thread::get_id() != self) {
      shared->runs = true;
      shared->changed.notify_all();
      // Ends only after the call has returned.
      EXPECT_TRUE(
          shared->changed.wait_for(guard, std::chrono::seconds(20), [&] { return shared->go; }));
      shared->done = true;
      shared->changed.notify_all();
      return std::move(c);
    }
    EXPECT_TRUE(
        shared->changed.wait_for(guard, std::chrono::seconds(20), [&] { return shared->runs; }));
    throw 3;
  };
  Variable x(Tensor::zeros(DType::f64, Sizes{large}), true);
  Variable a = through("a", x, meet, true), b = through("b", x, meet, true);
  Variable y = joined("top", {a, b}, copies(2));
  EXPECT_THROW(execute(*engine, y, {.accumulate_grad = true, .exit_on_error = true}), int);
  std::unique_lock guard(shared->mutex);
  EXPECT_FALSE(shared->done);
  shared->go = true;
  shared->changed.notify_all();
  EXPECT_TRUE(
      shared->changed.wait_for(guard, std::chrono::seconds(20), [&] { return shared->done; }));
}

// SPEC E10
TEST(Failures, CanEndTheCallAtOnce) {
  size_t nodes = living_nodes(), variables = living_variables();
  end_at_once();
  // The thread that was left lets go of the task a little later.
  for (int i = 0; i < 2000 && (living_nodes() != nodes || living_variables() != variables); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(living_nodes(), nodes);
  EXPECT_EQ(living_variables(), variables);
}

// SPEC E12
TEST(Callbacks, RunWhenTheTaskEndsWell) {
  EXPECT_NE(error_of([] { Engine::queue_callback([] {}); }).find("only while a backward runs"),
            std::string::npos);
  std::string log;
  const auto self = std::this_thread::get_id();
  Variable x = leaf({1});
  x.register_post_accumulate_hook([&](const Variable&) { log += "leaf "; });
  Variable y = through("node", x, [&](Variables&& c) {
    int64_t id = current_task_id();
    Engine::queue_callback([&, id] {
      EXPECT_EQ(std::this_thread::get_id(), self);
      EXPECT_EQ(current_task_id(), id);
      EXPECT_EQ(grad_mode(), GradMode::no_grad);
      EXPECT_EQ(nodes_in_current_task().size(), 2u);
      log += "first ";
      Engine::queue_callback([&] {
        log += "added ";
        // Unlocked: it may do what takes locks.
        leaf({1}).gradient_edge();
        through("inner", leaf({1}), hand_on).backward(one);
        Engine::queue_callback([&] { log += "last "; });
      });
    });
    Engine::queue_callback([&] { log += "second "; });
    return std::move(c);
  });
  y.backward(one);
  EXPECT_EQ(log, "leaf first second added last ");
}

// SPEC E12
TEST(Callbacks, AreSkippedAfterAFailureAndFailTheTaskThemselves) {
  std::string log;
  Variable x = leaf({1});
  Variable bad = throwing("bad", x, 1);
  Variable y = through("node", bad, [&](Variables&& c) {
    Engine::queue_callback([&] { log += "never "; });
    return std::move(c);
  });
  EXPECT_THROW(y.backward(one), int);
  EXPECT_EQ(log, "");
  Variable z = through("node", x, [&](Variables&& c) {
    Engine::queue_callback([&] {
      log += "one ";
      throw 2.5;
    });
    Engine::queue_callback([&] { log += "two "; });
    return std::move(c);
  });
  EXPECT_THROW(z.backward(one), double);
  EXPECT_EQ(log, "one ");
}

// SPEC E12, N13
TEST(Callbacks, ThatNeverRanDieUnlocked) {
  OwnEngine engine({.workers = 2});
  struct Asks {
    ~Asks() { through("inner", leaf({1}), hand_on).backward(one); }
  };
  Variable x(Tensor::zeros(DType::f64, Sizes{large}), true);
  Variable a = throwing("a", x, 1, true), b = throwing("b", x, 1, true);
  Variable y = joined("top", {a, b}, [](Variables&& c) {
    Engine::queue_callback([keep = std::make_shared<Asks>()] {});
    return Variables(2, c[0]);
  });
  EXPECT_THROW(y.backward(x.detach()), int);
}

}  // namespace
}  // namespace gradus::autograd::testing
