// Functions recorded as programs, against the functions.
// SPEC W1
#include "gradus/trace.h"

#include "gradus/engine.h"
#include "gradus/inputs.h"
#include "gradus/text.h"
#include "interpreter/opaque_call.h"
#include "kernels/evaluate.h"
#include "tests/autograd/support.h"
#include "tests/functions.h"

namespace gradus {
namespace {

using namespace autograd::testing;
using autograd::grad;
using autograd::Variable;
using autograd::Variables;
using Inputs = std::span<const Variable>;

Variable random(Sizes shape, const std::string& name, bool requires_grad = true, uint64_t seed = 3,
                DType dtype = DType::f64) {
  return Variable(random_tensor(dtype, shape, name, seed, *Context::default_context()),
                  requires_grad);
}
Variable part(const Variable& gates, int64_t i, int64_t width) {
  return op("slice", {gates},
            {{"dim", 1, {}}, {"start", i * width, {}}, {"end", (i + 1) * width, {}}});
}

// An LSTM over three steps. x: 3 of [batch, in]; then h, c, w_ih, w_hh, b.
Variables lstm(Inputs v) {
  const int64_t hidden = v[3].shape()[1];
  Variable h = v[3], c = v[4];
  for (size_t t = 0; t < 3; ++t) {
    Variable gates = op("add", {op("linear", {v[t], v[5]}), op("linear", {h, v[6], v[7]})});
    Variable i = op("sigmoid", {part(gates, 0, hidden)}),
             f = op("sigmoid", {part(gates, 1, hidden)}), g = op("tanh", {part(gates, 2, hidden)}),
             o = op("sigmoid", {part(gates, 3, hidden)});
    c = op("add", {op("mul", {f, c}), op("mul", {i, g})});
    h = op("mul", {o, op("tanh", {c})});
  }
  return {h, c};
}
Variables lstm_inputs(uint64_t seed, DType dtype = DType::f64) {
  Variables v;
  for (int t = 0; t < 3; ++t)
    v.push_back(random({2, 3}, "x" + std::to_string(t), false, seed, dtype));
  v.push_back(random({2, 4}, "h", true, seed, dtype));
  v.push_back(random({2, 4}, "c", true, seed, dtype));
  v.push_back(random({16, 3}, "w_ih", true, seed, dtype));
  v.push_back(random({16, 4}, "w_hh", true, seed, dtype));
  v.push_back(random({16}, "b", true, seed, dtype));
  return v;
}

Variable critic(const Variable& x, const Variable& w1, const Variable& b1, const Variable& w2) {
  return op("linear", {op("tanh", {op("linear", {x, w1, b1})}), w2});
}

// The critic's loss with a gradient penalty, and the generator's. real, noise, epsilon; the
// generator's weight; the critic's two and a bias.
Variables wgan_gp(Inputs v) {
  Variable fake = op("tanh", {op("linear", {v[1], v[3]})});
  Variable mixed = op("lerp", {fake, v[0], v[2]});
  Variable at_mixed = op("sum", {critic(mixed, v[4], v[6], v[5])});
  Variable slope = grad(std::array{at_mixed}, std::array{mixed}, {}, {.create_graph = true})[0];
  Variable norm = op("sqrt", {op("sum", {op("square", {slope})}, {{"dim", 1, {}}})});
  Variable penalty = op("mean", {op("square", {op("sub", {norm, ir::Number::of(1.0)})})});
  Variable at_fake = op("mean", {critic(fake, v[4], v[6], v[5])});
  Variable at_real = op("mean", {critic(v[0], v[4], v[6], v[5])});
  Variable loss =
      op("add", {op("sub", {at_fake, at_real}), op("mul", {penalty, ir::Number::of(10.0)})});
  return {loss, op("neg", {at_fake})};
}
Variables wgan_inputs(uint64_t seed) {
  return {random({4, 3}, "real", false, seed), random({4, 2}, "noise", false, seed),
          random({4, 1}, "eps", false, seed),  random({3, 2}, "generator", true, seed),
          random({5, 3}, "w1", true, seed),    random({1, 5}, "w2", true, seed),
          random({5}, "b1", true, seed)};
}

std::string refusal(const VariableFunction& f, Inputs inputs, int order = 0) {
  return error_of([&] { trace(f, inputs, {.order = order, .run_backward = true}); });
}
#define EXPECT_SAYS(message, part) EXPECT_NE((message).find(part), std::string::npos) << (message)

// Recorded on some inputs, held against the function on others, to the bit; printed and read back.
void expect_traced(const VariableFunction& f, const std::function<Variables(uint64_t)>& inputs) {
  for (int order = 0; order <= 3; ++order) {
    SCOPED_TRACE(order);
    Trace traced = trace(f, inputs(3), {.order = order, .run_backward = true}).trace;
    ASSERT_TRUE(traced.complete());
    for (uint64_t seed : {3, 8}) ASSERT_NO_THROW(verify(traced, f, inputs(seed))) << seed;
    ir::Graph graph = traced.graph();
    EXPECT_EQ(graph.stages.size(), static_cast<size_t>(order) + 1);
    EXPECT_EQ(ir::print(ir::parse(ir::print(graph)).program()), ir::print(graph));
  }
}

TEST(Trace, OfAnLstmIsTheFunctionAtOrdersZeroToThree) {
  expect_traced(lstm, [](uint64_t seed) { return lstm_inputs(seed); });
  expect_traced(lstm, [](uint64_t seed) { return lstm_inputs(seed, DType::f32); });
}

TEST(Trace, OfAWganGpStepIsTheFunctionAtOrdersZeroToThree) { expect_traced(wgan_gp, wgan_inputs); }

TEST(Trace, RunsInTheFunctionsPlace) {
  Trace traced = trace(wgan_gp, wgan_inputs(3), {.order = 2, .run_backward = true}).trace;
  auto derivatives = [](const VariableFunction& f) {
    Variables v = wgan_inputs(5);
    Variable loss = f(v)[0];
    Variables g = grad(std::array{loss}, std::array{v[4], v[5]}, {}, {.create_graph = true});
    Variable y = op("sum", {op("mul", {op("sum", {op("square", {g[0]})}), g[1]})});
    Variables gg = grad(std::array{y}, std::array{v[4], v[3]});
    return std::array{loss.data(), g[0].data(), g[1].data(), gg[0].data(), gg[1].data()};
  };
  auto by_function = derivatives(wgan_gp),
       by_program = derivatives([&](Inputs v) { return traced(v); });
  for (size_t i = 0; i < by_function.size(); ++i) {
    auto a = by_function[i].to_doubles(), b = by_program[i].to_doubles();
    ASSERT_EQ(a.size(), b.size());
    for (size_t e = 0; e < a.size(); ++e)
      EXPECT_NEAR(a[e], b[e], 1e-12 * std::max(1.0, std::fabs(a[e]))) << i;
  }
}

// The user's own backwards record the stages, one after the other.
TEST(Trace, RecordsStagesWhileTheUserRunsBackward) {
  Variables v = {random({3}, "a"), random({3}, "b")};
  VariableFunction f = [](Inputs x) {
    return Variables{op("sum", {op("mul", {op("exp", {x[0]}), x[1]})})};
  };
  auto [traced, outputs] = trace(f, v, {.order = 2, .inputs = {"a", "b"}, .outputs = {"loss"}});
  EXPECT_FALSE(traced.complete());
  EXPECT_EQ(traced.graph().stages.size(), 1u);
  EXPECT_SAYS(error_of([&, t = traced] { t.code(); }), "stage 1 of trace 'traced' is not recorded");
  Variables plain = grad(std::array{f(v)[0]}, v), g = grad(outputs, v, {}, {.create_graph = true});
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(bitwise_equal(plain[i].data(), g[i].data()));
  EXPECT_EQ(traced.graph().stages.size(), 2u);
  op("sum", {g[0]}).backward();
  ASSERT_TRUE(traced.complete());
  EXPECT_TRUE(v[1].grad().defined());
  ir::Graph graph = traced.graph();
  std::vector<std::string> names;
  for (const ir::Stage& s : graph.stages) {
    for (ir::ValueId i : s.inputs) names.push_back(graph[i].name);
    for (const ir::Result& r : s.results) names.push_back(r.name);
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"a", "b", "loss", "ct1_loss", "d1_a", "d1_b", "ct2_d1_a",
                                      "ct2_d1_b", "d2_a", "d2_b", "d2_ct1_loss"}));
  // No cotangent arrived at d1_b, and none may in a run.
  EXPECT_EQ(traced.absent_cotangents(), (std::vector<std::string>{"ct2_d1_b"}));
  EXPECT_NO_THROW(verify(traced, f, v));
  Variables w = {random({3}, "a"), random({3}, "b")};
  Variables again = grad(traced(w), w, {}, {.create_graph = true});
  EXPECT_NO_THROW(grad(std::array{op("sum", {again[0]})}, w, {}, {.keep_graph = true}));
  EXPECT_SAYS(error_of([&] { grad(std::array{op("sum", {again[1]})}, w); }),
              "'ct2_d1_b' of 'traced' was undefined when its stage was recorded");
}

