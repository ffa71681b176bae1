// Loops whose end depends on data: limits, batches, observers, derivatives in steps of others.
#include <gtest/gtest.h>

#include "tests/interpreter/support.h"

namespace gradus::test {
namespace {

const std::string growth = R"(
graph more {
  stage 0 (%x: f64[], %n: i64[], %k: f64[]) {
    %p = lt(%x, 10.0)
    return %p
  }
}
graph grow {
  stage 0 (%x: f64[], %n: i64[], %k: f64[]) {
    %s = sin(%x)
    %t = mul(%s, 0.1)
    %g = mul(%x, %k)
    %y = add(%g, %t)
    %m = add(%n, 1)
    return %y, %m
  }
}
graph g {
  stage 0 (%x: f64[], %n: i64[], %k: f64[]) {
    %y, %m = while(%x, %n, %k) {condition = "more", body = "grow", carries = 2}
    %z = mul(%y, %k)
    return %z, %m
  }
}
)";

Tensor number(double n) { return Tensor::scalar(DType::i64, n); }

// What is told of the instructions of steps, which nest as calls do.
class StepNotes final : public InstructionObserver {
 public:
  void before(size_t, size_t) override {}
  void after(size_t, size_t) override {}
  void before_in_step(const StepPoint& at) override {
    if (at.instruction == 0) steps.push_back(fmt::format("{} {}", at.body.graph().name, at.step));
    open_.emplace_back(&at.body, at.step, at.instruction);
  }
  void after_in_step(const StepPoint& at) override {
    ASSERT_FALSE(open_.empty());
    EXPECT_EQ(open_.back(), std::tuple(&at.body, at.step, at.instruction));
    open_.pop_back();
    ++ended;
  }
  std::vector<std::string> steps;
  size_t ended = 0;

 private:
  std::vector<std::tuple<const Code*, int64_t, size_t>> open_;
};

TEST(DataLoops, ObserversAreToldOfEachStep) {
  State state(compile(growth));
  StepNotes notes;
  run(state, {scalar(3), number(0), scalar(2)}, {.observer = &notes});
  const std::vector<std::string> steps{"more 0", "grow 0", "more 1", "grow 1", "more 2"};
  EXPECT_EQ(notes.steps, steps);
  EXPECT_EQ(notes.ended, 3 * 1u + 2 * 5u);
}

// What an observer runs is another run, with its own observer or none.
class RunsAnother final : public InstructionObserver {
 public:
  explicit RunsAnother(State& other) : other_(other) {}
  void before(size_t, size_t) override {}
  void after(size_t, size_t) override {}
  void before_in_step(const StepPoint&) override {
    ++told;
    ASSERT_LT(told, 100u);
    other_.restart();
    run(other_, {scalar(3), number(0), scalar(2)});
  }
  size_t told = 0;

