// `call`: inlining, sizes, custom derivatives.
#include "tests/passes/support.h"

namespace gradus {
namespace {

using namespace test;

// SPEC P8
TEST(Call, InlinesWithItsOwnNamesOfSizes) {
  const char* text = R"(
graph inner {
  stage 0 (%x: f64[N]) {
    %u = full() {shape = [N], value = 2.0, dtype = f64}
    %m = mul(%x, %u)
    %s = sum(%m)
    %y = div(%s, N)
    return %y, %m
  }
}
graph middle {
  stage 0 (%N: f64[M, N]) {
    %t = transpose(%N) {dim0 = 0, dim1 = 1}
    %f = reshape(%t) {shape = [N*M]}
    %y, %m = call(%f) {graph = "inner"}
    return %y, %m
  }
}
graph outer {
  stage 0 (%a: f64[N], %b: f64[N, K]) {
    %p, %q = call(%b) {graph = "middle"}
    %r, %s = call(%a) {graph = "inner"}
    %z = mul(%p, %r)
    return %z, %q, %s
  }
}
)";
  ir::Graph g = graph_of(text);
  EXPECT_EQ(signature(g, 0), "a: f64[N], b: f64[N, K] -> z: f64[], q: f64[K*N], s: f64[N]");
  ir::Graph low = lowered(g);
  EXPECT_EQ(signature(low, 0), signature(g, 0));
  EXPECT_EQ(count(low, 0, "call"), 0u);
  auto r = run_all(g, {{f64({1, 3}), f64({2, 3}, {1, 2, 3, 4, 5, 6})}});
  EXPECT_EQ(r[0][0].item(), 7.0 * 4.0);
  EXPECT_EQ(r[0][1].to_doubles(), (std::vector<double>{2, 8, 4, 10, 6, 12}));
  EXPECT_EQ(r[0][2].to_doubles(), (std::vector<double>{2, 6}));
  ir::Graph second = derived(g, {.order = 2});
  EXPECT_EQ(signature(second, 1),
            "ct1_z: f64[], ct1_q: f64[K*N], ct1_s: f64[N] -> d1_a: f64[N], d1_b: f64[N, K]");
  lowered(second);
}

// A name that stands only in an expression follows from the argument.
// SPEC P8
TEST(Call, SolvesForSizesInExpressions) {
  const char* text = R"(
graph halves {
  stage 0 (%x: f64[2*K + 1]) {
    %u = full() {shape = [K], value = 1.0, dtype = f64}
    %y = sum(%u)
    return %y
  }
}
graph main {
  stage 0 (%a: f64[K], %b: f64[7]) {
    %p = call(%a) {graph = "halves"}
    %q = call(%b) {graph = "halves"}
    %n = sum(%a)
    return %p, %q, %n
  }
}
)";
  auto r = run_all(graph_of(text), {{zeros({9}), zeros({7})}});
  EXPECT_EQ(r[0][0].item(), 4);
  EXPECT_EQ(r[0][1].item(), 3);
  std::string message = error_of([&] { run_all(graph_of(text), {{zeros({8}), zeros({7})}}); });
  EXPECT_NE(message.find("8"), std::string::npos) << message;
  EXPECT_NE(message.find("test.ir:11:"), std::string::npos) << message;
}

// What the signature asks for is checked, used or not.
// SPEC P7, P8
TEST(Call, ChecksSizesOfArgumentsWhenTheyAreKnown) {
  const char* text = R"(
graph pair {
  stage 0 (%a: f64[K], %b: f64[K]) {
    %x = sum(%a)
    %y = sum(%b)
    return %x, %y
  }
}
graph main {
  stage 0 (%a: f64[N], %b: f64[M]) {
    %x, %y = call(%a, %b) {graph = "pair"}
    %z = call(%b) {graph = "one"}
    return %x, %y
  }
}
)";
  std::string with_one = std::string(R"(
graph one {
  stage 0 (%b: f64[3]) {
    %y = sum(%b)
    return %y
  }
})") + text;
  ir::Graph g = graph_of(with_one);
  for (const ir::Graph& program : {g, derived(g, {.order = 1})}) {
    State state(Code::compile(program));
    std::string message = error_of([&] { state.run(std::vector<Tensor>{zeros({3}), zeros({4})}); });
    EXPECT_NE(message.find("N = 3"), std::string::npos) << message;
    EXPECT_NE(message.find("4"), std::string::npos) << message;
    EXPECT_FALSE(state.poisoned());
    // 1 against 3: nothing stretches at run time.
    EXPECT_NE(error_of([&] { state.run(std::vector<Tensor>{zeros({3}), zeros({1})}); }), "");
    EXPECT_NO_THROW(state.run(std::vector<Tensor>{zeros({3}), zeros({3})}));
  }
  std::string message = error_of([&] { run_all(g, {{zeros({4}), zeros({4})}}); });
  EXPECT_NE(message.find("graph 'one'"), std::string::npos) << message;
}

