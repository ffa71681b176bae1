// Saved variables, and that nothing keeps itself alive.
#include <thread>

#include "autograd/saved_variable.h"
#include "tests/autograd/support.h"

namespace gradus::autograd::testing {
namespace {

// Nothing more lives at the end of a test than at its beginning.
class Leaks : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(living_nodes(), nodes_);
    EXPECT_EQ(living_variables(), variables_);
  }
  const size_t nodes_ = living_nodes(), variables_ = living_variables();
};

// SPEC N15
TEST_F(Leaks, SavedOutputsCloseNoCycle) {
  Variable y = op("exp", {leaf({1})});  // keeps its own result
  EXPECT_GT(living_nodes(), nodes_);
  Variable z = op("mul", {y, y});
  EXPECT_DOUBLE_EQ(values(z)[0], std::exp(2.0));
}

// SPEC N15
TEST_F(Leaks, SavedOutputsCanBeDifferentiatedAgain) {
  Variable x = leaf({0.5});
  Variable y = op("exp", {x});
  Variable d1 =
      grad(std::array{y}, std::array{x}, std::array{leaf({1}, false)}, {.create_graph = true})[0];
  Variable d2 = grad(std::array{d1}, std::array{x}, std::array{leaf({1}, false)})[0];
  EXPECT_DOUBLE_EQ(values(d2)[0], std::exp(0.5));
}

// SPEC E1
TEST_F(Leaks, AccumulatingWithCreateGraphWarnsOnceAndLeaksNothing) {
  OwnEngine engine;
  std::vector<std::string> heard;
  thread_state().warnings = [&](const std::string& m) { heard.push_back(m); };
  {
    Variable x = leaf({3});
    for (int i = 0; i < 3; ++i) op("sum", {op("mul", {x, x})}).backward({}, false, true);
    EXPECT_EQ(values(x.grad()), std::vector<double>{18});
    EXPECT_TRUE(x.grad().requires_grad());
  }
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_NE(heard[0].find("create_graph"), std::string::npos);
  EXPECT_NE(heard[0].find("autograd::grad"), std::string::npos);
}

TEST_F(Leaks, AreSeenWhicheverThreadMakesOrDestroys) {
  Variable x = leaf({1}), y;
  std::thread([&] { y = op("neg", {op("neg", {x})}); }).join();
  EXPECT_EQ(living_nodes(), nodes_ + 3);  // two, and the accumulator
  EXPECT_EQ(living_variables(), variables_ + 2);
  std::thread([&] {
    y = Variable();
    EXPECT_EQ(living_nodes(), nodes_);
  }).join();
  EXPECT_EQ(living_variables(), variables_ + 1);
}

TEST_F(Leaks, HooksWithWeakVariablesKeepNothing) {
  Variable x = leaf({1});
  Variable y = op("neg", {x});
  int seen = 0;
  y.register_hook([&seen, weak = WeakVariable(y)](const Variable&) {
    seen += weak.lock().defined();
    return Variable();
  });
  x.register_hook([&seen, weak = WeakVariable(x)](const Variable&) {
    seen += weak.lock().defined();
    return Variable();
  });
  y.backward(leaf({1}, false));
  EXPECT_EQ(seen, 2);
}

TEST_F(Leaks, HooksThatHoldTheirTensorGoWithTheGraph) {
  Variable y = op("neg", {leaf({1})});
  y.register_hook([y](const Variable&) { return Variable(); });
  y.backward(leaf({1}, false));
}

TEST_F(Leaks, HooksThatHoldTheirLeafGoWhenRemoved) {
  Variable x = leaf({1});
  uint64_t key = x.register_hook([x](const Variable&) { return Variable(); });
  EXPECT_TRUE(x.remove_hook(key));
}

TEST_F(Leaks, RetainedGradientsAndNestedGraphsGo) {
  OwnEngine engine;
  Variable x = leaf({2});
  Variable y = op("mul", {x, x});
  y.retain_grad();
  Variable z = op("mul", {y, y});
  Variable g =
      grad(std::array{z}, std::array{x}, std::array{leaf({1}, false)}, {.create_graph = true})[0];
  EXPECT_EQ(values(g), std::vector<double>{32});
}

TEST_F(Leaks, FailuresLeakNothing) {
  Variable x = leaf({2});
  Variable y = through("bad", op("mul", {x, x}), [](Variables&&) -> Variables { throw 1; });
  Variable z = op("add", {y, op("mul", {y, x})});
  EXPECT_THROW(z.backward(leaf({1}, false)), int);
}

