// Walking a program's nodes with variables.
#pragma once

#include "autograd/opaque_function.h"
#include "autograd/operators.h"
#include "ops/opaque.h"
#include "tests/corpus/walk.h"

namespace gradus::corpus {

struct VariableValues {
  using Value = autograd::Variable;
  static bool defined(const Value& v) { return v.defined(); }
  static Value of(Tensor t) { return Value(std::move(t)); }
  static auto run(const ir::Operator& op, const ir::Attributes& attributes,
                  std::span<const autograd::VariableOperand> operands) {
    return autograd::apply(op, attributes, operands);
  }
};

class VariableWalk final : public Walk<VariableValues> {
 public:
  using Walk::Walk;

 private:
  // Functions take part as whoever calls them with variables does: no handles are needed.
  void run_opaque(const ir::Node& node) override {
    const auto& attributes = ops::attributes_as<ops::CppOp::Attr>(node.attributes);
    auto function =
        std::dynamic_pointer_cast<const autograd::CppFunction>(ops::find_function(attributes.name));
    autograd::Variables operands;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      ir::ValueId v = value_in(node.operands[i]);
      operands.push_back(defined(v) ? at(v) : zeros(graph()[v].type));
      if (!ops::requires_grad(node.attributes, i, graph()[v].type))
        operands.back() = operands.back().detach();
    }
    auto results = function->call(operands);
    for (size_t i = 0; i < results.size(); ++i) at(node.results[i]) = results[i];
  }
};

}  // namespace gradus::corpus