TEST(Trace, RecordsAStageAnew) {
  Variables v = {random({3}, "a")};
  auto [traced, outputs] =
      trace([](Inputs x) { return Variables{op("exp", {x[0]})}; }, v, {.order = 2});
  Variable ct = random({3}, "ct");
  auto once = [&, y = outputs] { return grad(y, v, std::array{ct}, {.create_graph = true})[0]; };
  Variable first = once();
  grad(std::array{op("sum", {first})}, v, {}, {.keep_graph = true});
  EXPECT_TRUE(traced.complete());
  Variable second = once();
  EXPECT_FALSE(traced.complete());
  EXPECT_SAYS(error_of([&] { grad(std::array{op("sum", {first})}, v); }),
              "stage 1 of trace 'traced' was recorded anew since");
  grad(std::array{op("sum", {second})}, v);
  EXPECT_TRUE(traced.complete());
  EXPECT_SAYS(error_of([&] {
                Variable g = once();
                Variable gg = grad(std::array{op("sum", {g})}, v, {}, {.create_graph = true})[0];
                grad(std::array{op("sum", {gg})}, v);
              }),
              "'traced' was traced for 2 derivatives; trace it for more");
}

TEST(Trace, SaysThatItsVariablesAreGone) {
  Variables v = {random({3}, "a")};
  VariableFunction f = [](Inputs x) { return Variables{op("exp", {x[0]})}; };
  size_t nodes = autograd::living_nodes(), variables = autograd::living_variables();
  Trace traced = trace(f, v, {.order = 1}).trace;
  EXPECT_EQ(autograd::living_nodes(), nodes);
  EXPECT_EQ(autograd::living_variables(), variables);
  EXPECT_SAYS(error_of([&] { traced(v); }), "the variables that it was recorded from are gone");
  auto released = trace(f, v, {.order = 1});
  Variable ct = random({3}, "ct", false);
  released.outputs[0].backward(ct);
  EXPECT_NO_THROW(released.trace.code());
  EXPECT_SAYS(error_of([&] { released.outputs[0].backward(ct); }), "freed");
}

