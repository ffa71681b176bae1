// `grad`: nested, with cotangents, of and with respect to any values of the program.
#include "tests/passes/support.h"

namespace gradus {
namespace {

using namespace test;

// SPEC D6
TEST(Grad, NestsThreeDeepAndDifferentiatesFurther) {
  const char* text = R"(
graph f {
  stage 0 (%x: f64[]) {
    %x2 = mul(%x, %x)
    %x4 = mul(%x2, %x2)
    %y = mul(%x4, %x2)
    %d1 = grad(%y, %x)
    %d2 = grad(%d1, %x)
    %d3 = grad(%d2, %x)
    return %y, %d1, %d2, %d3
  }
}
)";
  ir::Graph g = derived(text, {.order = 2});
  lowered(g);
  double x = 1.5;
  auto r = run_all(g, {{scalar(x)}, {Tensor(), Tensor(), Tensor(), scalar(1)}, {scalar(1)}});
  EXPECT_NEAR(r[0][1].item(), 6 * std::pow(x, 5), 1e-9);
  EXPECT_NEAR(r[0][2].item(), 30 * std::pow(x, 4), 1e-9);
  EXPECT_NEAR(r[0][3].item(), 120 * std::pow(x, 3), 1e-9);
  EXPECT_NEAR(r[1][0].item(), 360 * x * x, 1e-9);
  EXPECT_NEAR(r[2][0].item(), 720 * x, 1e-9);
}

// SPEC D6
TEST(Grad, TakesACotangent) {
  auto r = run_all(derived(R"(
graph f {
  stage 0 (%x: f64[N], %ct: f64[N]) {
    %y = sin(%x)
    %d = grad(%y, %ct, %x) {cotangent = true}
    %dx, %dct = grad(%d, %ct, %x, %ct) {cotangent = true}
    return %d, %dx, %dct
  }
}
)",
                           {.order = 1}),
                   {{f64({0.3, 0.7}), f64({2, -3})}, {f64({1, 1}), Tensor(), Tensor()}});
  for (int i : {0, 1}) {
    double x = i ? 0.7 : 0.3, ct = i ? -3 : 2;
    EXPECT_DOUBLE_EQ(r[0][0].item(i), ct * std::cos(x));
    EXPECT_DOUBLE_EQ(r[0][1].item(i), -ct * ct * std::sin(x));
    EXPECT_DOUBLE_EQ(r[0][2].item(i), ct * std::cos(x));
    EXPECT_DOUBLE_EQ(r[1][0].item(i), -ct * std::sin(x));
    EXPECT_DOUBLE_EQ(r[1][1].item(i), std::cos(x));
  }
}

// SPEC D6
TEST(Grad, GoesAlongEveryPathAndStopsNowhere) {
  // h stands between x and y: dy/dx counts the way through h as well, dy/dh is of h alone.
  auto r = run_all(graph_of(R"(
graph f {
  stage 0 (%x: f64[]) {
    %h = mul(%x, %x)
    %p = mul(%h, %x)
    %y = mul(%p, %h)
    %dx, %dh, %dy, %dx2 = grad(%y, %x, %h, %y, %x)
    %later = sin(%y)
    %dl = grad(%y, %later)
    return %dx, %dh, %dy, %dx2, %dl
  }
}
)"),
                   {{scalar(2)}});
  EXPECT_EQ(r[0][0].item(), 5 * 16);     // y = x^5
  EXPECT_EQ(r[0][1].item(), 2 * 4 * 2);  // y = h^2 x
  EXPECT_EQ(r[0][2].item(), 1);
  EXPECT_EQ(r[0][3].item(), 80);
  EXPECT_EQ(r[0][4].item(), 0);  // nothing leads from what comes later
}

