// The one node that a derivative rule's results have: it does what a node for each of the rule's
// operators would, bit for bit. In anomaly mode there is a node for each.
#include <random>
#include <utility>

#include "gradus/engine.h"
#include "tests/autograd/support.h"

using namespace gradus;
using namespace gradus::autograd;
using namespace gradus::autograd::testing;

namespace {

class Anomalies {
 public:
  explicit Anomalies(AnomalyMode mode)
      : guard_([mode] {
          ThreadState state = thread_state();
          state.anomaly = mode;
          return state;
        }()) {}

 private:
  StateGuard guard_;
};

Variable random_leaf(std::mt19937& random, std::initializer_list<int64_t> shape, DType dtype) {
  std::uniform_real_distribution<double> uniform(0.2, 1.5);
  std::vector<double> list(static_cast<size_t>(numel(std::vector<int64_t>(shape))));
  for (double& v : list) v = uniform(random);
  return Variable(Tensor::from(dtype, std::vector<int64_t>(shape), list), true);
}

// Operands of one another's shapes, used once and oftener, results of several steps and views.
Variable random_program(std::mt19937& random, std::vector<Variable> values, int length) {
  const std::vector<std::string_view> unary{"exp",  "sigmoid", "square",  "relu",  "softplus",
                                            "gelu", "sin",     "softmax", "asinh", "cosh"};
  const std::vector<std::string_view> binary{"mul", "add", "sub"};
  auto pick = [&](auto& list) -> auto& {
    return list[std::uniform_int_distribution<size_t>(0, list.size() - 1)(random)];
  };
  for (int i = 0; i < length; ++i) {
    Variable a = pick(values), b = pick(values);
    bool one = std::uniform_int_distribution<int>(0, 2)(random) == 0;
    if (one && a.data().rank() > 0) {
      std::string_view name = pick(unary);
      values.push_back(name == "softmax" ? op(name, {a}, {{"dim", -1, {}}}) : op(name, {a}));
    } else {
      values.push_back(op(pick(binary), {a, b}));
    }
    // Grows no further than it has to.
    values.back() = op("tanh", {values.back()});
  }
  Variable sum = op("sum", {values[values.size() - 1]});
  for (size_t i = values.size() - 4; i < values.size() - 1; ++i)
    sum = op("add", {sum, op("sum", {values[i]})});
  return sum;
}

// Gradients of all orders up to `orders`, each of the weighted sum of those before.
std::vector<Tensor> gradients(uint32_t seed, DType dtype, int orders, AnomalyMode mode) {
  Anomalies anomalies(mode);
  std::mt19937 random(seed);
  std::vector<Variable> leaves{random_leaf(random, {2, 3}, dtype), random_leaf(random, {3}, dtype),
                               random_leaf(random, {2, 1}, dtype)};
  Variable y = random_program(random, leaves, 6);
  std::vector<Tensor> all{y.data()};
  for (int order = 1; order <= orders; ++order) {
    Variables found = grad(std::array{y}, leaves, {}, {.create_graph = order < orders});
    Variable next;
    for (size_t i = 0; i < found.size(); ++i) {
      all.push_back(found[i].defined() ? found[i].data() : Tensor());
      if (order == orders || !found[i].defined() || !found[i].requires_grad()) continue;
      Variable weight = random_leaf(random, {3}, dtype).detach();
      Variable part = op("sum", {op("mul", {found[i], weight})});
      next = next.defined() ? op("add", {next, part}) : part;
    }
    if (!next.defined()) break;
    y = next;
  }
  return all;
}

TEST(JoinedNodes, GiveTheBitsOfANodeForEachStep) {
  for (uint32_t seed = 0; seed < 150; ++seed)
    for (DType dtype : {DType::f32, DType::f64}) {
      auto joined = gradients(seed, dtype, 4, AnomalyMode::off);
      auto apart = gradients(seed, dtype, 4, AnomalyMode::nan);
      ASSERT_EQ(joined.size(), apart.size()) << "seed " << seed;
      for (size_t i = 0; i < joined.size(); ++i)
        ASSERT_TRUE(bitwise_equal(joined[i], apart[i])) << "seed " << seed << ", gradient " << i;
    }
}

// One cotangent goes into a sum at `dy`, between those of the two gradients, and into the rule of
// the later one: a node for both would come to the third derivative's sum in another order.
std::vector<Tensor> crossing(uint32_t seed, AnomalyMode mode) {
  Anomalies anomalies(mode);
  std::mt19937 random(seed);
  auto next = [&] { return random_leaf(random, {5}, DType::f32); };
  Variable a = next(), b = next(), dy = next(), w = next(), u = next();
  std::array leaves{a, b, dy};
  Variables g =
      grad(std::array{op("mul", {a, b})}, std::array{a, b}, std::array{dy}, {.create_graph = true});
  std::array z{op("mul", {op("add", {g[0], dy}), w}), op("mul", {g[1], u})};
  Variables gg = grad(z, leaves, std::array{next(), next()}, {.create_graph = true});
  std::vector<Tensor> all;
  for (const Variable& v : grad(gg, std::array{w, u, a, b, dy}, std::array{next(), next(), next()}))
    all.push_back(v.data());
  return all;
}

TEST(JoinedNodes, AreNotThereWhereTheyWouldAddUpOtherwise) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    auto joined = crossing(seed, AnomalyMode::off), apart = crossing(seed, AnomalyMode::nan);
    for (size_t i = 0; i < joined.size(); ++i)
      EXPECT_TRUE(bitwise_equal(joined[i], apart[i])) << "seed " << seed << ", gradient " << i;
  }
}

