// Loops and branches of C++ functions, traced and run at once.
#include "gradus/control_flow.h"
#include "gradus/inputs.h"
#include "gradus/text.h"
#include "tests/autograd/support.h"

namespace gradus {
namespace {

using namespace autograd::testing;
using autograd::Variable;
using autograd::Variables;
using Inputs = std::span<const Variable>;

Variable number_like(Sizes shape, const std::string& name) {
  return Variable(random_tensor(DType::f64, shape, name, 5, *Context::default_context()), true);
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// h = tanh(w h + x), of (w, h, xs); `w` is captured.
Variables rollout(Inputs v) {
  const Variable w = v[0];
  auto step = [&](Inputs in) {
    Variable h = op("tanh", {op("add", {op("matmul", {w, in[0]}), in[1]})});
    return Variables{h, op("sum", {op("square", {h})})};
  };
  Variables out = scan(step, v.subspan(1, 1), v.subspan(2, 1));
  return {op("add", {op("sum", {out[0]}), op("sum", {out[1]})})};
}

// The same, step after step.
Variables by_hand(Inputs v) {
  Variable h = v[1], total;
  for (int64_t t = 0; t < 4; ++t) {
    h = op("tanh", {op("add", {op("matmul", {v[0], h}),
                               op("select", {v[2]}, {{"dim", 0, {}}, {"index", t, {}}})})});
    Variable y = op("sum", {op("square", {h})});
    total = total.defined() ? op("add", {total, y}) : y;
  }
  return {op("add", {op("sum", {h}), total})};
}

Variables operands_of_rollout() {
  return {number_like({3, 3}, "w"), number_like({3}, "h"), number_like({4, 3}, "xs")};
}

TEST(ControlFlowTrace, AScanIsOneInstructionWithEveryDerivative) {
  const Variables inputs = operands_of_rollout();
  for (const bool shapes_only : {false, true}) {
    const TraceOptions options{.order = 2, .run_backward = true, .shapes_only = shapes_only};
    const Trace traced = trace(rollout, inputs, options).trace;
    ir::Graph first = traced.graph();
    first.stages.resize(1);
    EXPECT_EQ(count_of(ir::print(first), "scan("), 1u);
    EXPECT_EQ(count_of(ir::print(traced.graph()), "stage 2"), 1u);
    const Variable y = traced(inputs)[0], expected = by_hand(inputs)[0];
    EXPECT_NEAR(y.data().item(), expected.data().item(), 1e-12);
    for (const Variable& x : inputs) {
      auto gradient = [&](const Variable& of) {
        return autograd::grad(std::array{of}, std::array{x}, {}, {.keep_graph = true})[0]
            .data()
            .to_doubles();
      };
      const auto got = gradient(y), wanted = gradient(expected);
      ASSERT_EQ(got.size(), wanted.size());
      for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-12);
    }
  }
}

TEST(ControlFlowTrace, AScanRunsStepByStepOutsideOfATrace) {
  const Variables inputs = operands_of_rollout();
  EXPECT_NEAR(rollout(inputs)[0].data().item(), by_hand(inputs)[0].data().item(), 1e-12);
}

// What a backward pass in anomaly mode says of the first gradient that is not a number.
std::string anomaly_of(const VariableFunction& f, const Variable& x) {
  autograd::ThreadState state = autograd::thread_state();
  state.anomaly = autograd::AnomalyMode::nan_and_infinity;
  state.place = [] { return "model.cpp:12"; };
  autograd::StateGuard guard(std::move(state));
  return error_of([&] { op("sum", {f(std::array{x})[0]}).backward(); });
}

// SPEC L8
TEST(ControlFlowTrace, AnAnomalyNamesTheStepsThatItIsIn) {
  const Variable xs = leaf({1, 4, 0, 1});
  auto sums = [](bool reverse) {
    return [reverse](Inputs v) {
      auto step = [](Inputs in) { return Variables{op("add", {in[0], op("sqrt", {in[1]})})}; };
      return scan(step, std::array{scalar(0, false)}, v, {.reverse = reverse});
    };
  };
  const std::string wanted =
      "'sqrt' returned an infinity in gradient 0\n  'sqrt' was made at model.cpp:12, ";
  for (const bool reverse : {false, true})
    EXPECT_EQ(anomaly_of(sums(reverse), xs), wanted + "step 2 of 'scan'");

  auto outer = [&](Inputs v) {
    auto step = [&](Inputs in) {
      return Variables{op("add", {in[0], sums(false)(in.subspan(1))[0]})};
    };
    return scan(step, std::array{scalar(0, false)}, v);
  };
  const Variable rows = Variable(
      Tensor::from(DType::f64, std::array<int64_t, 2>{2, 2}, std::array<double, 4>{1, 4, 9, 0}),
      true);
  EXPECT_EQ(anomaly_of(outer, rows), wanted + "step 1 of 'scan', step 1 of 'scan'");

  auto growing = [](Inputs v) {
    auto more = [](Inputs in) { return Variables{op("lt", {in[0], ir::Number::of(4.0)})}; };
    auto step = [&](Inputs in) {
      const Variable off = op("square", {op("sub", {in[0], ir::Number::of(2.0)})});
      return Variables{op("add", {in[0], ir::Number::of(1.0)}),
                       op("add", {in[1], op("sqrt", {op("mul", {off, v[0]})})})};
    };
    const std::array zeros{scalar(0, false), scalar(0, false)};
    return Variables{while_loop(more, step, zeros)[1]};
  };
  EXPECT_EQ(anomaly_of(growing, scalar(3)), wanted + "step 2 of 'while'");
  // Afterwards places are what they were.
  EXPECT_EQ(autograd::thread_state().place, nullptr);
}

TEST(ControlFlowTrace, ABranchTakesWhatEitherReads) {
  const Variables inputs{number_like({3}, "x"), number_like({3}, "a"), number_like({3}, "b")};
  for (const double limit : {-100.0, 100.0}) {
    auto f = [&](Inputs v) {
      const Variable p = op("lt", {op("sum", {v[0]}), ir::Number::of(limit)});
      auto then = [&](Inputs in) { return Variables{op("mul", {in[0], v[1]})}; };
      auto otherwise = [&](Inputs in) { return Variables{op("sin", {op("add", {in[0], v[2]})})}; };
      return Variables{op("sum", {cond(p, then, otherwise, v.first(1))[0]})};
    };
    const Trace traced = trace(f, inputs, {.shapes_only = true}).trace;
    EXPECT_EQ(count_of(ir::print(traced.graph()), "if("), 1u);
    EXPECT_NEAR(f(inputs)[0].data().item(), Trace(traced)(inputs)[0].data().item(), 1e-12);
  }
}

TEST(ControlFlowTrace, ACarryKeepsItsType) {
  const Variables inputs = operands_of_rollout();
  auto sum = [](Inputs in) { return Variables{op("sum", {in[0]})}; };
  const std::string message = error_of([&] { scan(sum, Inputs(inputs).subspan(1, 1), {}, {3}); });
  EXPECT_NE(message.find("f64[3]"), std::string::npos) << message;
  EXPECT_NE(message.find("f64[]"), std::string::npos) << message;
}

// Of each row x of xs: the sum of tanh(w x); `w` is captured.
Variables rows_of(Inputs v) {
  auto one = [&](Inputs in) {
    return Variables{op("sum", {op("tanh", {op("matmul", {v[0], in[0]})})})};
  };
  return {op("sum", {op("square", {vmap(one, v.subspan(1, 1), {true})[0]})})};
}
Variables rows_by_hand(Inputs v) {
  Variable total;
  for (int64_t t = 0; t < 4; ++t) {
    const Variable x = op("select", {v[1]}, {{"dim", 0, {}}, {"index", t, {}}});
    Variable y = op("square", {op("sum", {op("tanh", {op("matmul", {v[0], x})})})});
    total = total.defined() ? op("add", {total, y}) : y;
  }
  return {total};
}

TEST(ControlFlowTrace, AFunctionOfOneIsOneOfMany) {
  const Variables inputs{number_like({3, 3}, "w"), number_like({4, 3}, "xs")};
  const Trace traced = trace(rows_of, inputs, {.order = 2, .run_backward = true}).trace;
  ir::Graph first = traced.graph();
  first.stages.resize(1);
  EXPECT_EQ(count_of(ir::print(first), " tanh("), 1u);
  const Variable expected = rows_by_hand(inputs)[0];
  for (const Variable& y : {rows_of(inputs)[0], Trace(traced)(inputs)[0]}) {
    EXPECT_NEAR(y.data().item(), expected.data().item(), 1e-12);
    for (const Variable& x : inputs) {
      auto gradient = [&](const Variable& of) {
        return autograd::grad(std::array{of}, std::array{x}, {}, {.keep_graph = true})[0]
            .data()
            .to_doubles();
      };
      const auto got = gradient(y), wanted = gradient(expected);
      ASSERT_EQ(got.size(), wanted.size());
      for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-12);
    }
  }
}

TEST(ControlFlowTrace, AMappedBodyTakesItsOperandsAlone) {
  const Variable a = number_like({3}, "a"), b = number_like({3}, "b");
  auto f = [&](Inputs in) { return Variables{op("mul", {in[0], a})}; };
  const TracedBody body =
      trace_body(f, std::array{autograd::type_of(Tensor::scalar(DType::f64, 1))}, "f");
  EXPECT_NE(error_of([&] {
              vmap(body, std::array{a, b}, {true, true});
            }).find("it takes 1 operands, and has 2"),
            std::string::npos);
  EXPECT_EQ(vmap(body, std::array{b}, {true})[0].data().shape().size(), 2u);
}

// What a solver kept is looked at for changes, as any operator's operands are.
TEST(ControlFlowTrace, AnEquationsOperandsMustNotChange) {
  const Variable k = scalar(4);
  auto residual = [](Inputs in) { return Variables{op("sub", {op("square", {in[0]}), in[1]})}; };
  const ir::Type type = autograd::type_of(k.data());
  const TracedBody body = trace_body(residual, std::array{type, type}, "f");
  const Variable y = root(body, scalar(1, false), std::array{k});
  EXPECT_NEAR(y.data().item(), 2, 1e-9);
  Tensor alias = k.data();
  alias.mutable_data();
  EXPECT_NE(error_of([&] { y.backward(); }).find("was changed in place"), std::string::npos);
}

TEST(ControlFlowTrace, WhatIsMappedHasOneSize) {
  const Variables inputs{number_like({3}, "a"), number_like({4}, "b"), number_like({}, "c")};
  auto f = [](Inputs in) { return Variables{op("sin", {in[0]})}; };
  auto message = [&](Inputs in, const std::vector<bool>& mapped) {
    return error_of([&] { vmap(f, in, mapped); });
  };
  const Inputs all(inputs);
  EXPECT_NE(message(all.first(2), {true, true}).find("operand 1 has 4"), std::string::npos);
  EXPECT_NE(message(all.first(1), {false}).find("no operand is mapped"), std::string::npos);
  EXPECT_NE(message(all.last(1), {true}).find("no dimension to map over"), std::string::npos);
  EXPECT_NE(message(all.first(2), {true}).find("2 operands have 1 marks"), std::string::npos);
}

}  // namespace
}  // namespace gradus
