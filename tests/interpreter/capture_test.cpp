// Backwards as programs, against the engine that would run them.
// SPEC N14
#include "interpreter/capture.h"

#include <cmath>
#include <thread>

#include "gradus/engine.h"
#include "gradus/inputs.h"
#include "gradus/passes.h"
#include "gradus/staged_function.h"
#include "interpreter/opaque_call.h"
#include "tests/autograd/support.h"
#include "tests/functions.h"

namespace gradus {
namespace {

using namespace autograd::testing;
using autograd::Capture;
using autograd::Variable;
using autograd::Variables;

Variable random(DType dtype, Sizes shape, const std::string& name) {
  return Variable(random_tensor(dtype, shape, name, 7, *Context::default_context()), true);
}
Variable number(double v) { return Variable(Tensor::scalar(DType::f64, v)); }

struct Function {
  const char* name;
  std::function<Variables(DType)> inputs;
  std::function<Variables(std::span<const Variable>)> run;
};

Variables matrices(DType t) { return {random(t, {3, 4}, "x"), random(t, {4, 4}, "w")}; }
Variables rows(DType t) { return {random(t, {3, 4}, "x"), random(t, {1, 4}, "w")}; }

// Sums of several contributions, broadcasting, operands and results that rules read, several
// results, nodes that share what they saved, casts, views, compositions, indices.
std::vector<Function> functions() {
  test::register_test_functions();
  return {
      {"products", rows,
       [](auto v) {
         Variable p = op("mul", {v[0], v[1]});
         return Variables{op("mul", {op("mul", {p, v[0]}), v[0]})};
       }},
      {"network", matrices,
       [](auto v) {
         Variable h = op("tanh", {op("mm", {v[0], v[1]})});
         Variable again = op("sigmoid", {op("mm", {h, v[1]})});
         return Variables{op("sum", {op("mul", {op("add", {h, again}), h})}), again};
       }},
      {"several_results", rows,
       [](auto v) {
         auto sorted = autograd::apply("sort", {v[0]}, {{"dim", 1, {}}});
         Variable e = op("exp", {sorted[0]}), mixed = op("mul", {e, v[1]});
         Variable gathered = op("gather", {mixed, sorted[1]}, {{"dim", 1, {}}});
         return Variables{mixed, op("mul", {gathered, e})};
       }},
      {"normalised", matrices,
       [](auto v) {
         Variable s = op("softmax", {op("mm", {v[0], v[1]})}, {{"dim", 1, {}}});
         Variable t = op("transpose", {s}, {{"dim0", 0, {}}, {"dim1", 1, {}}});
         return Variables{op("logsumexp", {op("mm", {t, v[0]})}, {{"dim", 1, {}}}), s};
       }},
      {"opaque", rows,
       [](auto v) {
         Variable w = op("expand", {v[1]}, {{"shape", ir::Literal::list(std::array{3, 4}), {}}});
         Variable h = call_function("t.wave", std::array{v[0], w})[0];
         Variables two = call_function("t.two", std::array{h, v[0]});
         return Variables{op("mul", {two[0], w}), call_function("t.cube", std::array{two[2]})[0]};
       }},
  };
}

void expect_same_bits(const Variable& by_engine, const Tensor& by_program,
                      const std::string& what) {
  ASSERT_EQ(by_engine.defined(), by_program.defined()) << what;
  if (!by_engine.defined()) return;
  EXPECT_EQ(describe(by_engine.data()), describe(by_program)) << what;
  EXPECT_TRUE(bitwise_equal(by_engine.data(), by_program)) << what;
}

Variables by_engine(std::span<const Variable> outputs, std::span<const Variable> cotangents,
                    std::span<const Variable> inputs) {
  std::vector<autograd::Edge> roots;
  std::vector<Capture> captures;
  for (const Variable& y : outputs) roots.push_back(y.gradient_edge());
  for (const Variable& x : inputs) captures.push_back({x.gradient_edge(), {}});
  return autograd::engine_of(autograd::current_context())
      ->execute(roots, cotangents, {.keep_graph = true, .create_graph = true}, captures);
}

std::vector<Tensor> by_program(const CapturedBackward& captured,
                               std::span<const Variable> cotangents) {
  std::vector<Tensor> given;
  for (const Variable& ct : cotangents)
    if (ct.defined()) given.push_back(ct.data());
  State state(captured.code);
  return state.run(captured.inputs(given));
}

std::string refusal(const Variable& y, const Variable& x) {
  return error_of([&] { capture_backward(std::array{y}, std::array{x}); });
}
#define EXPECT_SAYS(message, part) EXPECT_NE((message).find(part), std::string::npos) << (message)

// Captures the backward, then that of its gradients, and so on.
void compare(const Function& f, DType dtype, int orders) {
  SCOPED_TRACE(fmt::format("{} in {}", f.name, name_of(dtype)));
  Variables inputs = f.inputs(dtype), outputs = f.run(inputs);
  for (int order = 1; order <= orders; ++order) {
    Variables cotangents;
    for (size_t i = 0; i < outputs.size(); ++i)
      cotangents.push_back(random(dtype, Sizes(outputs[i].shape()), fmt::format("{}{}", order, i)));
    Variables expected = by_engine(outputs, cotangents, inputs);
    auto actual = by_program(capture_backward(outputs, inputs), cotangents);
    ASSERT_EQ(expected.size(), actual.size());
    for (size_t i = 0; i < actual.size(); ++i)
      expect_same_bits(expected[i], actual[i], fmt::format("gradient {} of order {}", i, order));
    for (const Variable& ct : cotangents) inputs.push_back(ct);
    outputs.clear();
    for (const Variable& g : expected)
      if (g.defined() && g.requires_grad()) outputs.push_back(g);
    ASSERT_FALSE(outputs.empty());
  }
}

TEST(Capture, GivesTheEnginesBitsAtOrdersOneToThree) {
  for (const Function& f : functions())
    for (DType dtype : {DType::f64, DType::f32}) compare(f, dtype, 3);
}

// The captured program is derived as any other; what was saved leads on into the outer graph.
TEST(Capture, IsDerivedFurtherThroughWhatWasSaved) {
  for (const Function& f : functions()) {
    SCOPED_TRACE(f.name);
    Variables inputs = f.inputs(DType::f64), outputs = f.run(inputs), cotangents;
    for (size_t i = 0; i < outputs.size(); ++i)
      cotangents.push_back(random(DType::f64, Sizes(outputs[i].shape()), fmt::format("c{}", i)));
    auto captured = capture_backward(outputs, inputs, {.derivatives = 2});
    Variables given = cotangents;
    for (const Variable& v : captured.saved) given.push_back(v);
    Variables first = StagedFunction(captured.code)(given);
    Variables expected = by_engine(outputs, cotangents, inputs);
    for (const Variable& ct : cotangents) inputs.push_back(ct);
    // Sums of products of what came before, twice.
    auto objective = [](const Variables& g) {
      return op("sum", {op("mul", {op("sum", {op("tanh", {g[0]})}), op("sum", {g[1]})})});
    };
    for (int order = 2; order <= 3; ++order) {
      Variables a = by_engine(std::array{objective(expected)}, std::array{number(1)}, inputs),
                b = by_engine(std::array{objective(first)}, std::array{number(1)}, inputs);
      for (size_t i = 0; i < a.size(); ++i) {
        ASSERT_EQ(a[i].defined(), b[i].defined()) << i;
        if (!a[i].defined()) continue;
        auto x = values(a[i]), y = values(b[i]);
        for (size_t k = 0; k < x.size(); ++k)
          EXPECT_NEAR(x[k], y[k], 1e-12 * std::max(1.0, std::fabs(x[k])))
              << "gradient " << i << " of order " << order;
      }
      expected = a;
      first = b;
    }
  }
}

// Where nothing but leaves was saved, the program's own derivatives are the engine's to the bit.
TEST(Capture, IsDerivedToTheBitWhereLeavesWereSaved) {
  Variable x = random(DType::f64, {5}, "x"), w = random(DType::f64, {5}, "w"),
           ct = random(DType::f64, {5}, "ct"), v = random(DType::f64, {5}, "v");
  Variable y = op("add", {op("mul", {x, w}), op("square", {x})});
  auto captured = capture_backward(std::array{y}, std::array{x, w});
  ASSERT_EQ(captured.saved.size(), 2u);
  auto code = Code::compile(ir::differentiate(*captured.graph, {.order = 1}));
  State state(code);
  auto first = state.run(captured.inputs(std::array{ct.data()}));
  auto second = state.run(std::array{v.data(), v.data()});
  Variables g = by_engine(std::array{y}, std::array{ct}, std::array{x, w});
  Variables leaves{ct, captured.saved[0], captured.saved[1]};
  Variables gg = by_engine(g, std::array{v, v}, leaves);
  for (size_t i = 0; i < 2; ++i) expect_same_bits(g[i], first[i], "first");
  for (size_t i = 0; i < 3; ++i) expect_same_bits(gg[i], second[i], "second");
}

// One that takes scalars is called with its own: captures of other scalars are others.
TEST(Capture, KeepsScalarsOfFunctions) {
  test::register_test_functions();
  Variable x = random(DType::f64, {3}, "x"), w = random(DType::f64, {3}, "w"),
           ct = random(DType::f64, {3}, "ct");
  for (double scale : {2.0, 3.0}) {
    auto function = ops::find_function("t.scaled_power")
                        ->with_scalars({"ttss", {ir::Literal(scale), ir::Literal(2)}});
    Variable y = call_function(function, std::array{x, w})[0];
    auto captured = capture_backward(std::array{y}, std::array{x, w});
    EXPECT_EQ(captured.graph->stages[0].nodes[0].op->name, "python_op");
    State state(captured.code);
    auto got = state.run(captured.inputs(std::array{ct.data()}));
    Variables g = by_engine(std::array{y}, std::array{ct}, std::array{x, w});
    for (size_t i = 0; i < 2; ++i) expect_same_bits(g[i], got[i], "gradient");
  }
}

// A function is called again for its handle, which an `eval` takes.
TEST(Capture, MakesEvalsOfRegisteredFunctions) {
  test::register_test_functions();
  Variable x = random(DType::f64, {3}, "x"), ct = random(DType::f64, {3}, "ct");
  Variable y = call_function("t.cube", std::array{op("exp", {x})})[0];
  EXPECT_EQ(y.grad_fn()->name(), "t.cube");
  auto captured = capture_backward(std::array{y}, std::array{x});
  std::vector<std::string_view> names;
  for (const ir::Node& n : captured.graph->stages[0].nodes) names.push_back(n.op->name);
  EXPECT_EQ(names, (std::vector<std::string_view>{"cpp_op", "eval", "mul"}));
  auto again = capture_backward(std::array{call_function("t.cube", std::array{op("exp", {x})})[0]},
                                std::array{x});
  EXPECT_EQ(captured.code, again.code);
  Variables g = by_engine(std::array{y}, std::array{ct}, std::array{x});
  EXPECT_EQ(g[0].requires_grad(), true);
  // Declared to be differentiable twice: in variables and when it is compiled.
  Variable s = call_function("t.swish", std::array{x})[0];
  EXPECT_NO_THROW(capture_backward(std::array{s}, std::array{x}, {.derivatives = 1}));
  EXPECT_SAYS(error_of([&] { capture_backward(std::array{s}, std::array{x}, {.derivatives = 2}); }),
              "'t.swish' can be differentiated 2 times");
  for (int order = 1; order <= 2; ++order)
    s = by_engine(std::array{s}, std::array{ct}, std::array{x})[0];
  EXPECT_SAYS(error_of([&] { by_engine(std::array{s}, std::array{ct}, std::array{x}); }),
              "'t.swish' cannot be differentiated that often");
  // Its graph goes with the first backward that does not keep it.
  autograd::backward(std::array{y}, std::array{ct});
  EXPECT_SAYS(error_of([&] { autograd::backward(std::array{y}, std::array{ct}); }),
              "the graph of an opaque function was freed");
  EXPECT_SAYS(refusal(y, x), "freed by an earlier backward");
  EXPECT_SAYS(error_of([&] { call_function("t.nowhere", std::array{x}); }), "no C++ function");
}

TEST(Capture, LeavesOutWhatDoesNotArrive) {
  Function f = functions()[1];
  Variables inputs = f.inputs(DType::f64), outputs = f.run(inputs);
  Variable alone = random(DType::f64, {2}, "alone");
  inputs.push_back(alone);
  for (size_t absent : {0u, 1u}) {
    std::vector<bool> marks(2);
    marks[absent] = true;
    Variables cotangents(2);
    cotangents[1 - absent] =
        random(DType::f64, Sizes(outputs[1 - absent].shape()), fmt::format("ct{}", absent));
    auto captured = capture_backward(outputs, inputs, {.absent = marks});
    EXPECT_EQ(captured.graph->stages.size(), 1u);
    EXPECT_EQ(captured.graph->stages[0].inputs.size(), 1 + captured.saved.size());
    Variables expected = by_engine(outputs, cotangents, inputs);
    auto actual = by_program(captured, cotangents);
    for (size_t i = 0; i < actual.size(); ++i) expect_same_bits(expected[i], actual[i], "gradient");
    EXPECT_EQ(captured.graph->stages[0].results[2].value, ir::no_value);
    EXPECT_EQ(captured.graph->stages[0].results[2].name, "dx2");
  }
  auto none = capture_backward(outputs, inputs, {.absent = {true, true}});
  for (const ir::Result& r : none.graph->stages[0].results) EXPECT_EQ(r.value, ir::no_value);
}

// Gradients of values in between, and of an output itself.
TEST(Capture, StopsWhereGradientsAreAskedFor) {
  Variable x = random(DType::f64, {4}, "x"), h = op("exp", {x}), y = op("mul", {h, h}),
           ct = random(DType::f64, {4}, "ct");
  Variables inputs{h, y, x};
  Variables expected = by_engine(std::array{y}, std::array{ct}, inputs);
  auto actual = by_program(capture_backward(std::array{y}, inputs), std::array{ct});
  for (size_t i = 0; i < 3; ++i) expect_same_bits(expected[i], actual[i], fmt::format("{}", i));
  // Only h and y: exp does not run.
  auto captured = capture_backward(std::array{y}, std::array{h, y});
  EXPECT_EQ(captured.saved.size(), 1u);
}

TEST(Capture, IsKeptByStructure) {
  OwnEngine engine;
  auto statistics = [&] { return capture_statistics(*engine.context()); };
  auto capture = [&](int64_t n, bool same, double scale) {
    Variable a = random(DType::f64, {n}, "a"), b = random(DType::f64, {n}, "b");
    Variable y = op("mul", {op("mul", {a, same ? a : b}), ir::Number::of(scale)});
    return capture_backward(std::array{y}, std::array{a});
  };
  auto first = capture(3, true, 2), again = capture(3, true, 2);
  EXPECT_EQ(first.code, again.code);
  EXPECT_EQ(first.graph, again.graph);
  EXPECT_FALSE(first.saved[0].same_as(again.saved[0]));
  EXPECT_EQ(statistics().built, 1u);
  EXPECT_EQ(statistics().hits, 1u);
  // Other sizes, other numbers, and values that are two instead of one are other structures.
  EXPECT_NE(capture(4, true, 2).code, first.code);
  EXPECT_NE(capture(3, false, 2).code, first.code);
  EXPECT_NE(capture(3, true, 3).code, first.code);
  EXPECT_EQ(statistics().built, 4u);
  // So are values of one type in another arrangement.
  Variable a = random(DType::f64, {3}, "a"), c = a.detach(), d(a.data().copy());
  Variable y = op("mul", {op("mul", {a, c}), d});
  auto with = [&](const Variable& last) {
    return capture_backward(std::array{op("mul", {y, last})}, std::array{a});
  };
  EXPECT_NE(with(c).code, with(d).code);
  EXPECT_EQ(statistics().built, 6u);
  // One tensor that is differentiated here and is not there is two values.
  EXPECT_EQ(capture_backward(std::array{op("mul", {a, c})}, std::array{a}).saved.size(), 2u);
  EXPECT_EQ(statistics().built, 7u);
  for (int n = 0; n < 70; ++n) capture(5 + n, true, 2);
  EXPECT_EQ(statistics().kept, most_kept_captures);
  EXPECT_EQ(statistics().built, 77u);
  // The first went with the others; who has it still does.
  EXPECT_NE(capture(3, true, 2).code, first.code);
  EXPECT_EQ(first.code->stages(), 1u);
}

TEST(Capture, MayBeDoneOnSeveralThreadsAtOnce) {
  Function f = functions()[1];
  Variables inputs = f.inputs(DType::f64), outputs = f.run(inputs), cotangents;
  for (size_t i = 0; i < outputs.size(); ++i)
    cotangents.push_back(random(DType::f64, Sizes(outputs[i].shape()), fmt::format("t{}", i)));
  Variables expected = by_engine(outputs, cotangents, inputs);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        auto actual = by_program(capture_backward(outputs, inputs), cotangents);
        for (size_t i = 0; i < actual.size(); ++i)
          wrong += !bitwise_equal(expected[i].data(), actual[i]);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Capture, RefusesByName) {
  Variable x = random(DType::f64, {3}, "x");
  Variable cubed =
      autograd::CustomFunction::apply(std::make_shared<test::Cube>(), std::array{x})[0];
  EXPECT_SAYS(refusal(op("exp", {cubed}), x), "'Cube' cannot be captured: it is C++ code");
  // What lies above it can be.
  EXPECT_NO_THROW(capture_backward(std::array{op("exp", {cubed})}, std::array{cubed}));
  Variable hooked = op("exp", {x});
  uint64_t key = hooked.register_hook([](const Variable& g) { return g; });
  EXPECT_SAYS(refusal(op("sum", {hooked}), x), "'exp' cannot be captured: it has hooks");
  hooked.remove_hook(key);
  EXPECT_NO_THROW(capture_backward(std::array{op("sum", {hooked})}, std::array{x}));
  key = x.register_hook([](const Variable& g) { return g; });
  EXPECT_SAYS(refusal(op("exp", {x}), x), "it has hooks");
  x.remove_hook(key);
  EXPECT_SAYS(refusal(through("mine", x, hand_on), x), "'mine' cannot be captured");
  StagedFunction staged =
      StagedFunction::of(*capture_backward(std::array{op("exp", {x})}, std::array{x}).graph, 1);
  EXPECT_SAYS(refusal(staged(std::array{x, x})[0], x), "stage 1 of 'backward'");
}

TEST(Capture, RefusesWhatTheEngineWould) {
  Variable x = random(DType::f64, {3}, "x"), constant(x.data());
  EXPECT_SAYS(refusal(constant, x), "output 0 does not require gradients");
  EXPECT_SAYS(refusal(op("exp", {x}), constant), "input 0 does not require gradients");
  EXPECT_SAYS(error_of([&] { capture_backward({}, std::array{x}); }), "needs outputs and inputs");
  EXPECT_SAYS(error_of([&] {
                capture_backward(std::array{op("exp", {x})}, std::array{x}, {.absent = {1, 0}});
              }),
              "`absent` has 2 entries for 1 outputs");
  Variable y = op("exp", {x});
  autograd::backward(std::array{y}, std::array{ones_like(y)});
  EXPECT_SAYS(refusal(y, x), "freed by an earlier backward");
  Variable changed = op("mul", {x, x});
  Tensor t = x.data();
  t.mutable_data();
  EXPECT_SAYS(refusal(changed, x), "was changed in place");
  Variable z = random(DType::f64, {3}, "z");
  auto captured = capture_backward(std::array{op("exp", {z})}, std::array{z});
  EXPECT_SAYS(error_of([&] { captured.inputs({}); }), "takes 1 cotangents, 0 are given");
}

}  // namespace
}  // namespace gradus