TEST(Trace, ChecksTheFlagsOfTheRecording) {
  VariableFunction f = [](Inputs x) {
    return Variables{x[1].defined() ? op("mul", {x[0], x[1]}) : op("exp", {x[0]})};
  };
  Variable a = random({3}, "a"), b = random({3}, "b", false), none;
  Trace both = trace(f, std::array{a, b}, {.order = 1, .run_backward = true}).trace;
  Trace one = trace(f, std::array{a, none}, {.order = 1, .run_backward = true}).trace;
  EXPECT_NO_THROW(both(std::array{a, b}));
  EXPECT_NO_THROW(one(std::array{a, none}));
  EXPECT_NO_THROW(verify(one, f, std::array{a, none}));
  EXPECT_SAYS(error_of([&] {
                both(std::array{a, none});
              }),
              "input 'x1' that was defined; this one was undefined");
  EXPECT_SAYS(error_of([&] { one(std::array{a, b}); }), "input 'x1' that was undefined");
  EXPECT_SAYS(error_of([&] {
                both(std::array{a, a});
              }),
              "input 'x1' that requires none; this one requires gradients");
  EXPECT_SAYS(error_of([&] { both(std::array{b, b}); }), "input 'x0' that requires gradients");
  EXPECT_SAYS(error_of([&] { both(std::array{a}); }), "with 2 inputs, 1 are given");
  autograd::GradModeGuard mode(autograd::GradMode::no_grad);
  EXPECT_NO_THROW(both(std::array{a, a}));  // nothing is recorded that the flag could matter for
}

