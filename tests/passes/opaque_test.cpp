// Opaque functions through the passes.
#include "gradus/function.h"
#include "tests/functions.h"
#include "tests/passes/support.h"

namespace gradus::test {
namespace {

class OpaquePasses : public testing::Test {
 public:
  static void SetUpTestSuite() { register_test_functions(); }
};

const char* const one_function = R"(graph g {
  stage 0 (%x: f64[N]) {
    %s = cpp_op(%x) {name = "t.square"}
    %y = sum(%s)
    return %y
  }
})";

TEST_F(OpaquePasses, EachDerivativeStageEvaluatesTheHandleOfTheOneBefore) {
  ir::Graph g = derived(one_function, {.order = 3});
  EXPECT_EQ(g.stages[0].nodes[0].results.size(), 2u);  // given a handle
  for (size_t s = 1; s <= 3; ++s) EXPECT_GE(count(g, s, "eval"), 1u) << s;
  // What stage 1 leaves yields its cotangent's gradient, then that of x.
  const ir::Node* eval = nullptr;
  for (const ir::Node& n : g.stages[1].nodes)
    if (n.op->name == "eval") eval = &n;
  ASSERT_EQ(eval->results.size(), 2u);
  const ir::Type& handle = g[eval->results[1]].type;
  ASSERT_TRUE(handle.signature);
  EXPECT_EQ(handle.signature->outputs.size(), 1u);
  EXPECT_EQ(handle.signature->inputs.size(), 2u);
  EXPECT_EQ(handle.signature->function, "t.square");
}

TEST_F(OpaquePasses, AllOrdersAtOnceAreOneAfterTheOther) {
  ir::Graph once = derived(one_function, {.order = 3});
  ir::Graph steps = graph_of(one_function);
  for (int k = 1; k <= 3; ++k) steps = derived(steps, {.order = k});
  EXPECT_EQ(ir::print(once), ir::print(steps));
}

// SPEC D2
TEST_F(OpaquePasses, WhatRequiresNoGradientHasNone) {
  ir::Graph g = derived(R"(graph g {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %s = cpp_op(%x, %w) {name = "t.wave", requires_grad = [false, true]}
    return %s
  }
})",
                        {.order = 2});
  EXPECT_EQ(signature(g, 1), "ct1_s: f64[N] -> d1_x = none, d1_w: f64[N]");
  EXPECT_EQ(signature(g, 2),
            "ct2_d1_x: f64[N], ct2_d1_w: f64[N] -> d2_x = none, d2_w: f64[N], d2_ct1_s: f64[N]");
}

// SPEC D3
TEST_F(OpaquePasses, AnOrderThatAFunctionDoesNotHaveIsRefused) {
  const char* text = R"(graph g {
  stage 0 (%x: f64[N]) {
    %s = cpp_op(%x) {name = "t.swish"}
    return %s
  }
})";
  EXPECT_NO_THROW(derived(text, {.order = 2}));
  std::string error = error_of([&] { derived(text, {.order = 3}); });
  EXPECT_NE(error.find("'t.swish' can be differentiated 2 times"), std::string::npos) << error;
  EXPECT_NE(error.find("test.ir:3:10"), std::string::npos) << error;
}

// SPEC D6
TEST_F(OpaquePasses, AGradAcrossAFunctionIsAnEvalInTheSameStage) {
  ir::Graph g = graph_of(R"(graph g {
  stage 0 (%x: f64[N]) {
    %s = cpp_op(%x) {name = "t.square"}
    %y = sum(%s)
    %g = grad(%y, %x)
    return %g
  }
})");
  ir::expand_grad(g);
  ir::verify(g);
  EXPECT_EQ(count(g, 0, "eval"), 1u);
}

TEST_F(OpaquePasses, WhatHasNoCotangentIsNone) {
  ir::Graph g = derived(R"(graph g {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %p, %n, %q = cpp_op(%x, %w) {name = "t.two"}
    return %q
  }
})",
                        {.order = 1});
  EXPECT_NE(ir::print(g).find("eval(none, %ct1_q, "), std::string::npos) << ir::print(g);
}

TEST_F(OpaquePasses, FunctionsAreNeitherMergedNorFoldedNorRemoved) {
  ir::Graph g = lowered(graph_of(R"(graph g {
  stage 0 () {
    %c = constant() {value = f64[2] [1, 2]}
    %a, %k = cpp_op(%c) {name = "t.square"}
    %b = cpp_op(%c) {name = "t.square"}
    %unused = cpp_op(%c) {name = "t.cube"}
    %g = eval(%c, %k)
    return %a, %b
  }
})"));
  EXPECT_EQ(count(g, 0, "cpp_op"), 3u);
  EXPECT_EQ(count(g, 0, "eval"), 0u);
  EXPECT_EQ(g.stages[0].nodes[1].results.size(), 1u);  // nobody uses the handle
}

TEST_F(OpaquePasses, HandlesArePrintedAndReadAgain) {
  std::string text = ir::print(derived(one_function, {.order = 2}));
  EXPECT_EQ(ir::print(graph_of(text)), text);
  EXPECT_NO_THROW(graph_of(R"(graph g {
  stage 0 (%x: f64[N]) {
    %s: f64[N], %k: handle = cpp_op(%x) {name = "t.square"}
    return %s
  }
})"));
}

TEST_F(OpaquePasses, AProgramIsNotRetypedBeyondItsFunctions) {
  ir::Graph g = graph_of(R"(graph g {
  stage 0 (%x: f32[N]) {
    %s = cpp_op(%x) {name = "t.f32_only"}
    return %s
  }
})");
  std::string error = error_of([&] { ir::retype_floating(g, DType::f64); });
  EXPECT_NE(error.find("'t.f32_only': it takes f32, not f64[N]"), std::string::npos) << error;
  EXPECT_NE(error.find("test.ir:3"), std::string::npos) << error;
}

TEST_F(OpaquePasses, ARegisteredNameStays) {
  auto f = ops::find_function("t.square");
  ASSERT_TRUE(f);
  EXPECT_NE(error_of([&] { ops::register_function(f); }).find("registered already"),
            std::string::npos);
  EXPECT_THROW(ops::register_function(nullptr), Error);
  EXPECT_EQ(ops::find_function("t.square"), f);
  EXPECT_EQ(ops::find_function("t.no such"), nullptr);
}

}  // namespace
}  // namespace gradus::test
