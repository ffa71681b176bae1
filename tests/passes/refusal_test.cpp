// What has no derivative is refused, with its name and place.
#include <gtest/gtest.h>

#include "gradus/passes.h"
#include "gradus/rules.h"
#include "gradus/table.h"
#include "gradus/text.h"
#include "ir/passes/graph_world.h"
#include "ops/by_name.h"

namespace gradus {
namespace {

// An operator with a floating result and no rule, as a user's own may be.
struct Ruleless {
  static constexpr std::string_view name = "ruleless";
  static constexpr std::array<std::string_view, 1> inputs{"x"};
  static constexpr auto no_batch_rule = "it has no derivative";
  static void infer(ir::InferCall& call) { call.out.push_back(call.tensor(0)); }
  static void bind(ops::BindCall&) {}
};

// y = ruleless(sin(x)), or sin(x) alone with the ruleless value beside the path.
ir::Graph program(bool on_the_path) {
  ir::Graph g;
  g.name = "g";
  g.stages.resize(1);
  ir::ValueId x = g.add_value(ir::Type(DType::f64, {ir::Dim(3)}), "x", 0);
  g.stages[0].inputs = {x};
  ir::GraphWorld world(g, 0, g.stages[0].nodes);
  ops::Value s = ops::unary("sin", world.value(x));
  static constexpr ir::Operator op = ops::operator_of<Ruleless>();
  ops::Value r = world.emit(op, op.read({}), std::array{s})[0];
  g.stages[0].results = {{"y", ir::GraphWorld::id_of(on_the_path ? r : s)}};
  return g;
}

// SPEC D3
TEST(Refusal, OfAnOperatorWithoutARule) {
  try {
    ir::differentiate(program(true), {.order = 1});
    FAIL() << "no Error was thrown";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("'ruleless' has no derivative"), std::string::npos) << e.message();
  }
  EXPECT_NO_THROW(ir::differentiate(program(false), {.order = 1}));
}

// SPEC D3
TEST(Refusal, OfAnOrderThatIsNotThere) {
  ir::Module module = ir::parse(
      "graph g {\n  stage 0 (%x: f64[2]) {\n    %y = polygamma(%x) {n = 29}\n    return %y\n  "
      "}\n}\n",
      "g.ir");
  EXPECT_NO_THROW(ir::differentiate(module.program(), {.order = 1}));
  try {
    ir::differentiate(module.program(), {.order = 2});
    FAIL() << "no Error was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.message().substr(0, 10), "g.ir:3:10:") << e.message();
    EXPECT_NE(e.message().find("polygamma"), std::string::npos) << e.message();
  }
}

}  // namespace
}  // namespace gradus
