// Variables: leaves, results, accumulators, grad modes.
#include "autograd/accumulate_grad.h"
#include "tests/autograd/support.h"

namespace gradus::autograd::testing {
namespace {

// SPEC N1
TEST(Variables, LeavesAndResultsSayWhatTheyAre) {
  Variable x = leaf({1, 2}), c = leaf({1, 2}, false);
  EXPECT_TRUE(x.requires_grad() && x.is_leaf() && !x.grad_fn());
  EXPECT_FALSE(c.requires_grad());
  EXPECT_FALSE(c.gradient_edge().valid());
  Variables halves = apply("chunk", {x}, {{"chunks", int64_t{2}, {}}});
  EXPECT_FALSE(halves[1].is_leaf());
  EXPECT_EQ(halves[1].grad_fn(), halves[0].grad_fn());
  EXPECT_EQ(halves[1].output_number(), 1u);
  Variable d = halves[1].detach();
  EXPECT_TRUE(d.is_leaf() && !d.requires_grad());
  EXPECT_TRUE(d.data().same_as(halves[1].data()));
}

// SPEC N1
TEST(Variables, WhatCannotRequireGradientsIsRefused) {
  Tensor whole = Tensor::from(DType::i64, Sizes{1}, std::vector<double>{1});
  EXPECT_NE(error_of([&] { Variable(whole, true); }).find("only floating"), std::string::npos);
  Variable y = op("neg", {leaf({1})});
  EXPECT_NE(error_of([&] { y.set_requires_grad(false); }).find("'neg'"), std::string::npos);
  EXPECT_NE(error_of([&] {
              leaf({1, 2}).set_grad(leaf({1}));
            }).find("same dtype and shape"),
            std::string::npos);
}

// SPEC N1
TEST(Variables, ALeafHasOneAccumulatorWhileThatLives) {
  Variable x = leaf({1});
  size_t nodes = living_nodes();
  {
    Edge a = x.gradient_edge(), b = x.gradient_edge();
    EXPECT_EQ(a, b);
    EXPECT_EQ(living_nodes(), nodes + 1);
    EXPECT_TRUE(a.node->accumulates_into().same_as(x));
    // The accumulator does not keep its leaf.
    WeakVariable weak(x);
    x = Variable();
    EXPECT_FALSE(weak.lock().defined());
    EXPECT_FALSE(a.node->accumulates_into().defined());
  }
  EXPECT_EQ(living_nodes(), nodes);
}

// SPEC N1
TEST(Variables, AnAccumulatorOfALeafThatIsGoneDropsWhatArrives) {
  Variable x = leaf({1}), w = leaf({2});
  Variable y = op("mul", {op("neg", {x}), w});
  x = Variable();
  y.backward(leaf({1}, false));
  EXPECT_EQ(values(w.grad()), std::vector<double>{-1});
}

// SPEC N1
TEST(Accumulate, StealsWhatNobodyElseHolds) {
  Variable x = leaf({1, 2});
  const std::byte* made = nullptr;
  through("make", x, [&](Variables&&) {
    Variable g = leaf({5, 6}, false);
    made = g.data().data();
    return Variables{std::move(g)};
  }).backward(leaf({1, 1}, false));
  EXPECT_EQ(x.grad().data().data(), made);
}

// SPEC N1
TEST(Accumulate, CopiesWhatOthersHold) {
  Variable kept_variable = leaf({5, 6}, false);
  Tensor kept_handle = Tensor::from(DType::f64, Sizes{2}, std::vector<double>{5, 6});
  Tensor kept_storage = Tensor::from(DType::f64, Sizes{2}, std::vector<double>{5, 6});
  std::function<Variable()> sources[] = {
      [&] { return kept_variable; },
      [&] { return Variable(kept_handle); },
      [&] { return Variable(kept_storage.view(kept_storage.layout(), 0)); },
  };
  const Tensor* originals[] = {&kept_variable.data(), &kept_handle, &kept_storage};
  for (int i = 0; i < 3; ++i) {
    Variable x = leaf({1, 2});
    through("give", x, [&](Variables&&) {
      return Variables{sources[i]()};
    }).backward(leaf({1, 1}, false));
    EXPECT_NE(x.grad().data().data(), originals[i]->data()) << i;
    EXPECT_EQ(values(x.grad()), (std::vector<double>{5, 6})) << i;
  }
}

// SPEC N1
TEST(Accumulate, AddsWithoutTouchingTheGradientThatOthersHold) {
  Variable x = leaf({1, 2});
  op("sum", {x}).backward();
  Variable before = x.grad();
  op("sum", {x}).backward();
  EXPECT_EQ(values(before), (std::vector<double>{1, 1}));
  EXPECT_EQ(values(x.grad()), (std::vector<double>{2, 2}));
}

// SPEC N1
TEST(Accumulate, MakesANewRecordedTensorUnderCreateGraph) {
  OwnEngine engine;
  thread_state().warnings = [](const std::string&) {};
  Variable x = leaf({3});
  Variable y = op("sum", {op("mul", {x, x})});
  y.backward({}, false, true);
  EXPECT_TRUE(x.grad().requires_grad());
  Variable second = grad(std::array{op("sum", {x.grad()})}, std::array{x})[0];
  EXPECT_EQ(values(second), std::vector<double>{2});
  // The gradient that was there is not the one that is there now.
  Variable first = x.grad();
  op("sum", {op("mul", {x, x})}).backward({}, false, true);
  EXPECT_FALSE(first.same_as(x.grad()));
  EXPECT_EQ(values(first), std::vector<double>{6});
  x.set_grad({});
}

// SPEC N5
TEST(Variables, EdgesAreCollected) {
  Variable x = leaf({1}), c = leaf({1}, false), y = op("neg", {x});
  auto edges = collect_next_edges(std::array{x, c, y, Variable()});
  ASSERT_EQ(edges.size(), 4u);
  EXPECT_EQ(edges[0], x.gradient_edge());
  EXPECT_FALSE(edges[1].valid());
  EXPECT_EQ(edges[2], (Edge{y.grad_fn(), 0}));
  EXPECT_FALSE(edges[3].valid());
  EXPECT_TRUE(any_variable_requires_grad(std::array{c, y}));
  EXPECT_FALSE(any_variable_requires_grad(std::array{c, Variable()}));
}

// SPEC N5
TEST(Variables, AGradientEdgeIsMadePerResult) {
  Variable x = leaf({1, 2});
  auto node = make_ref<LambdaNode>("two", collect_next_edges(std::array{x}), hand_on);
  Variable a = create_gradient_edge(x.data(), node);
  Variable none = create_gradient_edge(Tensor(), node);
  Variable b = create_gradient_edge(x.data(), node);
  EXPECT_EQ(a.output_number(), 0u);
  EXPECT_FALSE(none.defined());
  EXPECT_EQ(b.output_number(), 2u);
  EXPECT_EQ(node->inputs(), 3u);
  EXPECT_EQ(node->input_metadata(1).kind, InputMetadata::Kind::undefined);
}

// SPEC E24
TEST(GradModes, DecideWhatIsRecorded) {
  Variable x = leaf({2});
  {
    GradModeGuard guard(GradMode::no_grad);
    Variable y = op("mul", {x, x});
    EXPECT_FALSE(y.requires_grad());
    EXPECT_FALSE(y.is_inference());
    {
      GradModeGuard inner(GradMode::enabled);
      EXPECT_TRUE(op("mul", {x, x}).requires_grad());
    }
    EXPECT_EQ(grad_mode(), GradMode::no_grad);
    y.set_requires_grad(true);  // a leaf like any other
  }
  EXPECT_EQ(grad_mode(), GradMode::enabled);
  EXPECT_TRUE(op("mul", {x, x}).requires_grad());
}

// SPEC E24
TEST(GradModes, InferenceResultsAreNeverRecorded) {
  Variable x = leaf({2}), y;
  {
    GradModeGuard guard(GradMode::inference);
    y = op("mul", {x, x});
  }
  EXPECT_TRUE(y.is_inference());
  EXPECT_FALSE(y.requires_grad());
  EXPECT_NE(error_of([&] { op("mul", {x, y}); }).find("inference"), std::string::npos);
  EXPECT_NE(error_of([&] { y.set_requires_grad(true); }).find("inference"), std::string::npos);
  EXPECT_EQ(values(op("add", {y, y})), std::vector<double>{8});
}

// SPEC E24
TEST(GradModes, BelongToTheirThread) {
  GradModeGuard guard(GradMode::no_grad);
  GradMode other = GradMode::inference;
  std::thread([&] { other = grad_mode(); }).join();
  EXPECT_EQ(other, GradMode::enabled);
}

}  // namespace
}  // namespace gradus::autograd::testing
