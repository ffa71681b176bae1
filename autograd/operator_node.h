// The node of an operator: its derivative rule, run on variables.
#pragma once

#include "autograd/operators.h"
#include "autograd/saved_variable.h"

namespace gradus::autograd {

// Which operands and results a derivative rule reads, beyond their types: bit i of each.
struct RuleReads {
  uint64_t operands = 0, results = 0;
};

// Runs the rule once on types alone and sees what it reads. Operands beyond the 64th count as read.
RuleReads probe_rule(const ir::Operator& op, const ir::Attributes& attributes,
                     std::span<const ops::Value> operands, std::span<const ir::Type> results);

class OperatorNode final : public Node {
 public:
  // `values` are the operands as rules see them; what the rule reads of them and of the results is
  // kept.
  OperatorNode(const ir::Operator& op, ir::Attributes attributes,
               std::span<const VariableOperand> operands, SmallVector<ir::Type, 2> operand_types,
               SmallVector<ir::Type, 1> result_types, SmallVector<Edge, 2> edges,
               const RuleReads& reads);
  void keep_results(std::span<const Tensor> results, const RuleReads& reads);

  std::string name() const override { return std::string(op_.name); }
  bool is_traceable() const override { return true; }
  bool is_thread_safe() const override { return true; }
  void release_variables() override;

  const ir::Operator& op() const { return op_; }
  const ir::Attributes& attributes() const { return attributes_; }
  // Operands and results as its rule sees them in `world`: with what `value` makes of those that
  // were kept (called under the node's lock), by type alone where nothing was. Throws Error if they
  // were released or changed.
  void unpack(ops::World& world, FunctionRef<ops::Value(const Variable&)> value,
              SmallVector<ops::Value, 2>& operands, SmallVector<ops::Value, 2>& results) const;

 private:
  struct Operand {
    ir::Operand number;  // monostate: none or a variable
    bool is_variable = false;
    SavedVariable saved;
  };
  Variables apply(Variables&& cotangents) override;
  std::string what(const char* kind, size_t i) const;

  const ir::Operator& op_;
  const ir::Attributes attributes_;
  SmallVector<ir::Type, 2> operand_types_;
  SmallVector<ir::Type, 1> result_types_;
  SmallVector<Operand, 2> operands_;
  SmallVector<SavedVariable, 1> results_;
};

// In the place of a derivative that there is not: a run is an Error.
class RefusingNode final : public Node {
 public:
  RefusingNode(std::string name, std::string message, SmallVector<Edge, 2> edges)
      : Node(std::move(edges)), name_(std::move(name)), message_(std::move(message)) {}
  std::string name() const override { return name_; }
  bool is_thread_safe() const override { return true; }

 private:
  Variables apply(Variables&&) override { throw Error(message_); }
  std::string name_, message_;
};

}  // namespace gradus::autograd
