// The node of an operator: its derivative rule, run on variables.
#pragma once

#include "autograd/taped_node.h"

namespace gradus::autograd {

class OperatorNode final : public TapedNode {
 public:
  // Keeps what the rule reads of the operands (one pointer each, null for a number or none) and of
  // the results.
  OperatorNode(const Ref<const OperatorCall>& call, std::span<const Variable* const> operands,
               std::span<const Tensor> results, SmallVector<Edge, 2>&& edges);

  std::string name() const override { return std::string(call().op().name); }
  void visit(RuleTape::Told told) const override;
  const RuleTape& tape(std::span<const bool> wanted, std::span<const bool> arrived) const override;

 private:
  const OperatorCall& call() const { return static_cast<const OperatorCall&>(*owner_); }
  Edge edge_of(uint32_t slot) const override;
  std::string what(uint32_t slot) const override;
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
