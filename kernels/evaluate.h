// Running one operator now, on tensors: constant folding, eager values, tests.
#pragma once

#include "gradus/value.h"
#include "kernels/bound_call.h"

namespace gradus::ops {

// Runs an operator on tensors: infers, binds, allocates from the context, runs. Views share
// storage with their operand. Compositions run as what they are composed of; structural operators
// are refused. An undefined tensor stands for zeros nowhere: it is refused.
// Throws Error as the type rule and the kernel do.
SmallVector<Tensor, 2> evaluate(const ir::Operator& op, const ir::Attributes& attributes,
                                std::span<const EagerOperand> operands, Context& context);
// By name, with literals: evaluate("sum", {x}, {{"dim", 1, {}}}).
SmallVector<Tensor, 2> evaluate(std::string_view op, std::initializer_list<EagerOperand> operands,
                                const LiteralList& attributes = {});

// A world whose values are tensors and whose operations run at once.
class EagerWorld final : public World {
 public:
  explicit EagerWorld(Context& context) : context_(context) {}
  Value value(Tensor tensor);
  static const Tensor& tensor(const Value& v);
  SmallVector<Value, 2> emit(const Operator& op, Attributes attributes,
                             std::span<const Value> operands) override;
  std::optional<bool> truth(const Value& value) override;

 private:
  Context& context_;
};

}  // namespace gradus::ops
