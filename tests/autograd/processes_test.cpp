// What a process does with its engines when it forks or ends, in children of the test.
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "tests/autograd/support.h"

namespace {
bool is_child = false;

#if defined(__SANITIZE_ADDRESS__)
// Until GCC 14 the checker's allocator may stay locked in a child: another thread allocated when
// the process forked. Waits until all others sleep; not for one that is busy all the time.
void wait_for_others() {
  const auto asleep = [](const std::filesystem::path& task) {
    std::ifstream in(task / "stat");
    std::string text{std::istreambuf_iterator<char>(in), {}};
    const size_t end = text.rfind(") ");  // of the thread's name
    return end == std::string::npos || text[end + 2] != 'R';
  };
  for (int tries = 0; tries < 100; ++tries) {
    int busy = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
      busy += !asleep(task);
    if (busy <= 1) return;  // this one
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}
#else
void wait_for_others() {}
#endif
}  // namespace

#if defined(__SANITIZE_ADDRESS__)
// A forked child has its parent's memory without the threads whose stacks refer to it: what the
// leak checker says there is not so. The parent is checked.
#pragma GCC visibility push(default)
extern "C" int __lsan_is_turned_off();  // NOLINT(bugprone-reserved-identifier): the checker's name
int __lsan_is_turned_off() { return is_child; }
#pragma GCC visibility pop
#endif

namespace gradus::autograd::testing {
namespace {

const Variable one = leaf({1}, false);
constexpr int64_t large = 10000;

// Runs `body` in a forked child; how it ended. A child that hangs is ended by its alarm.
int status_of(const std::function<int()>& body) {
  wait_for_others();
  pid_t child = fork();
  if (child == 0) {
    is_child = true;
    alarm(30);
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}
// The same with the ordinary end of a process: static objects go.
int status_of_exit(const std::function<void()>& body) {
  return status_of([&] {
    body();
    std::exit(0);
    return 0;
  });
}
bool ended_well(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

// Starts all kinds of threads that an engine has on the CPU.
void use(Engine& engine) {
  Variable x(Tensor::zeros(DType::f64, Sizes{large}), true);
  std::vector<Variable> branches;
  for (int i = 0; i < 8; ++i) branches.push_back(through("branch", x, hand_on, true));
  Variable y = joined("top", branches, copies(8));
  engine.execute_async({y.gradient_edge()}, {x.detach()}, accumulate).get();
}

bool works_in_a_new_context() {
  OwnEngine fresh({.depth_limit = 1, .workers = 3});
  use(*fresh);
  Variable x = leaf({2});
  op("mul", {x, x}).backward(one);
  return values(x.grad()) == std::vector<double>{4};
}

// SPEC E15
TEST(Processes, AForkedChildMakesNewContexts) {
  OwnEngine engine({.workers = 3});
  use(*engine);
  Variable x = leaf({2}), y = op("neg", {x});
  EXPECT_TRUE(ended_well(status_of([&] {
    if (!works_in_a_new_context()) return 1;
    std::string text;
    try {
      y.backward(one);
      return 2;
    } catch (const Error& e) {
      text = e.what();
    }
    if (text.find("parent process") == std::string::npos) return 3;
    if (text.find("make a new context") == std::string::npos) return 4;
    try {
      engine->execute_async({y.gradient_edge()}, {one}, accumulate);
      return 5;
    } catch (const Error&) {
    }
    engine->shutdown();  // nobody to wait for
    return 0;
  })));
  y.backward(one);  // the parent's goes on
  EXPECT_EQ(values(x.grad()), std::vector<double>{-1});
}

// SPEC E15, E14
TEST(Processes, AForkedChildEndsThoughItsEnginesThreadsAreGone) {
  for (bool busy : {false, true}) {
    auto engine = std::make_unique<OwnEngine>(EngineOptions{.workers = 3});
    use(**engine);
    std::atomic<bool> inside{false}, go{false};
    std::future<Variables> running;
    if (busy) {
      Variable y = through("busy", leaf({1}), [&](Variables&& c) {
        inside = true;
        while (!go) std::this_thread::yield();
        return std::move(c);
      });
      running = (*engine)->execute_async({y.gradient_edge()}, {one}, accumulate);
      while (!inside) std::this_thread::yield();
    }
    EXPECT_TRUE(ended_well(status_of_exit([&] { engine.reset(); })));
    EXPECT_TRUE(ended_well(status_of_exit([&] {
      if (!works_in_a_new_context()) _exit(1);
    })));
    go = true;
    if (busy) running.get();
  }
}

// SPEC E14
TEST(Processes, ExitWithTheDefaultContextsThreadsIdle) {
  EXPECT_TRUE(ended_well(status_of_exit([] {
    // In a child: the default context is made there, where nobody used it before.
    auto context = std::make_shared<Context>(ContextOptions{.workers = 3});
    static std::shared_ptr<Engine> engine;  // goes with the static objects
    engine = std::make_shared<Engine>(context);
    use(*engine);
  })));
}

// SPEC E14
TEST(Processes, ExitWhileAThreadIsBusyWaitsForItAtMostTheLimit) {
  auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(ended_well(status_of_exit([] {
    static auto engine = std::make_shared<Engine>(std::make_shared<Context>());
    static std::atomic<bool> inside{false};
    static Variable y = through("slow", leaf({1}), [](Variables&& c) {
      inside = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      return std::move(c);
    });
    static auto result = engine->execute_async({y.gradient_edge()}, {one}, accumulate);
    while (!inside) std::this_thread::yield();
  })));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
}

// SPEC E14
TEST(Processes, ExitFromInsideANode) {
  EXPECT_EQ(WEXITSTATUS(status_of_exit([] {
              static auto engine = std::make_shared<Engine>(std::make_shared<Context>());
              Variable y =
                  through("leaves", leaf({1}), [](Variables&&) -> Variables { std::exit(7); });
              execute(*engine, y, accumulate);
            })),
            7);
}

// SPEC E14, E10
TEST(Processes, AThrowOfAnyTypeOnAnyThreadEndsNothing) {
  EXPECT_TRUE(ended_well(status_of_exit([] {
    struct Odd {};
    OwnEngine engine({.depth_limit = 1, .workers = 4});
    Variable x(Tensor::zeros(DType::f64, Sizes{large}), true);
    std::vector<Variable> branches;
    for (int i = 0; i < 20; ++i)
      branches.push_back(through(
          "throws", x, [](Variables&&) -> Variables { throw Odd(); }, true));
    for (int i = 0; i < 20; ++i) {
      try {
        joined("top", branches, copies(20)).backward(x.detach());
        _exit(1);
      } catch (Odd) {
      }
      auto result = engine->execute_async({branches[0].gradient_edge()}, {x.detach()}, accumulate);
      try {
        result.get();
        _exit(2);
      } catch (Odd) {
      }
    }
  })));
}

}  // namespace
}  // namespace gradus::autograd::testing
