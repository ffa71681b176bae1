// `differentiate`: names and signatures, wrt, totals, stages that are there already.
#include "tests/passes/support.h"

namespace gradus {
namespace {

using namespace test;

const char* const two_in_two_out = R"(
graph f {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %u = mul(%x, %w)
    %v = sin(%u)
    return %u, %v
  }
}
)";

// SPEC D1
TEST(Differentiate, NamesStagesByTheirOrder) {
  ir::Graph g = derived(two_in_two_out, {.order = 3});
  ASSERT_EQ(g.stages.size(), 4u);
  EXPECT_EQ(signature(g, 0), "x: f64[N], w: f64[N] -> u: f64[N], v: f64[N]");
  EXPECT_EQ(signature(g, 1), "ct1_u: f64[N], ct1_v: f64[N] -> d1_x: f64[N], d1_w: f64[N]");
  EXPECT_EQ(signature(g, 2),
            "ct2_d1_x: f64[N], ct2_d1_w: f64[N] -> d2_x: f64[N], d2_w: f64[N], d2_ct1_u: f64[N], "
            "d2_ct1_v: f64[N]");
  EXPECT_EQ(signature(g, 3),
            "ct3_d2_x: f64[N], ct3_d2_w: f64[N], ct3_d2_ct1_u: f64[N], ct3_d2_ct1_v: f64[N] -> "
            "d3_x: f64[N], d3_w: f64[N], d3_ct1_u: f64[N], d3_ct1_v: f64[N], d3_ct2_d1_x: f64[N], "
            "d3_ct2_d1_w: f64[N]");
}

// SPEC D1
TEST(Differentiate, IntegersAndBoolsTakeNoCotangentAndGetNoGradient) {
  ir::Graph g = derived(R"(
graph f {
  stage 0 (%x: f64[3], %i: i64[2], %b: bool[3]) {
    %p = index_select(%x, %i) {dim = 0}
    %q = where(%b, %x, 0.0)
    %s = sum(%q)
    %m, %k = max_dim(%x) {dim = 0}
    return p = %p, k = %k, s = %s, again = %b
  }
}
)",
                        {.order = 2});
  EXPECT_EQ(signature(g, 1), "ct1_p: f64[2], ct1_s: f64[] -> d1_x: f64[3]");
  // The result is linear in x: nothing but the cotangents matters to the second derivative.
  EXPECT_EQ(signature(g, 2), "ct2_d1_x: f64[3] -> d2_x = none, d2_ct1_p: f64[2], d2_ct1_s: f64[]");
}

// SPEC D1
TEST(Differentiate, RefusesNamesThatAreTaken) {
  for (const char* name : {"ct1_y", "ct2_d1_x"}) {
    std::string as_input = fmt::format(R"(
graph f {{
  stage 0 (%x: f64[2], %{0}: f64[2]) {{
    %y = mul(%x, %{0})
    return %y
  }}
}}
)",
                                       name);
    std::string as_value = fmt::format(R"(
graph f {{
  stage 0 (%x: f64[2]) {{
    %{0} = sin(%x)
    return y = %{0}
  }}
}}
)",
                                       name);
    for (const std::string& text : {as_input, as_value}) {
      std::string message = error_of([&] { ir::differentiate(graph_of(text), {.order = 2}); });
      EXPECT_NE(message.find(fmt::format("%{}, but that name is taken", name)), std::string::npos)
          << message;
    }
  }
  // A total derivative names cotangents of two stages by their results.
  std::string message = error_of([] {
    ir::differentiate(graph_of(R"(
graph f {
  stage 0 (%x: f64[2]) {
    %y = sin(%x)
    return d1_x = %y
  }
}
)"),
                      {.order = 2, .total = true});
  });
  EXPECT_NE(message.find("%ct2_d1_x, but that name is taken"), std::string::npos) << message;
}

