// Engines of contexts, asynchronous runs, and the end of an engine.
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

// SPEC E16
TEST(Engines, OfAContextCanBeReplaced) {
  class Counting final : public Engine {
   public:
    using Engine::Engine;
    Variables execute(std::span<const Edge> roots, std::span<const Variable> cotangents,
                      const ExecuteOptions& options, std::span<const Capture> outputs) override {
      ++calls;
      return Engine::execute(roots, cotangents, options, outputs);
    }
    int calls = 0;
  };
  OwnEngine own;
  EXPECT_EQ(engine_of(own.context()).get(), &*own);
  auto counting = std::make_shared<Counting>(own.context());
  replace_engine(own.context(), counting);
  EXPECT_EQ(engine_of(own.context()), counting);
  Variable x = leaf({1});
  op("neg", {x}).backward(one);
  grad(std::array{op("neg", {x})}, std::array{x}, std::array{one});
  EXPECT_EQ(counting->calls, 2);
  EXPECT_NE(error_of([&] { replace_engine(own.context(), nullptr); }).find("null"),
            std::string::npos);
  // A context that nobody gave an engine makes one, once.
  auto fresh = std::make_shared<Context>(ContextOptions{.workers = 1});
  EXPECT_EQ(engine_of(fresh), engine_of(fresh));
}

// SPEC E19
TEST(Engines, RunAsynchronously) {
  OwnEngine engine;
  Variable x = leaf({3});
  std::thread::id ran_on;
  auto mark = std::make_shared<const int>(1);
  thread_state().user = mark;
  Variable y = through("node", op("mul", {x, x}), [&](Variables&& c) {
    ran_on = std::this_thread::get_id();
    EXPECT_EQ(thread_state().user, mark);
    return std::move(c);
  });
  std::future<Variables> result =
      engine->execute_async({y.gradient_edge()}, {one}, {}, {{x.gradient_edge(), {}}});
  EXPECT_EQ(values(result.get()[0]), std::vector<double>{6});
  EXPECT_NE(ran_on, std::this_thread::get_id());
  std::future<Variables> bad =
      engine->execute_async({throwing("bad", x, 4).gradient_edge()}, {one}, accumulate);
  EXPECT_THROW(bad.get(), int);
  EXPECT_NE(error_of([&] { engine->execute_async({}, {}, accumulate); }).find("root"),
            std::string::npos);
  thread_state().user = nullptr;
  std::vector<std::future<Variables>> many;
  for (int i = 0; i < 30; ++i) {
    Variable z = op("mul", {x, scalar(i, false)});
    many.push_back(
        engine->execute_async({z.gradient_edge()}, {one}, {}, {{x.gradient_edge(), {}}}));
  }
  for (int i = 0; i < 30; ++i) EXPECT_EQ(values(many[static_cast<size_t>(i)].get()[0])[0], i);
}

// SPEC E14
TEST(Shutdown, AnyNumberOfTimesAndThenNothingRuns) {
  OwnEngine engine({.depth_limit = 1, .workers = 4});
  Variable x = leaf({1});
  engine->execute_async({op("neg", {x}).gradient_edge()}, {one}, accumulate).get();
  engine->shutdown();
  engine->shutdown(std::chrono::milliseconds(0));
  auto stopped = [](const std::string& text) {
    EXPECT_NE(text.find("was shut down"), std::string::npos) << text;
  };
  stopped(error_of([&] { op("neg", {x}).backward(one); }));
  stopped(error_of(
      [&] { engine->execute_async({op("neg", {x}).gradient_edge()}, {one}, accumulate); }));
  replace_engine(engine.context(), std::make_shared<Engine>(engine.context()));
  op("neg", {x}).backward(one);
}

// SPEC E14
TEST(Shutdown, FailsTheTaskThatRuns) {
  for (bool wide : {false, true}) {
    OwnEngine engine({.workers = 2});
    Variable x(Tensor::zeros(DType::f64, Sizes{large}), true);
    std::atomic<int> after{0};
    std::mutex mutex;
    std::condition_variable changed;
    bool inside = false, stop = false;
    auto count = [&](Variables&& c) {
      ++after;
      return std::move(c);
    };
    Variable low = through("low", x, count, true);
    auto wait = [&](Variables&& c) {
      std::unique_lock guard(mutex);
      inside = true;
      changed.notify_all();
      changed.wait(guard, [&] { return stop; });
      return std::move(c);
    };
    Variable a = through("a", low, wait, wide), b = through("b", low, wait, wide);
    std::thread other([&] {
      {
        std::unique_lock guard(mutex);
        changed.wait(guard, [&] { return inside; });
      }
      engine->shutdown(std::chrono::milliseconds(1));  // a worker is busy: it is left behind
      std::lock_guard guard(mutex);
      stop = true;
      changed.notify_all();
    });
    std::string text = error_of([&] { joined("top", {a, b}, copies(2)).backward(x.detach()); });
    other.join();
    EXPECT_NE(text.find("shut down while this backward ran"), std::string::npos) << text;
    EXPECT_EQ(after, 0);
  }
}

// SPEC E14
TEST(Shutdown, MayBeCalledFromInside) {
  for (bool nested : {false, true}) {
    OwnEngine engine({.depth_limit = nested ? 1 : 60});
    int low_runs = 0;
    Variable low = through("low", leaf({1}), [&](Variables&& c) {
      ++low_runs;
      return std::move(c);
    });
    auto stop = [&](Variables&& c) {
      engine->shutdown(std::chrono::seconds(1));
      return std::move(c);
    };
    Variable y = through("stop", low, [&](Variables&& c) {
      if (!nested) return stop(std::move(c));
      // On a pool thread, which cannot wait for itself.
      EXPECT_THROW(through("inner", leaf({1}), stop).backward(one), Error);
      return std::move(c);
    });
    std::string text = error_of([&] { y.backward(one); });
    EXPECT_NE(text.find("shut down"), std::string::npos) << text;
    EXPECT_EQ(low_runs, 0);
  }
}

// SPEC E14
TEST(Shutdown, ThreadsLeftBehindKeepWhatTheyNeed) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    bool inside = false, go = false, done = false;
  };
  auto shared = std::make_shared<Shared>();
  {
    OwnEngine engine;
    Variable y = through("slow", leaf({1}), [shared](Variables&& c) {
      std::unique_lock guard(shared->mutex);
      shared->inside = true;
      shared->changed.notify_all();
      shared->changed.wait(guard, [&] { return shared->go; });
      return std::move(c);
    });
    auto result = engine->execute_async({y.gradient_edge()}, {one}, accumulate);
    {
      std::unique_lock guard(shared->mutex);
      shared->changed.wait(guard, [&] { return shared->inside; });
    }
    engine->shutdown(std::chrono::milliseconds(1));
    std::thread later([shared, result = std::move(result)]() mutable {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      {
        std::lock_guard guard(shared->mutex);
        shared->go = true;
        shared->changed.notify_all();
      }
      EXPECT_THROW(result.get(), Error);
      std::lock_guard guard(shared->mutex);
      shared->done = true;
      shared->changed.notify_all();
    });
    later.detach();
  }  // the engine is gone, its thread is not
  std::unique_lock guard(shared->mutex);
  EXPECT_TRUE(
      shared->changed.wait_for(guard, std::chrono::seconds(20), [&] { return shared->done; }));
}

}  // namespace
}  // namespace gradus::autograd::testing