TEST(JoinedNodes, AreOneForARule) {
  size_t nodes = living_nodes(), variables = living_variables();
  {
    Variable x = leaf({0.5}), y = x;
    for (int i = 0; i < 10; ++i) y = op("tanh", {y});
    EXPECT_EQ(living_nodes(), nodes + 11);  // and the accumulator
    Variable g =
        grad(std::array{y}, std::array{x}, std::array{leaf({1}, false)}, {.create_graph = true})[0];
    EXPECT_EQ(living_nodes(), nodes + 21);
    EXPECT_EQ(g.grad_fn()->name(), "mul");
    Variable gg =
        grad(std::array{g}, std::array{x}, std::array{leaf({1}, false)}, {.create_graph = true})[0];
    EXPECT_TRUE(gg.requires_grad());
  }
  EXPECT_EQ(living_nodes(), nodes);
  EXPECT_EQ(living_variables(), variables);
}

// da = dy b, db = dy a.
struct Product {
  Variable a = leaf({2}), b = leaf({3}), dy = leaf({5});
  Variables g =
      grad(std::array{op("mul", {a, b})}, std::array{a, b}, std::array{dy}, {.create_graph = true});
};

TEST(Products, LeadOnlyWhereAStepLeads) {
  Product p;
  std::array one{leaf({1}, false)};
  auto of = [&](size_t i) {
    return grad(std::array{p.g[i]}, std::array{p.a, p.b, p.dy}, one, {.keep_graph = true});
  };
  Variables da = of(0), db = of(1);
  EXPECT_FALSE(da[0].defined());
  EXPECT_EQ(values(da[1]), std::vector<double>{5});
  EXPECT_EQ(values(da[2]), std::vector<double>{3});
  EXPECT_EQ(values(db[0]), std::vector<double>{5});
  EXPECT_FALSE(db[1].defined());
  EXPECT_EQ(values(db[2]), std::vector<double>{2});
  EXPECT_THROW(grad(std::array{p.g[0]}, std::array{p.a}, one, {.allow_unused = false}), Error);
}

TEST(Products, RunNothingElse) {
  Product p;
  Variable c = through("refuses", p.g[1],
                       [](Variables&&) -> Variables { throw Error("nobody should run this"); });
  std::array z{op("add", {p.g[0], c})};
  std::array one{leaf({1}, false)};
  EXPECT_EQ(values(grad(z, std::array{p.b}, one, {.keep_graph = true})[0]), std::vector<double>{5});
  EXPECT_THROW(grad(z, std::array{p.a}, one, {.keep_graph = true}), Error);
}