// The types of what is inlined are those that the call had.
// SPEC P8
TEST(Call, KeepsTypesWhenInlined) {
  ir::Graph g = graph_of(R"(
graph mix {
  stage 0 (%a: f64[K], %b: f64[K]) {
    %y = mul(%b, %a)
    return %y, %b
  }
}
graph main {
  stage 0 (%a: f64[N], %b: f64[M], %c: f64[N]) {
    %y, %b2 = call(%a, %b) {graph = "mix"}
    %z = add(%y, %c)
    %e = expand(%b2) {shape = [2, N]}
    return %y, %z, %b2, %e
  }
}
)");
  EXPECT_EQ(signature(lowered(g), 0), signature(g, 0));
  EXPECT_EQ(signature(lowered(g), 0),
            "a: f64[N], b: f64[M], c: f64[N] -> y: f64[N], z: f64[N], b2: f64[N], e: f64[2, N]");
  lowered(derived(g, {.order = 2}));
}

std::string scaled(int nesting) {
  std::string text = R"(
graph f {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %a = mul(%x, %w)
    %y = sin(%a)
    return %y
  }
}
graph twice {
  stage 0 (%x: f64[N], %w: f64[N], %y: f64[N], %ct: f64[N]) {
    %a = mul(%x, %w)
    %c = cos(%a)
    %g = mul(%ct, %c)
    %g2 = mul(%g, 2.0)
    %dx = mul(%g2, %w)
    %dw = mul(%g2, %x)
    return %dx, %dw
  }
}
)";
  if (nesting == 0)
    return text + R"(
graph main {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %y = call(%x, %w) {graph = "f", vjp = "twice"}
    return %y
  }
})";
  return text + R"(
graph wrap {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %y = call(%x, %w) {graph = "f", vjp = "twice"}
    return %y
  }
}
graph main {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %y = call(%x, %w) {graph = "wrap"}
    return %y
  }
})";
}

// SPEC P8
TEST(Call, ACustomDerivativeIsUsedAtEveryOrder) {
  for (int nesting : {0, 1}) {
    ir::Graph g = derived(scaled(nesting), {.order = 3});
    double x = 0.7, w = -1.3, c = std::cos(x * w), s = std::sin(x * w);
    auto r = run_all(
        g,
        {{f64({x}), f64({w})}, {f64({1})}, {f64({1}), f64({0})}, {f64({1}), f64({0}), f64({0})}});
    EXPECT_DOUBLE_EQ(r[0][0].item(), s);
    EXPECT_DOUBLE_EQ(r[1][0].item(), 2 * c * w);
    EXPECT_DOUBLE_EQ(r[1][1].item(), 2 * c * x);
    // The derivative program is differentiated as written: d(2 c w)/dx = -2 s w w.
    EXPECT_DOUBLE_EQ(r[2][0].item(), -2 * s * w * w);
    EXPECT_DOUBLE_EQ(r[3][0].item(), -2 * c * w * w * w);
    // The value itself is not touched by it, and the rule stays when a stage is printed.
    ir::Graph again = derived(derived(scaled(nesting), {.order = 1}), {.order = 3});
    EXPECT_EQ(print(again), print(g));
  }
}

// The result that a custom derivative reads is the call's own: its derivative is custom too.
// SPEC P8
TEST(Call, ACustomDerivativeMayReadTheResult) {
  ir::Graph g = derived(R"(
graph f {
  stage 0 (%x: f64[]) {
    %y = exp(%x)
    return %y
  }
}
graph g {
  stage 0 (%x: f64[], %y: f64[], %ct: f64[]) {
    %d = mul(%y, %ct)
    %e = mul(%d, 3.0)
    return %e
  }
}
graph main {
  stage 0 (%x: f64[]) {
    %y = call(%x) {graph = "f", vjp = "g"}
    return %y
  }
}
)",
                        {.order = 3});
  double e = std::exp(0.5);
  auto r = run_all(g, {{scalar(0.5)}, {scalar(1)}, {scalar(1)}, {scalar(1), Tensor()}});
  EXPECT_DOUBLE_EQ(r[1][0].item(), 3 * e);
  EXPECT_DOUBLE_EQ(r[2][0].item(), 9 * e);
  EXPECT_DOUBLE_EQ(r[3][0].item(), 27 * e);
}

