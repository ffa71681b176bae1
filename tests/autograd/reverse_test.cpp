// One rule in several worlds: what the engine plays of a recorded rule, with a node for all of it
// and with one for each step, has the bits of the rule run at once.
#include "ops/reverse.h"

#include <algorithm>

#include "gradus/engine.h"
#include "gradus/inputs.h"
#include "gradus/registry.h"
#include "tests/autograd/support.h"
#include "tests/property/samples.h"

using namespace gradus;
using namespace gradus::autograd;
using namespace gradus::autograd::testing;

namespace {

// A call of an operator on leaves.
class Call {
 public:
  Call(const ir::Node& node, std::span<const Tensor> inputs) : op_(*node.op), node_(node) {
    size_t next = 0;
    for (const ir::Operand& o : node.operands) {
      VariableOperand& operand = operands_.emplace_back();
      if (const auto* number = std::get_if<ir::Number>(&o)) operand = *number;
      if (!std::holds_alternative<ir::ValueId>(o)) continue;
      const Tensor& t = inputs[next++];
      Variable v(t, is_floating(t.dtype()));
      operand = v;
      if (v.requires_grad()) leaves_.push_back(v);
    }
    results_ = apply(op_, node.attributes, operands_);
    for (const Variable& y : results_) {
      Variable& dy = cotangents_.emplace_back();
      if (!y.requires_grad()) continue;
      dy = Variable(random_tensor(y.dtype(), y.shape(), op_.name, cotangents_.size(),
                                  *Context::default_context()));
    }
  }

  const Variables& cotangents() const { return cotangents_; }
  bool differentiable() const { return std::ranges::any_of(cotangents_, &Variable::defined); }

  Variables by_engine(const Variables& cotangents, bool create_graph) const {
    Variables roots, seeds;
    for (size_t k = 0; k < results_.size(); ++k) {
      if (!cotangents[k].defined()) continue;
      roots.push_back(results_[k]);
      seeds.push_back(cotangents[k]);
    }
    return grad(roots, leaves_, seeds, {.keep_graph = true, .create_graph = create_graph});
  }

  Variables by_rule(const Variables& cotangents) const {
    GradModeGuard mode(GradMode::no_grad);
    VariableWorld world;
    ops::PullBack at;
    for (const VariableOperand& o : operands_) {
      const auto* v = std::get_if<Variable>(&o);
      const auto* number = std::get_if<ir::Number>(&o);
      at.operand(v        ? world.value(*v)
                 : number ? ops::Value{nullptr, *number, {}, {}}
                          : ops::Value(),
                 v && v->requires_grad());
    }
    for (size_t k = 0; k < results_.size(); ++k)
      at.result(world.value(results_[k]),
                cotangents[k].defined() ? world.value(cotangents[k]) : ops::Value());
    ops::VjpCall rule = at.call(world, op_, node_.attributes);
    Variables gradients;
    for (size_t i = 0; i < operands_.size(); ++i) {
      const auto* v = std::get_if<Variable>(&operands_[i]);
      if (!v || !v->requires_grad()) continue;
      const ops::Value& g = rule.gradients[i];
      gradients.push_back(g.defined() ? VariableWorld::variable(ops::fit(g, rule.x_type(i)))
                                      : Variable());
    }
    return gradients;
  }

 private:
  const ir::Operator& op_;
  const ir::Node& node_;
  SmallVector<VariableOperand, 4> operands_;
  Variables results_, leaves_, cotangents_;
};

void expect_equal(const Variables& a, const Variables& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined()) << "gradient " << i;
    if (a[i].defined()) {
      EXPECT_TRUE(bitwise_equal(a[i].data(), b[i].data())) << "gradient " << i;
    }
  }
}

