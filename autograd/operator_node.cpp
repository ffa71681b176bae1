#include "autograd/operator_node.h"

namespace gradus::autograd {

OperatorNode::OperatorNode(Ref<const OperatorCall> call, std::span<const Variable* const> operands,
                           std::span<const Tensor> results, SmallVector<Edge, 2> edges)
    : Node(std::move(edges)), call_(std::move(call)), saved_(operands.size() + results.size()) {
  for (size_t i = 0; i < operands.size(); ++i)
    if (operands[i] && call_->rule_reads_operand(i)) saved_[i] = SavedVariable::input(*operands[i]);
  for (size_t i = 0; i < results.size(); ++i)
    if (call_->rule_reads_result(i))
      saved_[operands.size() + i] = SavedVariable::output(results[i], static_cast<uint32_t>(i));
}

std::string OperatorNode::what(size_t slot) const {
  const ir::Operator& op = call_->op();
  size_t operands = call_->operands().size();
  if (slot < operands) return fmt::format("operand '{}' of '{}'", op.operand(slot).name, op.name);
  return fmt::format("result '{}' of '{}'",
                     op.results[std::min(slot - operands, op.results.size() - 1)], op.name);
}

void OperatorNode::unpack(ops::World& world, FunctionRef<ops::Value(const Variable&)> value,
                          SmallVector<ops::Value, 2>& operands,
                          SmallVector<ops::Value, 2>& results) const {
  Lock lock(*this);
  Ref<Node> self(const_cast<OperatorNode*>(this));
  auto of_type = [&](size_t slot, const ir::Type& type) {
    Variable v = saved_[slot].unpack(self, [&] { return what(slot); });
    if (v.defined()) return value(v);
    ops::Value by_type;
    by_type.world = &world;
    by_type.type = type;
    return by_type;
  };
  for (size_t i = 0; i < call_->operands().size(); ++i) {
    const OperatorCall::Operand& o = call_->operands()[i];
    operands.push_back(o.is_tensor ? of_type(i, o.type) : ops::Value());
    if (o.number) operands.back().operand = *o.number;
  }
  for (const ir::Type& type : call_->results())
    results.push_back(of_type(operands.size() + results.size(), type));
}

Variables OperatorNode::apply(Variables&& cotangents) {
  SlotMask wanted(outputs()), given(cotangents.size());
  for (size_t i = 0; i < outputs(); ++i)
    if (call_->operands()[i].is_tensor && task_should_compute_output(i)) wanted.set(i);
  for (size_t i = 0; i < cotangents.size(); ++i)
    if (cotangents[i].defined()) given.set(i);
  if (!given.any()) return Variables(outputs());
  const RuleTape& tape = call_->tape(wanted, given);
  if (!recording()) return apply_unrecorded(tape, cotangents);
  SmallVector<Variable, 8> slots(tape.slots());
  {
    Lock lock(*this);
    Ref<Node> self(this);
    for (size_t s = 0; s < saved_.size(); ++s)
      slots[s] = saved_[s].unpack(self, [&] { return what(s); });
  }
  for (size_t i = 0; i < cotangents.size(); ++i)
    slots[saved_.size() + i] = std::move(cotangents[i]);
  return tape.play(std::move(slots));
}

Variables OperatorNode::apply_unrecorded(const RuleTape& tape, Variables& cotangents) {
  SmallVector<Tensor, 8> inputs(tape.inputs());
  {
    Lock lock(*this);
    for (size_t s = 0; s < saved_.size(); ++s)
      inputs[s] = saved_[s].tensor([&] { return what(s); });
  }
  for (size_t i = 0; i < cotangents.size(); ++i)
    if (cotangents[i].defined()) inputs[saved_.size() + i] = cotangents[i].data();
  Variables gradients(outputs());
  // A recorder is told of operators one by one.
  if (!thread_state().recorder)
    if (auto tensors = tape.play_small(inputs)) {
      for (size_t i = 0; i < gradients.size(); ++i)
        if ((*tensors)[i].defined()) gradients[i] = Variable(std::move((*tensors)[i]));
      return gradients;
    }
  SmallVector<Variable, 8> slots(tape.slots());
  for (size_t s = 0; s < inputs.size(); ++s)
    if (inputs[s].defined()) slots[s] = Variable(std::move(inputs[s]));
  return tape.play(std::move(slots));
}

void OperatorNode::release_variables() {
  // What was kept dies after the lock is let go.
  SmallVector<SavedVariable, 4> gone;
  Lock lock(*this);
  for (SavedVariable& s : saved_) gone.push_back(s.release());
}

}  // namespace gradus::autograd
