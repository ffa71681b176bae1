// Opaque functions and handles in running states.
#include <cmath>
#include <thread>

#include "gradus/engine.h"
#include "tests/interpreter/opaque_support.h"

namespace gradus::test {
namespace {

class Opaque : public OpaqueTest {};

// SPEC I9 I10
TEST_F(Opaque, IsRecordedOnlyWhereItsHandleIsUsed) {
  for (int order : {0, 1}) {
    calls = recorded_calls = 0;
    State state(compile(calling("t.counted"), order));
    auto y = run(state, {f64({0, 1})});
    EXPECT_DOUBLE_EQ(y[0].item(0), 2);
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(recorded_calls, order);
  }
}

// SPEC I4 I10
TEST_F(Opaque, HandlesAreFreedAtTheirLastUse) {
  size_t before = autograd::living_nodes();
  State state(compile(calling("t.square"), 2));
  run(state, {f64({0, 1})});
  EXPECT_GT(autograd::living_nodes(), before);
  size_t held = state.held_registers();
  EXPECT_GE(held, 2u);  // the handle, and what the derivative of exp needs
  run(state, {f64({1, 1})});
  EXPECT_GT(autograd::living_nodes(), before);
  run(state, {f64({1, 1})});
  EXPECT_EQ(autograd::living_nodes(), before);
  EXPECT_EQ(state.held_registers(), 0u);

  // A program that ends earlier than its stages go, and one that begins again.
  state.restart();
  run(state, {f64({0, 1})});
  state.restart();
  EXPECT_EQ(autograd::living_nodes(), before);
  // A handle of order one is gone within the stage that evaluates it.
  State first(compile(calling("t.square"), 1));
  run(first, {f64({0, 1})});
  run(first, {f64({1, 1})});
  EXPECT_EQ(autograd::living_nodes(), before);
}

// SPEC I12
TEST_F(Opaque, EvaluatesToAnyOrder) {
  // y = x^6 by two cubes and a square in between would be x^18; here cube of square: x^6.
  const char* text = R"(graph g {
  stage 0 (%x: f64[1]) {
    %a = cpp_op(%x) {name = "t.square"}
    %y = cpp_op(%a) {name = "t.cube"}
    return %y
  }
})";
  State state(compile(text, 5));
  std::vector<double> slopes;
  std::vector<Tensor> results = run(state, {f64({2})});
  EXPECT_DOUBLE_EQ(results[0].item(), 64);
  while (!state.finished()) {
    // Only the chain of derivatives with respect to x; all other cotangents are absent.
    std::vector<Tensor> in(state.code()->inputs(state.next_stage()));
    in[0] = f64({1});
    slopes.push_back(run(state, in)[0].item());
  }
  EXPECT_EQ(slopes, (std::vector<double>{192, 480, 960, 1440, 1440}));
}

// SPEC I7 I13
TEST_F(Opaque, ClonesShareHandles) {
  auto code = compile(calling("t.cube"), 2);
  auto reference = [&] {
    State s(code);
    run(s, {f64({0.5, 1})});
    auto first = run(s, {f64({1, 2})});
    auto second = run(s, {f64({1, -1})});
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }();
  State state(code);
  run(state, {f64({0.5, 1})});
  for (int round = 0; round < 3; ++round) {
    State clone = state.clone();
    auto first = run(clone, {f64({1, 2})});
    EXPECT_TRUE(bitwise_equal(first[0], reference[0]));
    State again = clone.clone();
    for (State* s : {&clone, &again}) {
      auto second = run(*s, {f64({1, -1})});
      for (size_t i = 0; i < second.size(); ++i)
        EXPECT_TRUE(bitwise_equal(second[i], reference[1 + i]));
    }
  }
  State last = state.clone();
  state = State(code);  // the original is gone
  EXPECT_TRUE(bitwise_equal(run(last, {f64({1, 2})})[0], reference[0]));
}

// SPEC I13
TEST_F(Opaque, TwoThreadsEvaluateOneHandle) {
  auto code = compile(calling("t.cube"), 2);
  State state(code);
  run(state, {f64({0.5, 1})});
  State expected = state.clone();
  Tensor first = run(expected, {f64({1, 2})})[0];
  Tensor second = run(expected, {f64({1, -1})})[0];
  std::atomic<int> wrong{0};
  auto work = [&](State own) {
    for (int i = 0; i < 50; ++i) {
      State s = own.clone();
      wrong += !bitwise_equal(run(s, {f64({1, 2})})[0], first);
      wrong += !bitwise_equal(run(s, {f64({1, -1})})[0], second);
    }
  };
  std::thread a(work, state.clone()), b(work, state.clone());
  a.join();
  b.join();
  EXPECT_EQ(wrong, 0);
}