TEST(Trace, KeepsConstantsAsTheyWere) {
  Tensor c = random({3}, "c").data().copy();
  VariableFunction f = [&](Inputs x) {
    Variable k(c);
    return Variables{op("mul", {op("add", {x[0], k}), k})};
  };
  Variables v = {random({3}, "a")};
  Trace traced = trace(f, v, {.order = 1, .run_backward = true}).trace;
  size_t constants = 0;
  const ir::Graph graph = traced.graph();
  for (const ir::Node& n : graph.stages[0].nodes) constants += n.op->name == "constant";
  EXPECT_EQ(constants, 1u);
  EXPECT_NO_THROW(verify(traced, f, v));
  Tensor before = traced(v)[0].data();
  c.mutable_data_as<double>()[0] += 1;
  EXPECT_TRUE(bitwise_equal(before, traced(v)[0].data()));
  EXPECT_SAYS(error_of([&] { verify(traced, f, v); }), "stage 0, result 'y0': element 0 is");
}

// Values of equal memory that are told apart by where their gradients go.
TEST(Trace, TellsEqualTensorsApart) {
  Variable a = random({2, 2}, "a");
  VariableFunction f = [](Inputs x) {
    Variable cut = x[0].detach(),
             same = op("reshape", {x[1]}, {{"shape", ir::Literal::list(std::array{2, 2}), {}}});
    Variable inner(op("exp", {x[0]}).data(), true);  // a leaf of the function's own
    Variable slope = grad(std::array{op("sum", {op("square", {inner})})}, std::array{inner})[0];
    return Variables{op("mul", {op("mul", {x[0], cut}), same}), op("mul", {slope, x[1]})};
  };
  auto inputs = [&](uint64_t seed) {
    // One tensor for both inputs when it is recorded.
    return seed == 3 ? Variables{a, Variable(a.data(), true)}
                     : Variables{random({2, 2}, "p"), random({2, 2}, "q")};
  };
  expect_traced(f, inputs);
  // The derivative by rules knows of the cuts, too.
  Trace traced = trace(f, inputs(3)).trace;
  auto by_rules = Code::compile(ir::differentiate(traced.graph(), {.order = 1}));
  auto recorded = trace(f, inputs(3), {.order = 1, .run_backward = true}).trace.code();
  State s(by_rules), t(recorded);
  std::vector<Tensor> in{random({2, 2}, "p").data(), random({2, 2}, "q").data()};
  s.run(in), t.run(in);
  auto x = s.run(in), y = t.run(in);
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(bitwise_equal(x[i], y[i])) << i;
}