// Types of gradients are those of their inputs, also where sizes of two names meet.
// SPEC D1, P7
TEST(Differentiate, GradientsHaveTheirInputsTypes) {
  const char* text = R"(
graph f {
  stage 0 (%x: f64[N], %w: f64[M], %c: f64[3]) {
    %a = mul(%x, %w)
    %y = mul(%a, %c)
    return %y
  }
}
)";
  ir::Graph g = derived(text, {.order = 2});
  EXPECT_EQ(signature(g, 1), "ct1_y: f64[3] -> d1_x: f64[N], d1_w: f64[M], d1_c: f64[3]");
  EXPECT_EQ(signature(g, 2),
            "ct2_d1_x: f64[N], ct2_d1_w: f64[M], ct2_d1_c: f64[3] -> d2_x: f64[N], d2_w: f64[M], "
            "d2_c: f64[3], d2_ct1_y: f64[3]");
  // One order after the other is the same as both at once.
  ir::Graph stepwise = derived(derived(text, {.order = 1}), {.order = 2});
  EXPECT_EQ(print(stepwise), print(g));
  auto all = run_all(g, {{f64({1, 2, 3}), f64({4, 5, 6}), f64({7, 8, 9})},
                         {f64({1, 1, 1})},
                         {f64({1, 0, 0}), Tensor(), f64({0, 0, 1})}});
  EXPECT_EQ(all[1][0].to_doubles(), (std::vector<double>{28, 40, 54}));
  EXPECT_EQ(all[2][1].to_doubles(), (std::vector<double>{7, 0, 3}));
}

// SPEC D3
TEST(Differentiate, RefusesWhatHasNoDerivative) {
  size_t refused = 0;
  for (const ir::Operator* op : ops::all()) {
    if (op->traits.differentiable || op->traits.zero_gradient || op->traits.structural) continue;
    // Those of one floating operand and a floating result.
    ir::Graph g;
    g.stages.emplace_back();
    ir::ValueId x = g.add_value(ir::Type(DType::f64, {4, 4}), "x", 0);
    g.stages[0].inputs.push_back(x);
    ir::Node node{op, nullptr, {}, {}, {7, 3}};
    try {
      node.attributes = op->read({});
      size_t least = 0;
      for (const auto& o : op->operands) least += !o.optional && !o.variadic;
      for (size_t i = 0; i < std::max<size_t>(least, 1); ++i) node.operands.push_back(x);
      for (ir::Type& t : ops::infer(g, node, nullptr)) {
        node.results.push_back(g.add_value(t, fmt::format("y{}", node.results.size()), 0));
      }
    } catch (const Error&) {
      continue;
    }
    for (ir::ValueId y : node.results) g.stages[0].results.push_back({g[y].name, y});
    bool floating = false;
    for (ir::ValueId y : node.results) floating |= g[y].type.is_floating();
    g.stages[0].nodes.push_back(node);
    if (!floating) continue;
    std::string message = error_of([&] { ir::differentiate(g, {.order = 1}); });
    EXPECT_NE(message.find(fmt::format("'{}' has no derivative", op->name)), std::string::npos)
        << message;
    EXPECT_NE(message.find("7:3"), std::string::npos) << message;
    // Where only a detached value goes through it, nobody asks.
    ++refused;
  }
  RecordProperty("refused", static_cast<int>(refused));
}

const char* const tower = R"(
graph f {
  stage 0 (%x: f64[4], %w: f64[4], %big: f64[4]) {
    %a = mul(%x, %w)
    %e = exp(%big)
    %s = sin(%e)
    %t = tanh(%s)
    %b = mul(%a, %t)
    %y = sum(%b)
    return %y
  }
}
)";

