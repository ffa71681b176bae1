// A node may call the engine, to any depth.
#include <set>
#include <thread>

#include "tests/autograd/support.h"

namespace gradus::autograd::testing {
namespace {

const Variable one = leaf({1}, false);

// Calls the engine from a node, `depth` times within each other.
struct Nest {
  std::vector<std::thread::id> threads;
  std::vector<GradMode> modes;
  int64_t last_id = -1;
  double run(int depth) {
    Variable x = leaf({1});
    Variable y = through("nest", x, [&, depth](Variables&& c) {
      threads.push_back(std::this_thread::get_id());
      modes.push_back(grad_mode());
      int64_t id = current_task_id();
      EXPECT_GT(id, last_id);
      last_id = id;
      double below = depth > 1 ? run(depth - 1) : 0;
      EXPECT_EQ(current_task_id(), id);
      EXPECT_EQ(current_node()->name(), "nest");
      return Variables{leaf({below + values(c[0])[0]}, false)};
    });
    y.backward(one);
    return values(x.grad())[0];
  }
};

// SPEC E9
TEST(Nested, BackwardsRunToAnyDepth) {
  OwnEngine engine;
  for (int depth : {1, 59, 60, 61, 200}) {
    Nest nest;
    EXPECT_EQ(nest.run(depth), depth);
  }
}

// SPEC E9, N2
TEST(Nested, NodesOfAnotherThreadAreNumberedOn) {
  OwnEngine engine({.depth_limit = 1});
  uint64_t made = 0;
  Variable x = leaf({3}), d;
  through("outer", leaf({1}), [&](Variables&& c) {
    GradModeGuard mode(GradMode::enabled);
    Variable y = x;
    for (int i = 0; i < 100; ++i) y = op("neg", {y});
    made = y.grad_fn()->sequence_number();
    d = grad(std::array{op("mul", {y, y})}, std::array{x}, std::array{leaf({1})},
             {.create_graph = true})[0];
    EXPECT_GT(op("neg", {d}).grad_fn()->sequence_number(), d.grad_fn()->sequence_number());
    return std::move(c);
  }).backward(one);
  EXPECT_GT(d.grad_fn()->sequence_number(), made);
}

// SPEC E9
TEST(Nested, BeyondTheLimitAnotherThreadGoesOn) {
  OwnEngine engine({.depth_limit = 3});
  Nest nest;
  EXPECT_EQ(nest.run(7), 7);
  const auto self = std::this_thread::get_id();
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(nest.threads[i] == self, i < 3) << i;
    EXPECT_EQ(nest.threads[i], nest.threads[i / 3 * 3]) << i;
    EXPECT_EQ(nest.modes[i], GradMode::no_grad);
  }
  EXPECT_NE(nest.threads[3], nest.threads[6]);
  engine->set_depth_limit(100);
  Nest shallow;
  EXPECT_EQ(shallow.run(50), 50);
  EXPECT_EQ((std::set(shallow.threads.begin(), shallow.threads.end())), std::set{self});
  EXPECT_NE(error_of([&] { engine->set_depth_limit(0); }).find("1 or more"), std::string::npos);
  EXPECT_NE(error_of([] { OwnEngine bad({.depth_limit = 0}); }).find("1 or more"),
            std::string::npos);
}

// SPEC E9, E10
TEST(Nested, FailuresComeUpFromAnyDepth) {
  for (int limit : {2, 60}) {
    OwnEngine engine({.depth_limit = limit});
    std::function<void(int)> nest = [&](int depth) {
      through("level" + std::to_string(depth), leaf({1}), [&, depth](Variables&& c) {
        if (depth == 0) throw std::out_of_range("the bottom");
        nest(depth - 1);
        return std::move(c);
      }).backward(one);
    };
    EXPECT_THROW(nest(9), std::out_of_range);
    Nest after;
    EXPECT_EQ(after.run(5), 5);
  }
}

// SPEC E9
TEST(Nested, ManyThreadsAtOnce) {
  OwnEngine engine({.depth_limit = 4, .workers = 2});
  ThreadState state = thread_state();
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&] {
      StateGuard guard(state);
      Nest nest;
      EXPECT_EQ(nest.run(30), 30);
    });
  for (std::thread& t : threads) t.join();
}