// g = dy (1 - y^2) by one node, and h = c (1 - y^2) leads to what lies within it, not to dy.
struct Within {
  Variable x = leaf({0.5}), y = op("tanh", {x}), d = leaf({2}), c = leaf({3});
  std::vector<std::string> log;
  bool fails = false;
  Variable dy = through("above", d, [this](Variables&& g) {
    log.push_back("above");
    if (fails) throw Error("nobody should run this");
    return std::move(g);
  });
  Variable g = grad(std::array{y}, std::array{x}, std::array{dy}, {.create_graph = true})[0];
  Variable h = grad(std::array{g}, std::array{dy}, std::array{c}, {.create_graph = true})[0];
  double t = values(y)[0], slope = 1 - t * t;
};

TEST(JoinedNodes, LeadOnlyWhereAStepLeads) {
  Within w;
  std::array one{leaf({1}, false)};
  EXPECT_EQ(values(w.h), std::vector<double>{3 * w.slope});
  auto found = grad(std::array{w.h}, std::array{w.x, w.d, w.c}, one, {.keep_graph = true});
  EXPECT_DOUBLE_EQ(values(found[0])[0], 3 * -2 * w.t * w.slope);
  EXPECT_FALSE(found[1].defined());
  EXPECT_EQ(values(found[2]), std::vector<double>{w.slope});
  EXPECT_TRUE(w.log.empty());
  // Both: what arrives within is added up there.
  std::array both{w.h, w.g};
  std::array ones{leaf({1}, false), leaf({1}, false)};
  found = grad(both, std::array{w.x, w.d}, ones, {.keep_graph = true});
  EXPECT_DOUBLE_EQ(values(found[0])[0], (3 + 2) * -2 * w.t * w.slope);
  EXPECT_EQ(values(found[1]), std::vector<double>{w.slope});
  EXPECT_EQ(w.log, std::vector<std::string>{"above"});
}

TEST(JoinedNodes, RunNothingElse) {
  Within w;
  std::array one{leaf({1}, false)};
  // A result that leads to the node's other input is not run for the sake of this one.
  Variable other = through("refuses", w.g,
                           [](Variables&&) -> Variables { throw Error("nobody should run this"); });
  std::array z{op("add", {w.h, op("mul", {other, ir::Number::of(0.0)})})};
  EXPECT_EQ(values(grad(z, std::array{w.c}, one, {.keep_graph = true})[0]),
            std::vector<double>{w.slope});
  EXPECT_THROW(grad(z, std::array{w.d}, one, {.keep_graph = true}), Error);
  // Asked for where nothing arrives.
  EXPECT_FALSE(grad(std::array{w.h}, std::array{w.g}, one, {.keep_graph = true})[0].defined());
  w.fails = true;
  auto order =
      engine_of(current_context())
          ->execution_order(std::array{w.h.gradient_edge()}, std::array{w.x.gradient_edge()});
  std::vector<std::string> names;
  for (const Node* n : order) names.push_back(n->name());
  EXPECT_EQ(names, (std::vector<std::string>{"mul", "mul", "tanh"}));
  EXPECT_TRUE(grad(std::array{w.h}, std::array{w.x}, one)[0].defined());
}

TEST(JoinedNodes, RunHooksAndKeepGradients) {
  Product p;
  std::vector<double> seen;
  p.g[0].register_hook([&](const Variable& c) {
    seen.push_back(values(c)[0]);
    return op("mul", {c, ir::Number::of(10.0)});
  });
  p.g[1].retain_grad();
  Variable y = op("add", {p.g[0], op("mul", {p.g[1], ir::Number::of(7.0)})});
  auto found = grad(std::array{y}, std::array{p.dy}, std::array{leaf({1}, false)});
  EXPECT_EQ(seen, std::vector<double>{1});
  EXPECT_EQ(values(found[0]), std::vector<double>{10 * 3 + 7 * 2});
  EXPECT_EQ(values(p.g[1].grad()), std::vector<double>{7});
}

std::string what(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing";
}