// SPEC D4
TEST(Differentiate, ComputesNothingThatOtherInputsNeed) {
  ir::Graph some = derived(tower, {.order = 1, .wrt = {{"x"}}});
  EXPECT_EQ(signature(some, 1), "ct1_y: f64[] -> d1_x: f64[4]");
  // The cotangent's two views, and a product with t and one with w.
  EXPECT_EQ(count(some, 1, "cos"), 0u);
  EXPECT_EQ(count(some, 1, "mul"), 2u);
  EXPECT_EQ(count(some, 1), 4u);
  ir::Graph second = derived(tower, {.order = 2, .wrt = {{"x"}}});
  EXPECT_EQ(signature(second, 2), "ct2_d1_x: f64[4] -> d2_x = none, d2_ct1_y: f64[]");
  EXPECT_EQ(count(second, 2, "cos"), 0u);
  ir::Graph bare = derived(tower, {.order = 2, .wrt = {{"big", "x"}}, .cotangents = false});
  EXPECT_EQ(signature(bare, 1), "ct1_y: f64[] -> d1_x: f64[4], d1_big: f64[4]");
  EXPECT_EQ(signature(bare, 2),
            "ct2_d1_x: f64[4], ct2_d1_big: f64[4] -> d2_x: f64[4], d2_big: f64[4]");
  ir::Graph nothing = derived(tower, {.order = 2, .wrt = std::vector<std::string>{}});
  EXPECT_EQ(signature(nothing, 1), "ct1_y: f64[] ->");
  EXPECT_EQ(count(nothing, 1), 0u);
  EXPECT_EQ(signature(nothing, 2), " -> d2_ct1_y = none");
  EXPECT_NE(error_of([] {
              derived(tower, {.order = 1, .wrt = {{"q"}}});
            }).find("its floating inputs are: x, w, big"),
            std::string::npos);
  // The numbers are the same.
  std::mt19937_64 random(3);
  std::vector<Tensor> in{normal({4}, random), normal({4}, random), normal({4}, random)};
  auto all = run_all(derived(tower, {.order = 1}), {in, {scalar(1.5)}});
  auto part = run_all(some, {in, {scalar(1.5)}});
  EXPECT_TRUE(bitwise_equal(all[1][0], part[1][0]));
}

// SPEC D5
TEST(Differentiate, TotalsTakeCotangentsOfAllEarlierStages) {
  const char* text = R"(
graph f {
  stage 0 (%x: f64[]) {
    %a = mul(%x, %x)
    %y = mul(%a, %x)
    return %y
  }
}
)";
  ir::Graph g = derived(text, {.order = 2, .total = true});
  EXPECT_EQ(signature(g, 1), "ct1_y: f64[] -> d1_x: f64[]");
  EXPECT_EQ(signature(g, 2), "ct2_y: f64[], ct2_d1_x: f64[] -> d2_x: f64[], d2_ct1_y: f64[]");
  ir::Graph third = derived(text, {.order = 3, .total = true});
  EXPECT_EQ(signature(third, 3),
            "ct3_y: f64[], ct3_d1_x: f64[], ct3_d2_x: f64[], ct3_d2_ct1_y: f64[] -> d3_x: f64[], "
            "d3_ct1_y: f64[], d3_ct2_y: f64[], d3_ct2_d1_x: f64[]");
  // L = p y + q d1_x with y = x^3, d1_x = 3 x^2 c: dL/dx = 3 p x^2 + 6 q x c, dL/dc = 3 q x^2.
  auto r = run_all(g, {{scalar(2)}, {scalar(5)}, {scalar(7), scalar(11)}});
  EXPECT_EQ(r[2][0].item(), 3 * 7 * 4 + 6 * 11 * 2 * 5);
  EXPECT_EQ(r[2][1].item(), 3 * 11 * 4);
  // Without the total, stage 2 sees the gradient alone.
  auto plain = run_all(derived(text, {.order = 2}), {{scalar(2)}, {scalar(5)}, {scalar(11)}});
  EXPECT_EQ(plain[2][0].item(), 6 * 11 * 2 * 5);
  // An absent cotangent of one of the two is the other alone.
  auto absent = run_all(g, {{scalar(2)}, {scalar(5)}, {Tensor(), scalar(11)}});
  EXPECT_EQ(absent[2][0].item(), plain[2][0].item());
}

