// Programs built by calls, constants taken out of them, operators and passes of an embedder's own.
#include "gradus/builder.h"

#include <cmath>
#include <deque>

#include "gradus/passes.h"
#include "gradus/registry.h"
#include "gradus/state.h"
#include "gradus/text.h"
#include "kernels/evaluate.h"
#include "ops/structural.h"
#include "tests/functions.h"
#include "tests/passes/support.h"

namespace gradus::ir {
namespace {

template <class F>
std::string refusal(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return {};
}
#define EXPECT_SAYS(message, part) EXPECT_NE((message).find(part), std::string::npos) << (message)

Type vector() { return Type(DType::f64, {Dim::symbol("N")}); }

// SPEC W1
TEST(Builder, SaysWhatTextSays) {
  test::register_test_functions();
  Builder b("built");
  ops::Value x = b.input("x", vector()), w = b.input("w", vector());
  ops::Value h = x * w;
  ops::Value s = b.call("t.square", {h})[0];
  ops::Value c = b.constant(Tensor::scalar(DType::f64, 2));
  b.result("y", ops::sum_all(s * c));
  b.next_stage();
  ops::Value ct = b.input("ct1_y", Type(DType::f64, {}));
  b.result("d1_x", ops::expand(ct, {Dim::symbol("N")}) * w);
  b.result("d1_w", ops::Value());
  Graph built = b.take();
  Graph parsed = parse(R"(
graph built {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %v0 = mul(%x, %w)
    %v1 = cpp_op(%v0) {name = "t.square"}
    %v2 = constant() {value = f64[] 2}
    %v3 = mul(%v1, %v2)
    %v4 = sum(%v3)
    return y = %v4
  }
  stage 1 (%ct1_y: f64[]) {
    %v5 = expand(%ct1_y) {shape = [N]}
    %v6 = mul(%v5, %w)
    return d1_x = %v6, d1_w = none
  }
})")
                     .program();
  EXPECT_EQ(print(built), print(parsed));
  // Empty again.
  b.input("z", vector());
  EXPECT_EQ(b.take().stages.size(), 1u);
}

TEST(Builder, RefusesWhatNoProgramHas) {
  Builder b("g"), other("h");
  ops::Value x = b.input("x", vector()), z = other.input("z", vector());
  EXPECT_SAYS(refusal([&] { b.emit("add", {x, z}); }), "a value of another builder");
  EXPECT_SAYS(refusal([&] { b.result("y", z); }), "a value of another builder");
  EXPECT_SAYS(refusal([&] { b.result("y", ops::num(1.0)); }), "is a number");
  EXPECT_SAYS(refusal([&] { b.emit("ad", {x, x}); }), "there is no operator 'ad'");
  EXPECT_SAYS(refusal([&] { b.input("k", Type::handle()); }), "input 'k'");
  EXPECT_SAYS(refusal([&] { b.constant(Tensor()); }), "a defined tensor");
  b.result("y", x), b.result("y", x);
  EXPECT_SAYS(refusal([&] { b.take(); }), "[V10]");
}

// SPEC P9
TEST(LiftConstants, MakesWeightsOfThem) {
  Tensor big = Tensor::from(DType::f64, Sizes{20}, std::vector<double>(20, 1.5));
  Builder b("g");
  ops::Value x = b.input("x", Type(DType::f64, {20}));
  ops::Value y =
      x * b.constant(big) + b.constant(big.copy()) + b.constant(Tensor::scalar(DType::f64, 3));
  b.result("y", y);
  Graph graph = b.take(), before = graph;
  auto weights = lift_constants(graph);
  ASSERT_EQ(weights.size(), 1u);  // equal tensors are one
  EXPECT_EQ(weights[0].first, "w0");
  EXPECT_TRUE(bitwise_equal(weights[0].second, big));
  Graph again = parse(print(graph)).program();
  EXPECT_EQ(again[again.stages[0].inputs[1]].name, "w0");
  State old(Code::compile(before)), lifted(Code::compile(again));
  Tensor in = Tensor::from(DType::f64, Sizes{20}, std::vector<double>(20, 0.25));
  EXPECT_TRUE(bitwise_equal(old.run(std::array{in})[0], lifted.run(std::array{in, big})[0]));
}

// y = x^2 + 1, pointwise; and the sum of all elements twice, by composition.
struct SquarePlusOne : ops::Unary<ops::Result::floating> {
  static constexpr std::string_view name = "test.square_plus_one", doc = "y = x * x + 1";
  template <class S>
  static S scalar(S x) {
    return x * x + 1;
  }
  static void vjp(ops::VjpCall& d) {
    d.give(0, [&] {
      ops::Value slope = d.x() * 2.0;
      return d.dy() * slope;
    });
  }
};
struct TwiceTheSum {
  static constexpr std::string_view name = "test.twice_the_sum", doc = "y = 2 sum(x)";
  static constexpr std::array<std::string_view, 1> inputs{"x"};
  static void compose(ops::ComposeCall& c) { c.give(ops::sum_all(c.x()) * 2.0); }
};

void register_operators() {
  static std::once_flag once;
  std::call_once(once, [] {
    ops::register_operator(ops::operator_record<SquarePlusOne>);
    ops::register_operator(ops::operator_record<TwiceTheSum>);
  });
}

// SPEC W6
TEST(AddedOperators, AreLikeTheOthers) {
  register_operators();
  Graph graph = parse(R"(
graph g {
  stage 0 (%x: f64[N]) {
    %a = test.square_plus_one(%x)
    %b = exp(%a)
    %c = mul(%b, %a)
    %y = test.twice_the_sum(%c)
    return %y
  }
})")
                    .program();
  EXPECT_EQ(print(parse(print(graph)).program()), print(graph));
  Graph by_hand = parse(R"(
graph g {
  stage 0 (%x: f64[N]) {
    %s = mul(%x, %x)
    %a = add(%s, 1.0)
    %b = exp(%a)
    %c = mul(%b, %a)
    %t = sum(%c)
    %y = mul(%t, 2.0)
    return %y
  }
})")
                      .program();
  Tensor x = Tensor::from(DType::f64, Sizes{3}, std::vector<double>{0.3, -1.2, 0.7});
  Tensor one = Tensor::scalar(DType::f64, 1);
  for (auto fusion : {FusionMode::off, FusionMode::first}) {
    auto context = Context::default_context();
    State a(Code::compile(differentiate(graph, {.order = 2})), context, {.fusion = fusion});
    State b(Code::compile(differentiate(by_hand, {.order = 2})), context, {.fusion = fusion});
    for (std::vector<Tensor> in : {std::vector{x}, std::vector{one}, std::vector{x}}) {
      auto y = a.run(in), z = b.run(in);
      ASSERT_EQ(y.size(), z.size());
      for (size_t i = 0; i < y.size(); ++i) {
        auto p = y[i].to_doubles(), q = z[i].to_doubles();
        for (size_t e = 0; e < p.size(); ++e)
          EXPECT_NEAR(p[e], q[e], 1e-13 * std::max(1.0, std::fabs(q[e])));
      }
    }
  }
  EXPECT_EQ(ops::evaluate("test.square_plus_one", {Tensor::scalar(DType::f64, 3)})[0].item(), 10);
  EXPECT_TRUE(ops::is_added(ops::find("test.square_plus_one")));
  EXPECT_FALSE(ops::is_added(ops::find("add")));
  EXPECT_EQ(ops::all().size(), ops::built_in().size() + 2);
}

TEST(AddedOperators, NeverChangeTheirMeaning) {
  register_operators();
  EXPECT_SAYS(refusal([] { ops::register_operator(ops::operator_record<SquarePlusOne>); }),
              "'test.square_plus_one' cannot be registered: there is one of this name");
  auto refused = [](auto change) {
    static std::deque<Operator> records;
    Operator& record = records.emplace_back(ops::operator_record<SquarePlusOne>);
    change(record);
    return refusal([&] { ops::register_operator(record); });
  };
  EXPECT_SAYS(refused([](Operator& o) { o.name = "add"; }), "there is one of this name");
  EXPECT_SAYS(refused([](Operator& o) { o.name = "a b"; }), "a name is made of letters");
  EXPECT_SAYS(refused([](Operator& o) { o.name = ""; }), "a name is made of letters");
  EXPECT_SAYS(refused([](Operator& o) { o.name = "test.n", o.infer = nullptr; }), "a type rule");
  EXPECT_SAYS(refused([](Operator& o) { o.name = "test.n", o.bind = nullptr; }),
              "neither a kernel");
  EXPECT_SAYS(refused([](Operator& o) { o.name = "test.n", o.traits.opaque = true; }),
              "not for others to add");
}

TEST(CompilePasses, RunInOrderAndAreVerified) {
  Graph graph = parse("graph g { stage 0 (%x: f64[N]) { %y = exp(%x) return %y } }").program();
  std::vector<std::string> seen;
  auto note = [&](std::string_view pass, const Graph&) { seen.emplace_back(pass); };
  auto sine = [](Graph& g) { g.stages[0].nodes[0].op = ops::find("sin"); };
  auto code =
      Code::compile(graph, {.dump = note, .passes = {{"sine", sine}, {"nothing", [](Graph&) {}}}});
  ASSERT_GE(seen.size(), 3u);
  EXPECT_EQ(seen[0], "sine");
  EXPECT_EQ(seen[1], "nothing");
  EXPECT_EQ(code->stage(0).instructions[0].op->name, "sin");
  EXPECT_EQ(graph.stages[0].nodes[0].op->name, "exp");
  EXPECT_SAYS(refusal([&] {
                Code::compile(graph, {.dump = {}, .passes = {{"broken", [](Graph& g) {
                                                                g.stages[0].results[0].value =
                                                                    static_cast<ValueId>(99);
                                                              }}}});
              }),
              "pass 'broken': ");
}

}  // namespace
}  // namespace gradus::ir