TEST(JoinedNodes, NoticeChangesAndReleases) {
  std::array one{leaf({1}, false)};
  Variable x = leaf({0.5}), y = op("tanh", {x});
  auto g = grad(std::array{y}, std::array{x}, one, {.create_graph = true});
  auto again = [&] { grad(g, std::array{x}, one, {.keep_graph = true}); };
  EXPECT_NO_THROW(again());
  Tensor alias = y.data();
  alias.mutable_data();
  EXPECT_NE(what(again).find("was changed in place (version 1, saved at version 0)"),
            std::string::npos)
      << what(again);

  // What no other node keeps.
  Variable dy = leaf({1}), z = op("tanh", {x});
  auto h = grad(std::array{z}, std::array{x}, std::array{dy}, {.create_graph = true});
  Tensor of_dy = dy.data();
  of_dy.mutable_data();
  auto twice = [&] { grad(h, std::array{x}, one, {.keep_graph = true}); };
  EXPECT_NE(what(twice).find("operand 'x' of 'mul' was changed in place"), std::string::npos)
      << what(twice);

  Product p;
  auto free_it = [&] { grad(std::array{p.g[0]}, std::array{p.b}, one); };
  free_it();
  EXPECT_NE(what(free_it).find("'mul' was freed by an earlier backward"), std::string::npos)
      << what(free_it);
}

TEST(JoinedNodes, KeepNoVariableOfInferenceMode) {
  Variable x = leaf({0.5}), y = op("tanh", {x}), one;
  {
    GradModeGuard mode(GradMode::inference);
    one = leaf({1}, false);
  }
  EXPECT_NE(what([&] {
              grad(std::array{y}, std::array{x}, std::array{one}, {.create_graph = true});
            }).find("inference mode"),
            std::string::npos);
}

TEST(JoinedNodes, AnomaliesAreFoundWithinThem) {
  Variable x = leaf({0.0}), y = op("sqrt", {x});
  auto g = grad(std::array{y}, std::array{x}, std::array{leaf({1}, false)}, {.create_graph = true});
  Anomalies anomalies(AnomalyMode::nan_and_infinity);
  EXPECT_NE(what([&] { grad(g, std::array{x}, std::array{leaf({1}, false)}); }).find("returned"),
            std::string::npos);
}

// Two cotangents arrive, or one, or the other: each is a derivative of its own.
TEST(JoinedNodes, TakeWhatArrives) {
  Product p;
  std::array both{p.g[0], p.g[1]};
  std::array ones{leaf({1}, false), leaf({100}, false)};
  auto found = grad(both, std::array{p.a, p.b, p.dy}, ones);
  EXPECT_EQ(values(found[0]), std::vector<double>{500});
  EXPECT_EQ(values(found[1]), std::vector<double>{5});
  EXPECT_EQ(values(found[2]), std::vector<double>{203});
}

// Lets go of what a node keeps, from within the first allocation that it makes when told to.
class Releasing final : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    if (Node* node = std::exchange(next, nullptr)) node->release_variables();
    return heap_.allocate(bytes);
  }
  void deallocate(void* block, size_t bytes) noexcept override { heap_.deallocate(block, bytes); }
  Node* next = nullptr;

 private:
  HeapAllocator heap_;
};

// What the user wrote runs under no lock of a node's: an allocator may turn to the node that runs.
TEST(JoinedNodes, AnAllocatorMayTurnToTheNodeThatRuns) {
  auto allocator = std::make_shared<Releasing>();
  ThreadState state = thread_state();
  ContextOptions options;
  options.allocator = allocator;
  state.context = std::make_shared<Context>(options);
  StateGuard guard(state);
  std::mt19937 random(3);
  for (bool create_graph : {false, true}) {
    Variable x = random_leaf(random, {3}, DType::f64), ct = random_leaf(random, {3}, DType::f64);
    Variable y = op("tanh", {x});
    std::vector<double> slope = y.data().to_doubles(), by = ct.data().to_doubles();
    allocator->next = y.gradient_edge().node.get();
    Variable dx =
        grad(std::array{y}, std::array{x}, std::array{ct}, {.create_graph = create_graph})[0];
    EXPECT_EQ(allocator->next, nullptr);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(dx.data().item(static_cast<int64_t>(i)), by[i] * (1 - slope[i] * slope[i]),
                  1e-14);
  }
}

}  // namespace
