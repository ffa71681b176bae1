#include "autograd/operator_node.h"

#include <algorithm>

namespace gradus::autograd {

OperatorNode::OperatorNode(const Ref<const OperatorCall>& call,
                           std::span<const Variable* const> operands,
                           std::span<const Tensor> results, SmallVector<Edge, 2>&& edges)
    : TapedNode(call, call->plan(), std::move(edges)) {
  for (uint32_t slot : plan_.kept) {
    if (slot < operands.size() && operands[slot]->is_inference()) refuse_inference();
    kept_.emplace_back(slot < operands.size() ? operands[slot]->data()
                                              : results[slot - operands.size()]);
  }
  if (call->device().kind == DeviceKind::cpu) share_inputs(plan_.inputs);
}

void OperatorNode::visit(RuleTape::Told told) const {
  SmallVector<uint32_t, 4> slots;
  for (const OperatorCall::Operand& o : call().operands())
    slots.push_back(o.is_tensor ? static_cast<uint32_t>(slots.size()) : RuleTape::none);
  told(call(), slots);
}

const RuleTape& OperatorNode::tape(std::span<const bool> wanted,
                                   std::span<const bool> arrived) const {
  return call().tape(wanted, arrived);
}

Edge OperatorNode::edge_of(uint32_t slot) const {
  const size_t operands = call().operands().size();
  if (slot < operands) return next_edge(slot);
  const auto k = static_cast<uint32_t>(slot - operands);
  if (!call().results()[k].is_floating()) return {};
  return {Ref<Node>(const_cast<OperatorNode*>(this)), k};
}

std::string OperatorNode::what(uint32_t slot) const {
  const ir::Operator& op = call().op();
  const size_t operands = call().operands().size();
  if (slot < operands) return fmt::format("operand '{}' of '{}'", op.operand(slot).name, op.name);
  return fmt::format("result '{}' of '{}'",
                     op.results[std::min(slot - operands, op.results.size() - 1)], op.name);
}

}  // namespace gradus::autograd