 private:
  State& other_;
};

TEST(DataLoops, ObserversAreNotToldOfOtherStates) {
  const auto code = compile(growth);
  State state(code), other(code);
  RunsAnother observer(other);
  run(state, {scalar(3), number(0), scalar(2)}, {.observer = &observer});
  EXPECT_EQ(observer.told, 3 * 1u + 2 * 5u);
}

TEST(DataLoops, AnEndlessOneEndsAtACancellationOrADeadline) {
  // It never grows beyond 0.
  State state(compile(growth));
  CancelToken token;
  Canceller canceller(token);
  RunOptions options;
  options.cancel = &token;
  options.observer = &canceller;
  std::string message = error_of([&] { run(state, {scalar(0), number(0), scalar(2)}, options); });
  EXPECT_NE(message.find("was cancelled in stage 0"), std::string::npos) << message;
  state.restart();
  RunOptions timed;
  timed.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
  message = error_of([&] { run(state, {scalar(0), number(0), scalar(2)}, timed); });
  EXPECT_NE(message.find("deadline"), std::string::npos) << message;
}

TEST(DataLoops, EachOfABatchTakesItsOwnSteps) {
  const ir::Graph g = ir::parse(growth).program();
  const ir::Graph both = ir::batch(g, {"x", "k"}, ir::Dim::symbol("B"));
  State batched(Code::compile(ir::differentiate(both, {.order = 1})));
  const std::vector<double> xs{0.5, 20, 3}, ks{1.5, 2, 1.1}, cts{1, -2, 0.5};
  auto three = [](const std::vector<double>& v) { return Tensor::from(DType::f64, Sizes{3}, v); };
  const auto together = run(batched, {three(xs), number(0), three(ks)});
  const auto slopes = run(batched, {three(cts)});
  for (size_t i = 0; i < 3; ++i) {
    State alone(compile(growth, 1));
    const auto one = run(alone, {scalar(xs[i]), number(0), scalar(ks[i])});
    const auto slope = run(alone, {scalar(cts[i])});
    EXPECT_EQ(together[0].to_doubles()[i], one[0].to_doubles()[0]) << i;
    EXPECT_EQ(together[1].to_doubles()[i], one[1].to_doubles()[0]) << i;
    for (size_t k = 0; k < slopes.size(); ++k)
      EXPECT_NEAR(slopes[k].to_doubles()[i], slope[k].to_doubles()[0],
                  1e-13 * std::abs(slope[k].to_doubles()[0]))
          << i << ' ' << k;
  }
}

TEST(DataLoops, ABatchOfNoElementsTakesNoStep) {
  const ir::Graph g = ir::batch(ir::parse(growth).program(), {"x", "k"}, ir::Dim::symbol("B"));
  State state(Code::compile(ir::differentiate(g, {.order = 1})));
  const Tensor none = Tensor::from(DType::f64, Sizes{0}, std::vector<double>{});
  for (const Tensor& t : run(state, {none, number(0), none})) EXPECT_EQ(t.numel(), 0);
  for (const Tensor& t : run(state, {none})) EXPECT_EQ(t.numel(), 0);
}

// Elements of a batch that have ended, or take no step, take part in no other's: there a step
// divides by zero, or has no value.
TEST(DataLoops, WhatHasEndedInABatchTakesNoStep) {
  const ir::Graph g = ir::parse(R"(
graph g {
  stage 0 (%x: f64[], %m: f64[2, 2]) {
    %one = full() {shape = [], value = 1, dtype = f64}
    %n, %p, %q = while(%x, %one, %m) {condition = graph (%n: f64[], %p: f64[], %m: f64[2, 2]) {
      %c = gt(%n, 0.0)
      return %c
    }, body = graph (%n: f64[], %p: f64[], %m: f64[2, 2]) {
      %l = cholesky(%m)
      %k = sub(%n, 1.0)
      %d = mul(%m, %k)
      %r = div(%p, %n)
      %s = sum(%l)
      %t = mul(%r, %s)
      return %k, %t, %d
    }, carries = 3, max_trips = 5}
    return %p
  }
}
)")
                          .program();
  const ir::Graph all = ir::batch(g, {"x", "m"}, ir::Dim::symbol("B"));
  State batched(Code::compile(ir::differentiate(all, {.order = 2})));
  // No step; one, after which the matrix is zero; two.
  const std::vector<double> xs{0, 1, 2}, ms{-1, 0, 0, -1, 4, 1, 1, 3, 4, 1, 1, 3};
  const auto values = run(batched, {Tensor::from(DType::f64, Sizes{3}, xs),
                                    Tensor::from(DType::f64, Sizes{3, 2, 2}, ms)});
  const double root = 2 + 0.5 + std::sqrt(3 - 0.25);
  const std::vector<double> ps{1, root, root * root / 2}, ds{0, -root, -root * root / 2};
  const Tensor ct = Tensor::from(DType::f64, Sizes{3}, std::vector<double>{1, 1, 1});
  const auto slopes = run(batched, {ct});
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(values[0].to_doubles()[i], ps[i], 1e-13) << i;
    EXPECT_NEAR(slopes[0].to_doubles()[i], ds[i], 1e-12) << i;
  }
  for (const Tensor& slope : slopes)
    for (double v : slope.to_doubles()) EXPECT_TRUE(std::isfinite(v));
}

// Each step of `g` takes as many steps as its slice says.
const std::string in_steps = growth.substr(0, growth.find("graph g {")) + R"(
graph step {
  stage 0 (%x: f64[], %k: f64[]) {
    %n = full() {shape = [], value = 0, dtype = i64}
    %y, %m = while(%x, %n, %k) {condition = "more", body = "grow", carries = 2}
    %d = grad(%y, %x)
    return %y, %d
  }
}
graph g {
  stage 0 (%xs: f64[T], %k: f64[]) {
    %ys, %ds = scan(%xs, %k) {body = "step", sequences = 1}
    return %ys, %ds
  }
}
)";

