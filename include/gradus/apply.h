// Runs Gradus' operators on variables and records them for derivatives. The derivative rules are
// those of derivative stages.
#pragma once

#include "gradus/value.h"
#include "gradus/variable.h"

#pragma GCC visibility push(default)

namespace gradus::autograd {

// An operand: none, a variable, or a number.
using VariableOperand = std::variant<std::monostate, Variable, ir::Number>;

// The type of a tensor, or of the gradient that a node's input expects. All sizes are numbers.
ir::Type type_of(const Tensor& t);
ir::Type type_of(const InputMetadata& m);

// Runs an operator and returns its results. In gradient mode, if an operand requires a gradient,
// floating results have a node, unless the derivative of the operator is zero. The node of an
// operator without a derivative throws an Error with its name when it runs. A composition without a
// derivative rule is recorded as its nodes. Throws Error for an undefined operand, for operands
// that the type rule rejects, and for values that the kernel rejects; ResourceError if there is no
// memory.
Variables apply(const ir::Operator& op, const ir::Attributes& attributes,
                std::span<const VariableOperand> operands);
// Runs an operator by its name, with literals as attributes: apply("sum", {x}, {{"dim", 1, {}}}).
Variables apply(std::string_view op, std::initializer_list<VariableOperand> operands,
                const ir::LiteralList& attributes = {});

// Returns the sum of two variables of the same type, as the engine adds gradients.
Variable add(const Variable& a, const Variable& b);
// Returns a copy with its own memory.
Variable clone(const Variable& v);

// A world whose values are variables. Its operators run, and are recorded, at once. Derivative
// rules, compositions and the functions of gradus/rules.h therefore work on variables. Use one
// object for each thread. The object holds no values.
class VariableWorld final : public ops::World {
 public:
  ops::Value value(const Variable& v);
  // The variable of a value. Undefined for an undefined value.
  static Variable variable(const ops::Value& v);
  SmallVector<ops::Value, 2> emit(const ir::Operator& op, ir::Attributes attributes,
                                  std::span<const ops::Value> operands) override;
  // Also runs opaque functions, and `eval` of their handles.
  SmallVector<ops::Value, 2> emit_results(const ir::Operator& op, ir::Attributes attributes,
                                          std::span<const ops::Value> operands,
                                          size_t results) override;
  std::optional<bool> truth(const ops::Value& value) override;
  // In anomaly mode, nodes that are made before the result is released are named with the step.
  std::shared_ptr<void> enter_step(std::string_view loop, size_t step) override;
};

}  // namespace gradus::autograd

#pragma GCC visibility pop