// SPEC P8, D6
TEST(Call, ACustomDerivativeMayHoldAGrad) {
  const char* text = R"(
graph f {
  stage 0 (%x: f64[]) {
    %y = tanh(%x)
    return %y
  }
}
graph energy {
  stage 0 (%x: f64[]) {
    %x2 = mul(%x, %x)
    %e = mul(%x2, %x)
    %d = grad(%e, %x)
    return %d
  }
}
graph g {
  stage 0 (%x: f64[], %y: f64[], %ct: f64[]) {
    %d = call(%x) {graph = "energy"}
    %q = mul(%d, %d)
    %r = grad(%q, %x)
    %dx = mul(%r, %ct)
    return %dx
  }
}
graph main {
  stage 0 (%x: f64[]) {
    %y = call(%x) {graph = "f", vjp = "g"}
    %s = mul(%y, %y)
    %d = grad(%s, %x)
    %dd = grad(%d, %x)
    return %y, %d, %dd
  }
}
)";
  // The rule says f' = d(9 x^4)/dx = 36 x^3.
  ir::Graph g = derived(text, {.order = 2});
  lowered(g);
  double x = 0.4, y = std::tanh(x), r = 36 * x * x * x;
  auto all = run_all(g, {{scalar(x)}, {scalar(1), Tensor(), Tensor()}, {scalar(1)}});
  EXPECT_DOUBLE_EQ(all[0][1].item(), 2 * y * r);
  EXPECT_NEAR(all[0][2].item(), 2 * r * r + 2 * y * 108 * x * x, 1e-12);
  EXPECT_DOUBLE_EQ(all[1][0].item(), r);
  EXPECT_NEAR(all[2][0].item(), 108 * x * x, 1e-12);
}

// A called graph computes the same whoever calls it.
// SPEC P8, D6
TEST(Call, AGradInsideFollowsItsOwnGraphsPaths) {
  const char* text = R"(
graph f {
  stage 0 (%a: f64[], %b: f64[]) {
    %y = mul(%a, %b)
    %da = grad(%y, %a)
    return %da
  }
}
graph twice {
  stage 0 (%a: f64[]) {
    %d = call(%a, %a) {graph = "f"}
    return %d
  }
}
graph main {
  stage 0 (%x: f64[]) {
    %sq = mul(%x, %x)
    %same = call(%x, %x) {graph = "f"}
    %dependent = call(%x, %sq) {graph = "f"}
    %nested = call(%x) {graph = "twice"}
    return %same, %dependent, %nested
  }
}
)";
  // d(ab)/da = b, also where b is a or is made of it.
  ir::Graph g = derived(text, {.order = 2});
  auto r = run_all(g, {{scalar(3)}, {scalar(1), scalar(0), Tensor()}, {scalar(1)}});
  EXPECT_EQ(r[0][0].item(), 3);
  EXPECT_EQ(r[0][1].item(), 9);
  EXPECT_EQ(r[0][2].item(), 3);
  EXPECT_EQ(r[1][0].item(), 1);
  auto undifferentiated = run_all(graph_of(text), {{scalar(3)}});
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(undifferentiated[0][i].item(), r[0][i].item());
  // grad in the caller goes through the call.
  auto through = run_all(graph_of(R"(
graph f {
  stage 0 (%a: f64[], %b: f64[]) {
    %y = mul(%a, %b)
    %z = sin(%y)
    return %z
  }
}
graph main {
  stage 0 (%x: f64[]) {
    %y = call(%x, %x) {graph = "f"}
    %d = grad(%y, %x)
    return %d
  }
}
)"),
                         {{scalar(0.5)}});
  EXPECT_DOUBLE_EQ(through[0][0].item(), 2 * 0.5 * std::cos(0.25));
}

