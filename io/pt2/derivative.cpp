// Derivatives that a function takes inside itself: operators of gradus.torch, not of ATen.
#include "io/pt2/call.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

// A value of its own: what depends on it does so through it alone.
void variable(Call& c) { c.give(emit("clone", {c.x("x")})); }

// The sum over outputs of cotangent times d output / d input, for each input.
void gradients(Call& c) {
  const std::vector<Value> outputs = c.tensors("outputs"), cotangents = c.tensors("cotangents");
  const std::vector<Value> inputs = c.tensors("inputs");
  if (outputs.empty() || outputs.size() != cotangents.size())
    c.fail("it has {} outputs and {} cotangents", outputs.size(), cotangents.size());
  std::vector<Value> sums(inputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::vector<Value> operands{outputs[i], cotangents[i]};
    operands.insert(operands.end(), inputs.begin(), inputs.end());
    auto more = emit_all(c.world(), "grad", operands, {{"cotangent", true, {}}});
    for (size_t k = 0; k < inputs.size(); ++k) sums[k] = i == 0 ? more[k] : sums[k] + more[k];
  }
  for (const Value& sum : sums) c.give(sum);
}

constexpr RuleEntry derivative_table[] = {
    {"gradus.variable", variable},
    {"gradus.grad", gradients},
};

}  // namespace

constinit const Rules derivative_rules = derivative_table;

}  // namespace gradus::pt2