TEST(Trace, RecordsCallsOfRegisteredFunctions) {
  test::register_test_functions();
  VariableFunction f = [](Inputs x) {
    Variable h = call_function("t.wave", std::array{op("tanh", {x[0]}), x[1]})[0];
    Variables two = call_function("t.two", std::array{h, x[0]});
    return Variables{op("mul", {two[0], two[2]}), call_function("t.cube", std::array{h})[0]};
  };
  auto inputs = [](uint64_t seed) {
    return Variables{random({3}, "a", true, seed), random({3}, "b", true, seed)};
  };
  expect_traced(f, inputs);
  // What a function does within is its own business.
  EXPECT_NO_THROW(trace([](Inputs x) { return call_function("t.constant", x); },
                        std::array{inputs(3)[0]}, {.order = 1, .run_backward = true}));
}

TEST(Trace, RecordsNestedGradients) {
  expect_traced(
      [](Inputs x) {
        Variable y = op("sum", {op("mul", {op("sin", {x[0]}), x[1]})});
        Variable g = grad(std::array{y}, std::array{x[0]}, {}, {.create_graph = true})[0];
        Variable z = op("sum", {op("mul", {g, op("exp", {x[0]})})});
        Variable h = grad(std::array{z}, std::array{x[0]}, {}, {.create_graph = true})[0];
        Variable fixed = grad(std::array{z}, std::array{x[1]}, {}, {.keep_graph = true})[0];
        return Variables{op("mul", {h, fixed}), g};
      },
      [](uint64_t seed) {
        return Variables{random({4}, "a", true, seed), random({4}, "b", true, seed)};
      });
}

TEST(Trace, GoesOnWhereNothingLeads) {
  Variables v = {random({3}, "a")};
  VariableFunction f = [](Inputs x) { return Variables{op("sign", {x[0]})}; };
  auto traced = trace(f, v, {.order = 2});
  EXPECT_TRUE(traced.trace.complete());
  EXPECT_NO_THROW(verify(traced.trace, f, v));
}

// The slope of sum(x q q) at a constant q, which leads on to x: 2 x q.
TEST(Trace, DifferentiatesAtConstants) {
  for (Sizes shape : {Sizes{}, Sizes{3}, Sizes{2, 2}}) {
    Variable q = random(shape, "q", false);
    VariableFunction f = [&](Inputs x) {
      Variable at = leaf_of(q);
      Variable y = op("sum", {op("mul", {x[0], op("square", {at})})});
      return Variables{grad(std::array{y}, std::array{at}, {}, {.create_graph = true})[0]};
    };
    Variables x = {random(shape, "x")};
    auto traced = trace(f, x, {.order = 2, .run_backward = true});
    EXPECT_NO_THROW(verify(traced.trace, f, {{random(shape, "x", true, 5)}}));
    Variable want = op("mul", {op("mul", {x[0], q}), ir::Number::of(2.0)});
    EXPECT_EQ(traced.outputs[0].data().to_doubles(), want.data().to_doubles());
  }
}

TEST(Trace, CapturesWhatRequiresGradients) {
  Variable a = random({3}, "a"), other = random({3}, "other"), constant = random({3}, "c", false);
  Variable made = op("exp", {other});
  VariableFunction f = [&](Inputs x) {
    Variable y = op("add", {op("mul", {x[0], other}), op("mul", {made, constant})});
    return Variables{op("mul", {y, other})};
  };
  Variables captured;
  auto traced = trace(f, std::array{a}, {.captures = &captured});
  ASSERT_EQ(captured.size(), 2u);
  EXPECT_TRUE(captured[0].same_as(other));
  EXPECT_TRUE(captured[1].same_as(made));
  EXPECT_EQ(traced.trace.graph().stages[0].inputs.size(), 3u);
  State state(traced.trace.code(), Context::default_context());
  EXPECT_EQ(state.run(std::array{a.data(), other.data(), made.data()})[0].to_doubles(),
            f(std::array{a})[0].data().to_doubles());
  EXPECT_SAYS(error_of([&] { trace(f, std::array{a}, {.order = 1, .captures = &captured}); }),
              "has order 0, not 1");
}