const char* const by_hand = R"(
graph f {
  stage 0 (%x: f64[N], %w: f64[N], %i: i64[2], %z: f64[]) {
    %a = mul(%x, %w)
    %s = sin(%a)
    %p = index_select(%s, %i) {dim = 0}
    return %s, %p, %i
  }
  stage 1 (%ct1_p: f64[2], %ct1_s: f64[N]) {
    %zero = full() {shape = [N], value = 0.0, dtype = f64}
    %back = index_add(%zero, %i, %ct1_p) {dim = 0}
    %all = add(%ct1_s, %back)
    %c = cos(%a)
    %da = mul(%all, %c)
    %dw = mul(%da, %x)
    %dx = mul(%da, %w)
    return d1_w = %dw, d1_x = %dx, d1_z = none
  }
}
)";

// SPEC D7
TEST(Differentiate, KeepsAndDifferentiatesStagesThatAreThere) {
  ir::Graph hand = graph_of(by_hand);
  ir::Graph automatic = hand;
  automatic.stages.resize(1);
  ir::compact(automatic);
  ir::Graph g = derived(hand, {.order = 3}), want = derived(automatic, {.order = 3});
  EXPECT_EQ(g.stages[1].nodes.size(), hand.stages[1].nodes.size());
  EXPECT_EQ(signature(g, 1), signature(hand, 1));
  EXPECT_EQ(signature(want, 1),
            "ct1_s: f64[N], ct1_p: f64[2] -> d1_x: f64[N], d1_w: f64[N], d1_z = none");
  // By name, since the order of what is written by hand is free.
  std::mt19937_64 random(5);
  std::map<std::string, Tensor> by_name{
      {"x", normal({3}, random)},
      {"w", normal({3}, random)},
      {"z", normal({}, random)},
      {"i", Tensor::from(DType::i64, Sizes{2}, std::vector<double>{2, 0})}};
  auto hand_code = Code::compile(g), auto_code = Code::compile(want);
  State a(hand_code), b(auto_code);
  for (size_t s = 0; s < 4; ++s) {
    auto inputs = [&](const Code& code) {
      std::vector<Tensor> in;
      for (size_t i = 0; i < code.inputs(s); ++i) {
        Tensor& t = by_name[code.input_name(s, i)];
        if (!t.defined()) {
          const ir::Type& type = code.input_type(s, i);
          Sizes shape;
          for (const ir::Dim& d : type.dims) shape.push_back(d.is_constant() ? d.value() : 3);
          t = normal(shape, random);
        }
        in.push_back(t);
      }
      return in;
    };
    auto x = a.run(inputs(*hand_code)), y = b.run(inputs(*auto_code));
    ASSERT_EQ(x.size(), y.size());
    for (size_t i = 0; i < x.size(); ++i) {
      size_t k = result_index(auto_code->graph(), s, hand_code->results(s)[i].name);
      ASSERT_EQ(x[i].defined(), y[k].defined()) << hand_code->results(s)[i].name;
      if (!x[i].defined()) continue;
      auto u = x[i].to_doubles(), v = y[k].to_doubles();
      ASSERT_EQ(u.size(), v.size());
      for (size_t e = 0; e < u.size(); ++e)
        EXPECT_NEAR(u[e], v[e], 1e-12 * (1 + std::abs(v[e]))) << hand_code->results(s)[i].name;
    }
  }
}

