// The node of an operator: its derivative rule, run on variables.
#pragma once

#include "autograd/saved_variable.h"
#include "autograd/tape_node.h"

namespace gradus::autograd {

class OperatorNode final : public Node {
 public:
  // Keeps what the rule reads of the operands (one pointer each, null for a number or none) and of
  // the results.
  OperatorNode(Ref<const OperatorCall> call, std::span<const Variable* const> operands,
               std::span<const Tensor> results, SmallVector<Edge, 2> edges);

  std::string name() const override { return std::string(call_->op().name); }
  bool is_traceable() const override { return true; }
  bool is_thread_safe() const override { return true; }
  void release_variables() override;
  void prefetch_values() const override;

  const ir::Operator& op() const { return call_->op(); }
  const ir::Attributes& attributes() const { return call_->attributes(); }
  // Operands and results as its rule sees them in `world`: with what `value` makes of those that
  // were kept (called under the node's lock), by type alone where nothing was. Throws Error if they
  // were released or changed.
  void unpack(ops::World& world, FunctionRef<ops::Value(const Variable&)> value,
              SmallVector<ops::Value, 2>& operands, SmallVector<ops::Value, 2>& results) const;

 private:
  Variables apply(Variables&& cotangents) override;
  Variables apply_any(Variables&& cotangents);
  // Small values, without variables in between. False if it cannot.
  bool apply_small(const TapeRun& run, const Variables& cotangents, Variables& gradients);
  // A slot of the rule as it was; undefined if it is not kept. The lock is held.
  Variable unpack(size_t slot) const;
  // Where the gradient of a slot goes.
  Edge edge_of(size_t slot) const;
  const Tensor& value_at(size_t place) const;
  std::string what(size_t slot) const;

  const Ref<const OperatorCall> call_;
  SmallVector<KeptValue, 2> kept_;  // as call_->kept(), until they are let go
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