TEST(Trace, RefusesWhatItWouldLose) {
  Variable a = random({3}, "a"), other = random({3}, "other");
  auto in = std::array{a};
  EXPECT_SAYS(
      refusal(
          [](Inputs x) {
            return Variables{op("exp", {x[0]}).data().item() > 0 ? x[0] : op("neg", {x[0]})};
          },
          in),
      "it reads back the values of a f64[3]");
  EXPECT_SAYS(refusal([](Inputs x) { return Variables{Variable(x[0].data().copy())}; }, in),
              "reads back");
  EXPECT_SAYS(refusal(
                  [](Inputs x) {
                    x[0].data().to_doubles();
                    return Variables{x[0]};
                  },
                  in),
              "reads back");
  EXPECT_SAYS(
      refusal([](Inputs x) { return Variables{Variable(ops::evaluate("exp", {x[0].data()})[0])}; },
              in),
      "reads back");
  EXPECT_SAYS(refusal(
                  [&](Inputs x) {
                    return Variables{op("mul", {x[0], other})};
                  },
                  in),
              "uses a f64[3] that requires gradients and is no input (a leaf)");
  EXPECT_SAYS(refusal(
                  [&](Inputs x) {
                    return Variables{op("mul", {x[0], a})};
                  },
                  in),
              "is no input");
  EXPECT_SAYS(refusal(
                  [&](Inputs x) {
                    return autograd::CustomFunction::apply(std::make_shared<test::Cube>(), x);
                  },
                  in),
              "it meets custom function 'Cube'");
  EXPECT_SAYS(refusal([&](Inputs x) { return Variables{through("mine", x[0], hand_on)}; }, in),
              "made by 'mine'");
  EXPECT_SAYS(refusal(
                  [&](Inputs x) {
                    op("sum", {op("square", {x[0]})}).backward();
                    return Variables{x[0]};
                  },
                  in),
              "a backward that accumulates into leaves");
  EXPECT_SAYS(refusal([&](Inputs x) { return autograd::apply("nonzero", {x[0]}); }, in),
              "whose result's size its data decides");
  EXPECT_SAYS(refusal(
                  [&](Inputs x) {
                    Variable y = op("exp", {x[0]});
                    Tensor t = y.data();
                    t.mutable_data();
                    return Variables{op("neg", {y})};
                  },
                  in),
              "was changed in place");
  EXPECT_SAYS(refusal(
                  [&](Inputs x) {
                    const Tensor& t = x[0].data();
                    return Variables{op("exp", {Variable(t.view(Layout(DType::f64, {2}), 0))})};
                  },
                  in),
              "views a value's memory without an operator");
  EXPECT_SAYS(refusal([&](Inputs x) { return trace(lstm, x).outputs; }, in),
              "it meets another trace");
  EXPECT_SAYS(refusal([&](Inputs) { return Variables(1); }, in), "output 0 is undefined");
  Trace program = trace([](Inputs x) { return Variables{op("exp", {x[0]})}; }, in,
                        {.order = 1, .run_backward = true})
                      .trace;
  EXPECT_SAYS(refusal([&](Inputs x) { return program(x); }, in),
              "program 'traced', called as a function");
  EXPECT_SAYS(refusal(
                  [&](Inputs x) {
                    State state(program.code());
                    return Variables{Variable(state.run(std::array{x[0].data()})[0])};
                  },
                  in),
              "reads back");
  EXPECT_SAYS(error_of([&] {
                trace(lstm, in, {.inputs = {"a", "b"}});
              }),
              "1 inputs to trace were given 2 names");
  // All is as before on this thread.
  EXPECT_NO_THROW(a.data().item());
}

}  // namespace
}  // namespace gradus