// SPEC D7
TEST(Differentiate, RefusesStagesWithAnotherInterface) {
  auto message = [](std::string stage1) {
    return error_of([&] {
      ir::differentiate(
          graph_of("graph f {\n  stage 0 (%x: f64[2], %w: f64[2]) {\n    %y = mul(%x, %w)\n"
                   "    return %y\n  }\n  stage 1 " +
                   stage1 + "\n}\n"),
          {.order = 2});
    });
  };
  auto expect = [&](std::string stage1, std::string part) {
    std::string m = message(std::move(stage1));
    EXPECT_NE(m.find(part), std::string::npos) << m;
    EXPECT_NE(m.find("stage 1 of graph 'f'"), std::string::npos) << m;
  };
  expect("() { return d1_x = none, d1_w = none }", "it lacks the input %ct1_y: f64[2]");
  expect("(%ct1_y: f64[3]) { return d1_x = none, d1_w = none }",
         "its input %ct1_y is f64[3], it must be f64[2]");
  expect("(%ct1_y: f32[2]) { return d1_x = none, d1_w = none }",
         "its input %ct1_y is f32[2], it must be f64[2]");
  expect("(%ct1_y: f64[2], %more: f64[2]) { return d1_x = none, d1_w = none }",
         "its input %more is not the cotangent of a floating result");
  expect("(%ct1_y: f64[2]) { return d1_x = none }", "it lacks the result d1_w; return d1_w = none");
  expect("(%ct1_y: f64[2]) { %s = sum(%ct1_y) return d1_x = %s, d1_w = none }",
         "its result d1_x is f64[], it must be f64[2]");
  expect("(%ct1_y: f64[2]) { return d1_x = none, d1_w = none, d1_q = none }",
         "its result d1_q is not the gradient of an input");
  EXPECT_NO_THROW(ir::differentiate(graph_of(R"(
graph f {
  stage 0 (%x: f64[2], %w: f64[2]) {
    %y = mul(%x, %w)
    return %y
  }
  stage 1 (%ct1_y: f64[2]) {
    %g = mul(%ct1_y, %w)
    return d1_x = %g
  }
}
)"),
                                    {.order = 3, .wrt = {{"x"}}}));
}

TEST(Differentiate, RefusesNonsense) {
  EXPECT_NE(error_of([] { ir::differentiate(graph_of(tower), {.order = -1}); }).find("negative"),
            std::string::npos);
  EXPECT_NE(error_of([] { ir::differentiate(ir::Graph(), {.order = 1}); }).find("no stage"),
            std::string::npos);
  // Order 0 is the program itself.
  EXPECT_EQ(print(derived(tower, {.order = 0})), print(graph_of(tower)));
}

// Many inputs and results cost no more than their number.
// SPEC D1
TEST(Differentiate, ManyInputsAreNoBurden) {
  ir::Graph g;
  g.name = "wide";
  g.stages.emplace_back();
  const int n = 20000;
  const ir::Operator* sin = ops::find("sin");
  for (int i = 0; i < n; ++i) {
    ir::ValueId x = g.add_value(ir::Type(DType::f64, {}), fmt::format("x{}", i), 0);
    g.stages[0].inputs.push_back(x);
    ir::ValueId y = x;
    if (i % 2) {
      y = g.add_value(ir::Type(DType::f64, {}), fmt::format("y{}", i), 0);
      g.stages[0].nodes.push_back({sin, sin->read({}), {ir::Operand(x)}, {y}, {}});
      g.stages[0].results.push_back({fmt::format("y{}", i), y});
    }
  }
  auto start = std::chrono::steady_clock::now();
  ir::Graph second = derived(derived(g, {.order = 1}), {.order = 2});
  EXPECT_EQ(second.stages[2].results.size(), static_cast<size_t>(n + n / 2));
  std::vector<std::string> wrt;
  for (int i = 0; i < n; ++i) wrt.push_back(fmt::format("x{}", i));
  derived(g, {.order = 1, .wrt = wrt});
  auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_LT(seconds, 20);  // a tenth of a second where this was written; minutes if quadratic
}

}  // namespace
}  // namespace gradus