// SPEC D6
TEST(Grad, OfWhatDoesNotDependIsATensorOfZeros) {
  ir::Graph g = graph_of(R"(
graph f {
  stage 0 (%x: f64[N], %w: f64[M], %i: i64[]) {
    %r = round(%x)
    %y = sum(%r)
    %q = sum(%w)
    %a, %b = grad(%y, %x, %w)
    %c = grad(%q, %x)
    return %a, %b, %c
  }
}
)");
  auto r = run_all(g, {{f64({1, 2, 3}), f64({1, 2}),
                        Tensor::from(DType::i64, Sizes{}, std::vector<double>{0})}});
  EXPECT_EQ(r[0][0].to_doubles(), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(r[0][1].to_doubles(), (std::vector<double>{0, 0}));
  EXPECT_EQ(r[0][2].to_doubles(), (std::vector<double>{0, 0, 0}));
  // Its derivatives are zero by structure.
  EXPECT_EQ(signature(derived(g, {.order = 1}), 1),
            "ct1_a: f64[N], ct1_b: f64[M], ct1_c: f64[N] -> d1_x = none, d1_w = none");
}

// SPEC D6
TEST(Grad, StandsInAnyStageAndReachesBack) {
  ir::Graph g = graph_of(R"(
graph f {
  stage 0 (%x: f64[], %w: f64[]) {
    %h = mul(%x, %w)
    return %h
  }
  stage 1 (%v: f64[]) {
    %s = mul(%h, %v)
    %e = mul(%s, %h)
    %dx, %dh, %dv = grad(%e, %x, %h, %v)
    return %dx, %dh, %dv
  }
  stage 2 (%u: f64[]) {
    %t = mul(%dx, %u)
    %dw, %ds, %du = grad(%t, %w, %s, %u)
    return %dw, %ds, %du
  }
}
)");
  lowered(g);
  double x = 2, w = 3, v = 5, u = 7;
  auto r = run_all(g, {{scalar(x), scalar(w)}, {scalar(v)}, {scalar(u)}});
  // e = h^2 v = x^2 w^2 v
  EXPECT_EQ(r[1][0].item(), 2 * x * w * w * v);
  EXPECT_EQ(r[1][1].item(), 2 * x * w * v);
  EXPECT_EQ(r[1][2].item(), x * x * w * w);
  EXPECT_EQ(r[2][0].item(), 4 * x * w * v * u);
  EXPECT_EQ(r[2][2].item(), 2 * x * w * w * v);
}

// SPEC D6
TEST(Grad, AGradientPenaltyIsALine) {
  const char* text = R"(
graph penalty {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %a = mul(%x, %w)
    %t = tanh(%a)
    %y = sum(%t)
    %g = grad(%y, %x)
    %g2 = mul(%g, %g)
    %loss = sum(%g2)
    return %loss
  }
}
)";
  ir::Graph g = derived(text, {.order = 2});
  lowered(g);
  std::mt19937_64 random(2);
  Tensor x = normal({3}, random), w = normal({3}, random);
  auto loss = [&](const Tensor& w2) { return run_all(g, {{x, w2}})[0][0].item(); };
  auto r = run_all(g, {{x, w}, {scalar(1)}});
  for (int i = 0; i < 3; ++i) {
    const double h = 1e-5;
    Tensor up = w.copy(), down = w.copy();
    up.mutable_data_as<double>()[i] += h;
    down.mutable_data_as<double>()[i] -= h;
    EXPECT_NEAR(r[1][1].item(i), (loss(up) - loss(down)) / (2 * h), 1e-8);
  }
}

// Differentiating a program with grads and grads of stages written out agree to the bit.
// SPEC D6
TEST(Grad, AgreesWithAStage) {
  const char* body = R"(
    %a = mul(%x, %w)
    %t = tanh(%a)
    %m = matmul(%t, %x)
    %l = logsumexp(%m) {dim = 0}
    %y = sum(%l)
)";
  ir::Graph by_stage = derived(
      fmt::format("graph f {{ stage 0 (%x: f64[3, 3], %w: f64[3]) {{ {} return %y }} }}", body),
      {.order = 1});
  ir::Graph by_grad =
      graph_of(fmt::format("graph f {{ stage 0 (%x: f64[3, 3], %w: f64[3]) {{ {} %dx, %dw = "
                           "grad(%y, %x, %w) return %y, %dx, %dw }} }}",
                           body));
  std::mt19937_64 random(9);
  Tensor x = normal({3, 3}, random), w = normal({3}, random);
  auto a = run_all(by_stage, {{x, w}, {scalar(1)}}), b = run_all(by_grad, {{x, w}});
  EXPECT_TRUE(bitwise_equal(a[0][0], b[0][0]));
  EXPECT_TRUE(bitwise_equal(a[1][0], b[0][1]));
  EXPECT_TRUE(bitwise_equal(a[1][1], b[0][2]));
}

// Two names of one size, a number of them, and a cotangent by name.
// SPEC D6, P7
TEST(Grad, GivesTheTypesOfWhatItDifferentiates) {
  ir::Graph g = graph_of(R"(
graph f {
  stage 0 (%x: f64[N], %w: f64[M], %h: f32[N]) {
    %a = mul(%x, %w)
    %b = mul(%a, %h)
    %y = sum(%b)
    %dx, %dw, %dh = grad(%y, %x, %w, %h)
    return %dx, %dw, %dh
  }
}
)");
  EXPECT_EQ(signature(lowered(g), 0),
            "x: f64[N], w: f64[M], h: f32[N] -> dx: f64[N], dw: f64[M], dh: f32[N]");
}

// SPEC D6
TEST(Grad, SaysWhatItCannotDifferentiate) {
  auto message = [](std::string line) {
    return error_of([&] {
      Code::compile(graph_of("graph f {\n  stage 0 (%x: f64[2], %i: i64[2], %s: f64[]) {\n    " +
                             line + "\n    return %d\n  }\n}\n"));
    });
  };
  EXPECT_NE(message("%d = grad(%x, %s)").find("a gradient is taken of a 0-d value"),
            std::string::npos);
  EXPECT_NE(message("%d = grad(%s, %i)").find("only floating values can be"), std::string::npos);
  EXPECT_NE(message("%d = grad(%i, %x)").find("only a floating value has a derivative"),
            std::string::npos);
  EXPECT_NE(message("%d = grad(%s)"), "");
  EXPECT_NE(
      message("%d = grad(%x, %s, %x) {cotangent = true}").find("it must have the type of 'y'"),
      std::string::npos);
}

}  // namespace
}  // namespace gradus