// SPEC I11
TEST_F(Opaque, AsksOnlyForGradientsThatAreUsed) {
  const char* text = R"(graph g {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %s = cpp_op(%x, %w) {name = "t.asked"}
    return %s
  }
})";
  auto graph = ir::parse(text, "test.ir").program();
  State state(
      Code::compile(ir::differentiate(graph, {.order = 1, .wrt = std::vector<std::string>{"w"}})));
  asked_runs = asked_a = asked_b = 0;
  run(state, {f64({2}), f64({3})});
  EXPECT_DOUBLE_EQ(run(state, {f64({1})})[0].item(), 2);
  EXPECT_EQ(asked_runs, 1);
  EXPECT_EQ(asked_a, 0);
  EXPECT_EQ(asked_b, 1);
  // Without any cotangent the engine does not run.
  State absent(compile(text, 1));
  run(absent, {f64({2}), f64({3})});
  auto gradients = run(absent, {Tensor()});
  EXPECT_FALSE(gradients[0].defined());
  EXPECT_FALSE(gradients[1].defined());
  EXPECT_EQ(asked_runs, 1);
}

// A cotangent of a gradient that the stage itself does not use.
// SPEC I11
TEST_F(Opaque, TheHandleOfAnEvalKnowsUnusedGradients) {
  State state(compile(R"(graph g {
  stage 0 (%x: f64[1], %w: f64[1]) {
    %s, %k0 = cpp_op(%x, %w) {name = "t.asked"}
    return %s
  }
  stage 1 (%c: f64[1]) {
    %dx, %dw, %k1 = eval(%c, %k0)
    return %dx
  }
  stage 2 (%t: f64[1]) {
    %gc, %gx, %gw = eval(none, %t, %k1)
    return %gc, %gx, %gw
  }
})"));
  run(state, {f64({2}), f64({3})});
  EXPECT_DOUBLE_EQ(run(state, {f64({5})})[0].item(), 15);
  auto g = run(state, {f64({7})});  // of 7 dw = 7 c x
  ASSERT_TRUE(g[0].defined() && g[1].defined());
  EXPECT_DOUBLE_EQ(g[0].item(), 14);
  EXPECT_DOUBLE_EQ(g[1].item(), 35);
  EXPECT_FALSE(g[2].defined());
}

TEST_F(Opaque, WithoutAPathGradientsAreUndefined) {
  State state(compile(calling("t.constant"), 1));
  run(state, {f64({2})});
  EXPECT_TRUE(run(state, {f64({1})})[0].defined());  // zeros: exp's rule multiplies with it
  State direct(compile(R"(graph g {
  stage 0 (%x: f64[N]) {
    %s = cpp_op(%x) {name = "t.constant"}
    return %s
  }
})",
                       2));
  run(direct, {f64({2})});
  EXPECT_FALSE(run(direct, {f64({1})})[0].defined());
  auto second = run(direct, {f64({1})});
  EXPECT_FALSE(second[0].defined());
  EXPECT_FALSE(second[1].defined());
}

// SPEC D2
TEST_F(Opaque, AFunctionSeesZerosForWhatIsAbsent) {
  State state(compile(R"(graph g {
  stage 0 (%x: f64[N]) {
    return
  }
  stage 1 (%c: f64[N], %d: f64[N]) {
    %s = add(%c, %d)
    %y, %k = cpp_op(%s, %x) {name = "t.wave"}
    %g, %h = eval(%x, %k)
    return %y, %g, %s
  }
})"));
  run(state, {f64({2})});
  auto y = run(state, {Tensor(), Tensor()});
  EXPECT_DOUBLE_EQ(y[0].item(), 0);
  EXPECT_DOUBLE_EQ(y[1].item(), 2 * std::exp(2.0));
  EXPECT_FALSE(y[2].defined());
}

TEST_F(Opaque, EverySizeHasItsPlan) {
  State state(compile(calling("t.square"), 1));
  for (int round = 0; round < 2; ++round)
    for (int64_t n : {1, 3, 0, 2}) {
      state.restart();
      auto y = run(state, {Tensor::zeros(DType::f64, Sizes{n})});
      EXPECT_EQ(y[0].shape()[0], n);
      auto d = run(state, {Tensor::zeros(DType::f64, Sizes{n})});
      EXPECT_EQ(d[0].shape()[0], n);
      EXPECT_EQ(state.dimension("N"), n);
    }
}

// Every function is a segment with a plan of its own, and the backward stage reads them all.
TEST_F(Opaque, ManyFunctionsInAStage) {
  constexpr int n = 4000;
  std::string text = "graph g {\n  stage 0 (%v0: f64[N], %c: f64[N]) {\n";
  for (int i = 0; i < n; ++i)
    text += fmt::format(
        "    %w{0} = mul(%v{0}, %c)\n    %v{1} = cpp_op(%w{0}) {{name = \"t.counted\"}}\n", i,
        i + 1);
  text += fmt::format("    return %v{}\n  }}\n}}\n", n);
  State state(compile(text, 1));
  // y = x (2 c)^n
  EXPECT_DOUBLE_EQ(run(state, {f64({3}), f64({0.5})})[0].item(), 3);
  auto slopes = run(state, {f64({1})});
  EXPECT_DOUBLE_EQ(slopes[0].item(), 1);
  EXPECT_DOUBLE_EQ(slopes[1].item(), 2.0 * n * 3);
}

}  // namespace
}  // namespace gradus::test