// SPEC E9, E23
TEST(Nested, TheStateGoesAlongBeyondTheLimit) {
  OwnEngine engine({.depth_limit = 1});
  auto mark = std::make_shared<const int>(1);
  thread_state().user = mark;
  std::vector<std::string> heard;
  thread_state().warnings = [&](const std::string& m) { heard.push_back(m); };
  int runs = 0;
  std::function<void(int)> nest = [&](int depth) {
    through("level", leaf({1}), [&, depth](Variables&& c) {
      ++runs;
      EXPECT_EQ(thread_state().user, mark);
      warn("at " + std::to_string(depth));
      if (depth > 0) nest(depth - 1);
      return std::move(c);
    }).backward(one);
  };
  nest(3);
  EXPECT_EQ(runs, 4);
  EXPECT_EQ(heard, (std::vector<std::string>{"at 3", "at 2", "at 1", "at 0"}));
  thread_state().user = nullptr;
}

// SPEC N11, E13
TEST(Anomalies, AreNamedWithTheirPlaceAndTheWholeChain) {
  OwnEngine engine;
  int made = 0;
  ThreadState state = thread_state();
  state.anomaly = AnomalyMode::nan;
  state.place = [&] { return "line " + std::to_string(++made); };
  StateGuard guard(state);
  Variable x = leaf({0});
  Variable y = through("outer", x, [](Variables&& c) {  // line 1, and the accumulator before it
    return Variables{through("inner", c[0], [](Variables&& d) {
      return Variables{op("div", {op("mul", {d[0], scalar(0, false)}), scalar(0, false)})};
    })};
  });
  Variable cotangent = leaf({1});
  Variable g = grad(std::array{y}, std::array{x}, std::array{cotangent}, {.create_graph = true})[0];
  ASSERT_EQ(g.grad_fn()->name(), "inner");
  ASSERT_NE(g.grad_fn()->anomaly(), nullptr);
  EXPECT_EQ(g.grad_fn()->anomaly()->parent, y.grad_fn());
  std::string inner_place = g.grad_fn()->anomaly()->place;
  std::string outer_place = y.grad_fn()->anomaly()->place;
  EXPECT_NE(inner_place, outer_place);
  std::string text = error_of([&] { grad(std::array{g}, std::array{cotangent}, std::array{one}); });
  EXPECT_NE(text.find("'inner' returned NaN in gradient 0"), std::string::npos) << text;
  EXPECT_NE(text.find("'inner' was made at " + inner_place), std::string::npos) << text;
  EXPECT_NE(text.find("while 'outer' ran, which was made at " + outer_place), std::string::npos)
      << text;
}

// SPEC E13
TEST(Anomalies, OfTheFirstFunctionAndItsNumber) {
  OwnEngine engine;
  auto make = [](double bad) {
    Variable x = leaf({1, 2}), w = leaf({3, 4});
    Variable low = joined("low", {x, w}, copies(2));
    return joined("source", {low, low}, [bad](Variables&& c) {
      return Variables{c[0], leaf({0, bad}, false)};
    });
  };
  auto run = [&](AnomalyMode mode, double bad) {
    ThreadState state = thread_state();
    state.anomaly = mode;
    StateGuard guard(state);
    make(bad).backward(leaf({1, 1}, false));
  };
  std::string text = error_of([&] { run(AnomalyMode::nan, NAN); });
  EXPECT_NE(text.find("'source' returned NaN in gradient 1"), std::string::npos) << text;
  EXPECT_NE(text.find("not known"), std::string::npos) << text;
  run(AnomalyMode::nan, INFINITY);
  run(AnomalyMode::off, NAN);
  text = error_of([&] { run(AnomalyMode::nan_and_infinity, -INFINITY); });
  EXPECT_NE(text.find("'source' returned an infinity in gradient 1"), std::string::npos) << text;
}

// SPEC N11
TEST(Anomalies, TheCurrentNodeIsTheOneThatRuns) {
  EXPECT_EQ(current_node(), nullptr);
  const Node* seen = nullptr;
  Variable y = through("me", leaf({1}), [&](Variables&& c) {
    seen = current_node();
    through("inner", leaf({1}), hand_on).backward(one);
    EXPECT_EQ(current_node(), seen);
    return std::move(c);
  });
  y.backward(one);
  EXPECT_EQ(seen, y.grad_fn().get());
  EXPECT_EQ(current_node(), nullptr);
  Variable bad = through("bad", leaf({1}), [](Variables&&) -> Variables { throw 1; });
  EXPECT_THROW(bad.backward(one), int);
  EXPECT_EQ(current_node(), nullptr);
  EXPECT_EQ(bad.grad_fn()->anomaly(), nullptr);  // made outside anomaly mode
}

}  // namespace
}  // namespace gradus::autograd::testing