void expect_the_rules_bits(const Call& call, const Variables& cotangents) {
  const Variables expected = call.by_rule(cotangents);
  expect_equal(call.by_engine(cotangents, false), expected);
  expect_equal(call.by_engine(cotangents, true), expected);
  ThreadState state = thread_state();
  state.anomaly = AnomalyMode::nan;
  StateGuard step_by_step(std::move(state));
  expect_equal(call.by_engine(cotangents, true), expected);
}

TEST(Rules, GiveTheSameBitsRecordedAndRun) {
  size_t calls = 0;
  for (const property::Sample& sample : property::all_samples()) {
    if (!sample.op->vjp || sample.op->traits.zero_gradient) continue;
    for (DType dtype : {DType::f32, DType::f64}) {
      auto program = sample.program(dtype);
      if (!program || property::data_decides_a_size(*program)) continue;
      SCOPED_TRACE(sample.text(dtype));
      const ir::Node& node = program->stages[0].nodes.back();
      if (!node.op->has_vjp(node.attributes)) continue;
      const Call call(node, sample.inputs(dtype, 3));
      if (!call.differentiable()) continue;
      ++calls;
      expect_the_rules_bits(call, call.cotangents());
      // Each cotangent alone: rules look at which there are.
      for (size_t k = 0; k < call.cotangents().size() && call.cotangents().size() > 1; ++k) {
        if (!call.cotangents()[k].defined()) continue;
        Variables alone(call.cotangents().size());
        alone[k] = call.cotangents()[k];
        expect_the_rules_bits(call, alone);
      }
    }
  }
  EXPECT_GT(calls, 300u);
}

struct PullBacks : public ::testing::Test {
  ops::TypeWorld world;
  const ir::Operator& mul = *ops::find("mul");
  const ir::Attributes attributes = mul.read({});
  const ir::Type narrow{DType::f32, {3}}, wide{DType::f64, {2, 3}};
};

TEST_F(PullBacks, GivesWhatIsWanted) {
  ops::PullBack at;
  at.operand(world.input(narrow), true);
  at.operand(world.input(wide), false);
  at.result(world.input(wide), world.input(wide));
  ops::VjpCall call = at.call(world, mul, attributes);
  ASSERT_EQ(call.gradients.size(), 2u);
  EXPECT_EQ(call.gradients[0].type, wide);
  EXPECT_EQ(ops::fit(call.gradients[0], narrow).type, narrow);
  EXPECT_FALSE(call.gradients[1].defined());
}

TEST_F(PullBacks, DropsWhatIsNotWanted) {
  ir::Operator unruly = mul;
  unruly.vjp = [](ops::VjpCall& d) { d.gradients[0] = d.gradients[1] = d.dy(); };
  ops::PullBack at;
  at.operand(world.input(wide), false);
  at.operand(world.input(wide), true);
  at.result(world.input(wide), world.input(wide));
  ops::VjpCall call = at.call(world, unruly, attributes);
  EXPECT_FALSE(call.gradients[0].defined());
  EXPECT_TRUE(call.gradients[1].defined());
}

TEST_F(PullBacks, CallsNoRuleWhereNothingArrivesOrIsWanted) {
  ir::Operator unruly = mul;
  unruly.vjp = [](ops::VjpCall&) { FAIL() << "the rule was called"; };
  for (bool wanted : {false, true}) {
    ops::PullBack at;
    at.operand(world.input(narrow), wanted);
    at.result(world.input(wide), wanted ? ops::Value() : world.input(wide));
    for (const ops::Value& g : at.call(world, unruly, attributes).gradients)
      EXPECT_FALSE(g.defined());
  }
}

TEST_F(PullBacks, RefusesANumberForAGradient) {
  ir::Operator unruly = mul;
  unruly.vjp = [](ops::VjpCall& d) { d.gradients[0] = ops::Value::number(0.0); };
  ops::PullBack at;
  at.operand(world.input(narrow), true);
  at.result(world.input(narrow), world.input(narrow));
  EXPECT_THROW(static_cast<void>(at.call(world, unruly, attributes)), InternalError);
}

}  // namespace