struct KeepsOutput final : CustomFunction {
  std::string name() const override { return "keeps_output"; }
  std::vector<Tensor> forward(FunctionContext& c, std::span<const Variable> in) const override {
    Tensor y = in[0].data().copy();
    c.save({in[0], Variable(y)});
    c.data = std::make_shared<Variable>(in[0]);
    return {y};
  }
  Variables backward(FunctionContext& c, const Variables& dy) const override {
    Variables saved = c.saved();
    EXPECT_TRUE(saved[1].requires_grad());
    return {op("mul", {dy[0], op("mul", {saved[0], saved[1]})})};
  }
};

// SPEC N15
TEST_F(Leaks, CustomFunctionsKeepOutputsWithoutACycle) {
  Variable x = leaf({3});
  Variable y = CustomFunction::apply(std::make_shared<KeepsOutput>(), std::array{x})[0];
  y.backward(leaf({1}, false));
  EXPECT_EQ(values(x.grad()), std::vector<double>{9});
  std::string text = error_of([&] { y.backward(leaf({1}, false)); });
  EXPECT_NE(text.find("'keeps_output'"), std::string::npos) << text;
}

// SPEC N15
TEST_F(Leaks, ChangesInPlaceAreNoticed) {
  Variable x = leaf({3}), w = leaf({4});
  Variable y = op("mul", {x, w});
  Tensor t = w.data();
  *t.mutable_data_as<double>() = 5;
  std::string text = error_of([&] { y.backward(leaf({1}, false)); });
  EXPECT_NE(text.find("operand 'y' of 'mul' was changed in place"), std::string::npos) << text;
  EXPECT_NE(text.find("version 1, saved at version 0"), std::string::npos) << text;
  // An output that a node keeps.
  Variable e = op("exp", {x});
  t = e.data();
  *t.mutable_data_as<double>() = 5;
  text = error_of([&] { e.backward(leaf({1}, false)); });
  EXPECT_NE(text.find("result"), std::string::npos) << text;
}

// SPEC N15
TEST_F(Leaks, SavedVariablesSayWhatTheyAre) {
  Variable x = leaf({3}), y = op("neg", {x});
  auto name = [] { return std::string("v"); };
  SavedVariable none, of_leaf = SavedVariable::input(x), of_result = SavedVariable::input(y),
                      output = SavedVariable::output(y.data(), 0);
  EXPECT_FALSE(none.unpack({}, name).defined());
  EXPECT_TRUE(of_leaf.unpack({}, name).same_as(x));
  EXPECT_EQ(of_result.unpack({}, name).gradient_edge(), y.gradient_edge());
  EXPECT_EQ(output.unpack(y.grad_fn(), name).gradient_edge(), y.gradient_edge());
  SavedVariable held = of_leaf.release();
  EXPECT_NE(error_of([&] { of_leaf.unpack({}, name); }).find("v was freed"), std::string::npos);
  EXPECT_TRUE(held.unpack({}, name).same_as(x));
  (void)none.release();
  EXPECT_FALSE(none.unpack({}, name).defined());
}

// SPEC N13, N15
TEST_F(Leaks, WhatANodeKeptDiesWithNoLockHeld) {
  // Foreign memory whose owner, when it is let go, asks the node whose value it was.
  struct Asks final : CustomFunction {
    std::string name() const override { return "asks"; }
    std::vector<Tensor> forward(FunctionContext& c, std::span<const Variable> in) const override {
      c.save({in[1]});
      return {in[0].data().copy()};
    }
    Variables backward(FunctionContext& c, const Variables& dy) const override {
      EXPECT_EQ(c.saved().size(), 1u);
      return {dy[0], {}};
    }
  };
  double memory = 2;
  int asked = 0;
  Variable x = leaf({1});
  Node* node = nullptr;
  Variable y;
  {
    Variable foreign(Tensor(make_ref<Storage>(&memory, 8, Device(),
                                              [&] {
                                                ++asked;
                                                node->release_variables();
                                                nodes_in_current_task();
                                                node->hooks().snapshot();
                                              }),
                            Layout(DType::f64, Sizes{1})));
    y = CustomFunction::apply(std::make_shared<Asks>(), std::array{x, foreign})[0];
    node = y.grad_fn().get();
  }
  y.backward(leaf({1}, false));
  EXPECT_EQ(asked, 1);
}

// SPEC N12
TEST_F(Leaks, LongChainsOfSavedVariablesGoWithoutRecursion) {
  Variable y = leaf({1});
  for (int i = 0; i < 50'000; ++i) y = op("sin", {y});
}

}  // namespace
}  // namespace gradus::autograd::testing