// SPEC L4
TEST(DataLoops, HaveDerivativesInAStepOfAnother) {
  State state(compile(in_steps, 1));
  const std::vector<double> xs{0.5, 20, 3}, cts{1, -2, 0.5};
  const auto together = run(state, {f64({0.5, 20, 3}), scalar(1.5)});
  const auto gradients = run(state, {f64({1, -2, 0.5}), Tensor()});
  std::string alone = growth;
  alone.replace(alone.find("%z = mul(%y, %k)"), 16, "%z = mul(%y, 1.0)");
  for (size_t i = 0; i < xs.size(); ++i) {
    State one(compile(alone, 1));
    EXPECT_EQ(run(one, {scalar(xs[i]), number(0), scalar(1.5)})[0].to_doubles()[0],
              together[0].to_doubles()[i]);
    const double slope = run(one, {scalar(1)})[0].to_doubles()[0];
    EXPECT_NEAR(together[1].to_doubles()[i], slope, 1e-13 * std::abs(slope)) << i;
    EXPECT_NEAR(gradients[0].to_doubles()[i], cts[i] * slope, 1e-13 * std::abs(slope)) << i;
  }
}

TEST(DataLoops, EndAtADeadlineInAStepOfAnother) {
  State state(compile(in_steps));
  // The second step never ends: it does not grow beyond 0. A busy machine may come to it late.
  std::string message;
  for (int limit = 30; limit < 10000 && message.find("step 1 of 'step'") == message.npos;
       limit *= 10) {
    RunOptions timed;
    timed.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit);
    state.restart();
    message = error_of([&] { run(state, {f64({0.5, 0}), scalar(1.5)}, timed); });
  }
  EXPECT_NE(message.find("step 1 of 'step'"), std::string::npos) << message;
  EXPECT_NE(message.find("passed its deadline"), std::string::npos) << message;
  state.restart();
  EXPECT_GT(run(state, {f64({0.5, 20}), scalar(1.5)})[0].to_doubles()[0], 10);
}

TEST(DataLoops, HaveHessians) {
  std::string text = growth.substr(0, growth.rfind("return %z, %m"));
  const ir::Graph g = ir::parse(text + "return %z\n  }\n}\n").program();
  const ir::Graph hessian = ir::hessian(g, {.wrt = std::vector<std::string>{"x", "k"}});
  const auto found =
      run(*std::make_unique<State>(Code::compile(hessian)), {scalar(0.5), number(0), scalar(1.5)});
  auto gradient = [&](double x, double k) {
    State state(Code::compile(ir::differentiate(g, {.order = 1})));
    run(state, {scalar(x), number(0), scalar(k)});
    const auto d = run(state, {scalar(1)});
    return std::array{d[0].to_doubles()[0], d[1].to_doubles()[0]};
  };
  const double h = 1e-5;
  const std::array by_x{gradient(0.5 + h, 1.5), gradient(0.5 - h, 1.5)},
      by_k{gradient(0.5, 1.5 + h), gradient(0.5, 1.5 - h)};
  ASSERT_EQ(found.size(), 5u);  // the result, then [x, k] x [x, k]
  for (size_t i = 0; i < 2; ++i) {
    const double xx = (by_x[0][i] - by_x[1][i]) / (2 * h), kk = (by_k[0][i] - by_k[1][i]) / (2 * h);
    EXPECT_NEAR(found[1 + i].to_doubles()[0], xx, 1e-6 * std::abs(xx));
    EXPECT_NEAR(found[3 + i].to_doubles()[0], kk, 1e-6 * std::abs(kk));
  }
}

// SPEC L2
TEST(DataLoops, SayWhereTheirBoundIs) {
  std::string text = growth;
  const std::string_view form = "carries = 2";
  text.replace(text.find(form), form.size(), "carries = 2, max_trips = 4");
  for (const bool differentiated : {false, true}) {
    State state(compile(text, differentiated));
    EXPECT_EQ(run(state, {scalar(6), number(0), scalar(2)})[1].to_doubles()[0], 1);
    state.restart();
    const std::string message = error_of([&] {
      run(state, {scalar(0.1), number(0), scalar(1.5)});
    });
    EXPECT_NE(message.find("its condition holds after 4 steps"), std::string::npos) << message;
  }
}

TEST(DataLoops, AreCountedOnce) {
  const ir::Graph g = ir::differentiate(ir::parse(growth).program(), {.order = 3});
  const std::string text = ir::print(g);
  EXPECT_EQ(text.find("while("), text.rfind("while(")) << text;
}

}  // namespace
}  // namespace gradus::test
