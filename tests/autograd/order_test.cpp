// The order of ready nodes, and running on the caller alone.
#include <filesystem>
#include <random>
#include <thread>

#include "autograd/graph_task.h"
#include "tests/autograd/support.h"

namespace gradus::autograd::testing {
namespace {

const Variable one = leaf({1}, false);

std::vector<std::string> drain(ReadyQueue& queue, std::span<const std::string> names) {
  std::vector<std::string> order;
  ReadyNode next;
  while (queue.size() != 0) {
    EXPECT_TRUE(queue.pop(next, 0, nullptr));
    order.push_back(names[next.index]);
  }
  return order;
}

// SPEC E6
TEST(ReadyQueues, DeeperFirstThenLaterMadeThenDiscovered) {
  struct Case {
    int depth;
    uint64_t number;
  };
  const std::vector<Case> cases = {{0, 5}, {1, 1}, {0, 9}, {1, 7}, {0, 5}, {2, 0}, {0, UINT64_MAX}};
  const std::vector<std::string> names = {"f", "c", "e", "b", "g", "a", "d"};
  std::vector<uint32_t> order(cases.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::ranges::shuffle(order, random);
    ReadyQueue queue;
    for (uint32_t i : order) queue.push({nullptr, {}, i, cases[i].depth, cases[i].number, false});
    EXPECT_EQ(drain(queue, names), (std::vector<std::string>{"a", "b", "c", "d", "e", "f", "g"}));
  }
}

// SPEC E6
TEST(ReadyQueues, ShutDownBeforeAllElse) {
  ReadyQueue queue;
  queue.push({nullptr, {}, 0, 9, 9, false});
  queue.close();
  ReadyNode next;
  EXPECT_FALSE(queue.pop(next, 0, nullptr));
}

struct NoHost final : TaskHost {
  ReadyQueue& device_queue(Device) override { return queue; }
  void ask_for_help(GraphTask&) override {}
  size_t drop(const GraphTask&) override { return 0; }
  bool stopped() const override { return false; }
  TaskTables take_tables() override { return {}; }
  void give_tables(TaskTables) override {}
  ReadyQueue queue;
};

// SPEC E6
TEST(ReadyQueues, AFailedTaskIsTakenOutAtOnce) {
  NoHost host;
  Variable y = op("neg", {leaf({1})});
  auto roots = std::array{y.gradient_edge()};
  auto dead = make_ref<GraphTask>(GraphTask::Request{roots, accumulate, {}}, host);
  auto alive = make_ref<GraphTask>(GraphTask::Request{roots, accumulate, {}}, host);
  ReadyQueue queue;
  queue.push({dead.get(), {}, 0, 3, 9, false});
  queue.push({alive.get(), {}, 1, 0, 1, false});
  queue.push({dead.get(), {}, 2, 2, 9, true});
  EXPECT_EQ(queue.remove(dead.get()), 2u);
  ReadyNode next;
  EXPECT_FALSE(queue.pop_parallel(next));
  ASSERT_TRUE(queue.pop(next, 0, nullptr));
  EXPECT_EQ(next.index, 1u);
  EXPECT_EQ(queue.size(), 0u);
}

// SPEC E6
TEST(ReadyQueues, WaitersTakeOnlyWhatIsDeepEnough) {
  NoHost host;
  Variable y = op("neg", {leaf({1})});
  auto roots = std::array{y.gradient_edge()};
  auto task = make_ref<GraphTask>(GraphTask::Request{roots, accumulate, {}}, host);
  ReadyQueue queue;
  queue.push({task.get(), {}, 0, 1, 9, false});
  ReadyNode got;
  std::thread waiter([&] { EXPECT_TRUE(queue.pop(got, 2, task.get())); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  queue.push({task.get(), {}, 1, 2, 1, false});
  waiter.join();
  EXPECT_EQ(got.index, 1u);
  EXPECT_EQ(queue.size(), 1u);
}

// SPEC E6
TEST(Order, LaterMadeNodesRunFirstAndAccumulatorsBeforeAll) {
  std::string log;
  auto noted = [&](std::string name, const Variable& x) {
    return through(name, x, [&log, name](Variables&& c) {
      log += name + " ";
      return std::move(c);
    });
  };
  Variable x = leaf({1}), w = leaf({1});
  w.register_hook([&](const Variable&) {
    log += "w ";
    return Variable();
  });
  Variable a = noted("a", x), b = noted("b", w), c = noted("c", x), d = noted("d", a);
  joined("top", {d, b, c}, copies(3)).backward(one);
  EXPECT_EQ(log, "d c b w a ");
}

// A random graph whose nodes append their name to a log as they run.
Variable random_graph(std::mt19937& random, std::vector<std::string>& log, bool thread_safe,
                      int nodes) {
  std::vector<Variable> all{leaf({1}), leaf({2})};
  for (int i = 0; i < nodes; ++i) {
    std::vector<Variable> in;
    for (uint32_t k = 0; k <= random() % 3; ++k) {
      size_t back = std::min<size_t>(all.size(), 6);
      in.push_back(all[all.size() - 1 - random() % back]);
    }
    std::string name = "n" + std::to_string(i);
    size_t n = in.size();
    all.push_back(joined(
        name, in,
        [&log, name, n](Variables&& c) {
          log.push_back(name);
          return Variables(n, c[0]);
        },
        thread_safe));
  }
  return all.back();
}

// SPEC E17
TEST(OnTheCaller, TheOrderIsTheOneThatCanBeAskedFor) {
  OwnEngine engine({.multithreading = false});
  std::mt19937 random(11);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::string> log, expected;
    Variable y = random_graph(random, log, true, 30);
    for (const Node* n : engine->execution_order(std::array{y.gradient_edge()}))
      if (n->name() != "AccumulateGrad") expected.push_back(n->name());
    execute(*engine, y, accumulate);
    EXPECT_EQ(log, expected);
    EXPECT_FALSE(log.empty());
  }
}

// SPEC E17
TEST(OnTheCaller, TheOrderOfAPrunedTaskToo) {
  OwnEngine engine({.multithreading = false});
  std::vector<std::string> log;
  auto noted = [&](std::string name, const Variable& x) {
    return through(name, x, [&log, name](Variables&& c) {
      log.push_back(name);
      return std::move(c);
    });
  };
  Variable x = leaf({1}), a = noted("a", x), b = noted("b", a), c = noted("c", x);
  Variable y = joined("top", {b, c, a}, copies(3));
  std::vector<std::string> order;
  for (const Node* n :
       engine->execution_order(std::array{y.gradient_edge()}, std::array{a.gradient_edge()}))
    order.push_back(n->name());
  EXPECT_EQ(order, (std::vector<std::string>{"top", "b"}));
  execute(*engine, y, {}, {{a.gradient_edge(), {}}});
  EXPECT_EQ(log, std::vector<std::string>{"b"});
}

size_t threads() {
  size_t n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    ++n;
  return n;
}

// SPEC E17
TEST(OnTheCaller, EvenDeepNestingStaysThere) {
  OwnEngine engine({.depth_limit = 2, .multithreading = false, .workers = 4});
  const auto self = std::this_thread::get_id();
  size_t before = threads();
  std::function<void(int)> nest = [&](int depth) {
    through("nest", leaf({1}), [&, depth](Variables&& c) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      if (depth > 0) nest(depth - 1);
      return std::move(c);
    }).backward(one);
  };
  nest(30);
  Variable big(Tensor::zeros(DType::f64, Sizes{20000}), true);
  auto here = [&](Variables&& c) {
    EXPECT_EQ(std::this_thread::get_id(), self);
    return std::move(c);
  };
  Variable a = through("a", big, here, true), b = through("b", big, here, true);
  joined("top", {a, b}, copies(2)).backward(big.detach());
  EXPECT_EQ(threads(), before);
}

}  // namespace
}  // namespace gradus::autograd::testing