// SPEC P8
TEST(Call, SaysWhatDoesNotFit) {
  auto message = [](std::string call, std::string vjp, int order) {
    return error_of([&] {
      Code::compile(ir::differentiate(
          graph_of(
              "graph f {\n stage 0 (%a: f64[N], %b: f64[N, 2], %i: i64[]) {\n"
              " %s = sum(%b) {dim = 1}\n %y = mul(%a, %s)\n return %y, %i\n }\n}\n" +
              vjp +
              "graph main {\n stage 0 (%x: f64[3], %w: f64[3, 2], %i: i64[], %f: f32[3]) {\n " +
              call + "\n return %y\n }\n}\n"),
          {.order = order}));
    });
  };
  auto has = [](const std::string& m, std::string part) {
    EXPECT_NE(m.find(part), std::string::npos) << m;
  };
  has(message("%y, %j = call(%x, %w) {graph = \"f\"}", "", 0),
      "graph 'f' takes 3 inputs, 2 are given");
  has(message("%y, %j = call(%f, %w, %i) {graph = \"f\"}", "", 0),
      "input 'a' of graph 'f' is f64[N], f32[3] is given");
  has(message("%y, %j = call(%w, %w, %i) {graph = \"f\"}", "", 0), "f64[3, 2] is given");
  has(message("%t = transpose(%w) {dim0 = 0, dim1 = 1}\n %y, %j = call(%x, %t, %i) {graph = \"f\"}",
              "", 0),
      "sizes 3 and 2 differ");
  const std::string call = "%y, %j = call(%x, %w, %i) {graph = \"f\", vjp = \"g\"}";
  const std::string in =
      "graph g {\n stage 0 (%a: f64[N], %b: f64[N, 2], %i: i64[], %y: f64[N], %j: i64[]";
  has(message(call, in + ") {\n return %a, %b\n }\n}\n", 1),
      "graph 'g' takes 5 inputs, 6 are given");
  has(message(call, in + ", %ct: f32[N]) {\n return %a, %b\n }\n}\n", 1),
      "input 'ct' of graph 'g' is f32[N], f64[3] is given");
  has(message(call, in + ", %ct: f64[N]) {\n return %a\n }\n}\n", 1),
      "graph 'g' returns 1 gradients for the 2 floating inputs of 'f'");
  has(message(call, in + ", %ct: f64[N]) {\n return %b, a = %a\n }\n}\n", 1),
      "graph 'g' returns f64[3, 2] as the gradient of input 0 of 'f', which is f64[3]");
  // A `none` is a zero.
  ir::Graph g = derived(
      graph_of(
          "graph f {\n stage 0 (%a: f64[], %b: f64[]) {\n %y = mul(%a, %b)\n return %y\n }\n}\n"
          "graph g {\n stage 0 (%a: f64[], %b: f64[], %y: f64[], %ct: f64[]) {\n return none0 = "
          "none, b = %ct\n }\n}\n"
          "graph main {\n stage 0 (%a: f64[], %b: f64[]) {\n %y = call(%a, %b) {graph = \"f\", vjp "
          "= \"g\"}\n return %y\n }\n}\n"),
      {.order = 1});
  EXPECT_EQ(signature(g, 1), "ct1_y: f64[] -> d1_a = none, d1_b: f64[]");
}

// Calls of calls double with every graph: a short text that no machine holds.
// SPEC P8
TEST(Call, RefusesWhatWouldNotFitAnyMachine) {
  std::string text = "graph g0 {\n stage 0 (%x: f64[]) {\n %y = sin(%x)\n return %y\n }\n}\n";
  for (int i = 1; i <= 60; ++i)
    text += fmt::format(
        "graph g{0} {{\n stage 0 (%x: f64[]) {{\n %a = call(%x) {{graph = \"g{1}\"}}\n"
        " %y = call(%a) {{graph = \"g{1}\"}}\n return %y\n }}\n}}\n",
        i, i - 1);
  text +=
      "graph main {\n stage 0 (%x: f64[]) {\n %y = call(%x) {graph = \"g60\"}\n return %y\n }\n}\n";
  ir::Graph g = graph_of(text);
  std::string message = error_of([&] { Code::compile(g); });
  EXPECT_NE(message.find("calls, inlined, give more than"), std::string::npos) << message;
  EXPECT_NE(error_of([&] { ir::differentiate(g, {.order = 1}); }), "");
  // Other floats make every graph once.
  ir::Graph f32 = ir::retype_floating(g, DType::f32);
  EXPECT_EQ(signature(f32, 0), "x: f32[] -> y: f32[]");
}

// Modules as graphs that are called: nested ones, single nodes, names of any depth.
TEST(Call, ModulesBecomeGraphs) {
  const char* text = R"(graph g {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %a = mul(%x, %w)
    %b = tanh(%a)
    %c = exp(%b)
    %d = neg(%c)
    %e = add(%d, %a)
    return %e
  }
}
)";
  auto outlined = [&](std::vector<std::string> modules) {
    ir::Graph g = graph_of(text);
    auto source = std::make_shared<ir::Source>(*g.source);
    source->modules = {"", ""};
    source->modules.insert(source->modules.end(), modules.begin(), modules.end());
    g.source = source;
    ir::outline_modules(g);
    ir::verify(g);
    std::vector<std::string_view> operators;
    const ir::Graph low = lowered(g);
    for (const ir::Node& node : low.stages[0].nodes) operators.push_back(node.op->name);
    EXPECT_EQ(operators, (std::vector<std::string_view>{"mul", "tanh", "exp", "neg", "add"}));
    return g;
  };
  const ir::Graph two = outlined({"", "net/act", "net/act", "net", ""});
  EXPECT_EQ(count(two, 0, "call"), 1u);
  EXPECT_NE(ir::print(two).find("graph net.act"), std::string::npos) << ir::print(two);
  EXPECT_EQ(count(outlined({"", "net", "", "net", "net"}), 0, "call"), 1u);
  EXPECT_EQ(count(outlined({"m", "m", "m", "m", "m"}), 0, "call"), 0u);
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "m/";
  EXPECT_EQ(count(outlined({deep, deep, deep, deep, deep}), 0, "call"), 0u);
}

}  // namespace
}  // namespace gradus
