// Traces that compute nothing: the same programs as those that do.
#include "gradus/engine.h"
#include "gradus/inputs.h"
#include "gradus/read_watch.h"
#include "gradus/text.h"
#include "gradus/trace.h"
#include "tests/autograd/support.h"

namespace gradus {
namespace {

using namespace autograd::testing;
using autograd::Variable;
using autograd::Variables;
using Inputs = std::span<const Variable>;

Variable random(Sizes shape, const std::string& name) {
  return Variable(random_tensor(DType::f64, shape, name, 3, *Context::default_context()), true);
}

// A layer, and the square of its gradient by x.
Variables penalty(Inputs v) {
  Variable y = op("sum", {op("gelu", {op("matmul", {v[0], v[1]})})});
  Variable d = autograd::grad(std::array{y}, std::array{v[0]}, {}, {.create_graph = true})[0];
  return {op("sum", {op("square", {d})}), y};
}

std::string program(const TraceOptions& options) {
  Variables inputs{random({2, 3}, "x"), random({3, 4}, "w")};
  return ir::print(trace(penalty, inputs, options).trace.graph());
}

TEST(ShapeTrace, IsTheSameProgram) { EXPECT_EQ(program({.shapes_only = true}), program({})); }

// Views of one memory are one value where there are values, so that later stages are written
// differently.
TEST(ShapeTrace, GivesTheFunctionsBitsAtEveryOrder) {
  Variables inputs{random({2, 3}, "x"), random({3, 4}, "w")};
  const TraceOptions options{.order = 2, .run_backward = true, .shapes_only = true};
  verify(trace(penalty, inputs, options).trace, penalty, inputs);
}

TEST(ShapeTrace, ComputesNothing) {
  Variables inputs{random({2, 3}, "x"), random({3, 4}, "w")};
  Traced traced = trace(penalty, inputs, {.shapes_only = true});
  EXPECT_TRUE(has_no_values(traced.outputs[0].data()));
  EXPECT_EQ(traced.outputs[0].data().item(), 0);
  EXPECT_FALSE(has_no_values(inputs[0].data()));
  EXPECT_FALSE(has_no_values(trace(penalty, inputs).outputs[0].data()));
}

TEST(ShapeTrace, RefusesWhatAnotherOneLeft) {
  Variable left;
  auto leave = [&](Inputs v) {
    left = op("exp", {v[0]});
    return Variables{op("sum", {left})};
  };
  Variables inputs{random({2}, "x")};
  trace(leave, inputs, {.shapes_only = true});
  left = left.detach();
  auto use = [&](Inputs v) { return Variables{op("mul", {v[0], left})}; };
  const std::string message = error_of([&] { trace(use, inputs); });
  EXPECT_NE(message.find("of another recording, which has no values"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace gradus
