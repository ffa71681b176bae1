// Facts that operators say of themselves, held against what their calls do.
#include <gtest/gtest.h>

#include "gradus/bind.h"
#include "kernels/bound_call.h"
#include "tests/property/samples.h"

namespace gradus::property {
namespace {

// Whether a result of one of the program's calls is a view.
bool gives_view(const ir::Graph& program, std::span<const Tensor> inputs) {
  std::vector<const Layout*> layouts(program.values.size());
  const ir::Stage& stage = program.stages[0];
  for (size_t i = 0; i < inputs.size(); ++i)
    layouts[index_of(stage.inputs[i])] = &inputs[i].layout();
  bool view = false;
  for (const ir::Node& node : stage.nodes) {
    std::vector<ops::CallOperand> operands;
    for (const ir::Operand& o : node.operands) {
      ops::CallOperand& call = operands.emplace_back();
      call.number = std::get_if<ir::Number>(&o);
      if (const ir::ValueId v = value_in(o); v != ir::no_value) call.layout = layouts[index_of(v)];
    }
    auto bound = ops::bound_call(*node.op, node.attributes, operands);
    if (!bound) continue;
    for (const ops::BindCall::View& v : bound->views) view |= v.operand >= 0;
  }
  return view;
}

// A memory budget takes what is a view without saying so for memory of its own.
TEST(Facts, OperatorsThatGiveViewsSaySo) {
  int views = 0;
  for (const Sample& s : all_samples()) {
    auto program = s.program(DType::f64);
    if (!program || program->stages[0].nodes.size() != 1 || !s.op->bind || s.op->data_sized)
      continue;
    if (!gives_view(*program, s.inputs(DType::f64, 1))) continue;
    EXPECT_TRUE(s.op->traits.may_be_view) << s.text(DType::f64);
    ++views;
  }
  EXPECT_GT(views, 15);
}

}  // namespace
}  // namespace gradus::property
