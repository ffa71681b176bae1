// Gradus' operators on variables: run now, recorded for the derivative. The derivative rules are
// those of the symbolic stages.
#pragma once

#include "gradus/value.h"
#include "gradus/variable.h"

#pragma GCC visibility push(default)

namespace gradus::autograd {

// An operand: a variable, a number, or none.
using VariableOperand = std::variant<std::monostate, Variable, ir::Number>;

// The type of a tensor, or of what arrives at a node's input that is known.
ir::Type type_of(const Tensor& t);
ir::Type type_of(const InputMetadata& m);

// Runs an operator; throws as ops::evaluate does. Where gradient mode is on and an operand requires
// a gradient, floating results have a node. An operator without a derivative gives one whose run is
// an Error that names it; compositions without a rule are recorded as what they are composed of.
Variables apply(const ir::Operator& op, const ir::Attributes& attributes,
                std::span<const VariableOperand> operands);
// By name, with literals: apply("sum", {x}, {{"dim", 1, {}}}).
Variables apply(std::string_view op, std::initializer_list<VariableOperand> operands,
                const ir::LiteralList& attributes = {});

// The sum of two variables of one type, as the engine adds up gradients.
Variable add(const Variable& a, const Variable& b);
// The same values in memory of their own.
Variable clone(const Variable& v);

// A world whose values are variables and whose operations run (and are recorded) at once: rules,
// compositions and gradus/rules.h work on variables by it. One per thread of use; holds nothing.
class VariableWorld final : public ops::World {
 public:
  ops::Value value(const Variable& v);
  // An undefined value gives an undefined variable.
  static Variable variable(const ops::Value& v);
  SmallVector<ops::Value, 2> emit(const ir::Operator& op, ir::Attributes attributes,
                                  std::span<const ops::Value> operands) override;
  // Opaque functions run, and so does `eval` of their handles.
  SmallVector<ops::Value, 2> emit_results(const ir::Operator& op, ir::Attributes attributes,
                                          std::span<const ops::Value> operands,
                                          size_t results) override;
  std::optional<bool> truth(const ops::Value& value) override;
  // Nodes made meanwhile are named with the step in anomaly mode.
  std::shared_ptr<void> enter_step(std::string_view loop, size_t step) override;
};

}  // namespace gradus::autograd

#pragma GCC visibility pop
