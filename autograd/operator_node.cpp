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
  if (call_->device().kind == DeviceKind::cpu) share_inputs(call_->metadata(), call_->elements());
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
  Variables gradients;
  if (apply_small(tape, cotangents, gradients)) return gradients;
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

bool OperatorNode::apply_small(const RuleTape& tape, const Variables& cotangents,
                               Variables& gradients) {
  // A recorder is told of operators one by one. An allocator of the user's is not called under the
  // lock.
  if (thread_state().recorder || !tape.is_small() || !current_context()->heap()) return false;
  const size_t given = tape.given().size();
  if (given > TapeInputs::most) return false;
  TapeInputs inputs;
  // Only kernels run below: what was saved is read where it lies.
  Lock lock(*this);
  for (size_t s = 0; s < saved_.size(); ++s)
    static_cast<void>(saved_[s].tensor([&] { return what(s); }));
  for (size_t i = 0; i < given; ++i) {
    uint32_t slot = tape.given()[i];
    inputs.variables[i] = slot < saved_.size() ? nullptr : &cotangents[slot - saved_.size()];
    inputs.tensors[i] = inputs.variables[i] ? &inputs.variables[i]->data()
                                            : &saved_[slot].tensor([&] { return what(slot); });
  }
  if (!recording()) return play_small(tape, inputs, gradients);
  auto edge_of = [&](uint32_t slot) {
    return slot < saved_.size() ? saved_[slot].edge(Ref<Node>(this))
                                : cotangents[slot - saved_.size()].gradient_edge();
  };
  return play_joined(call_, tape, inputs, edge_of, gradients);
}

void OperatorNode::release_variables() {
  // What was kept dies after the lock is let go.
  SmallVector<SavedVariable, 4> gone;
  Lock lock(*this);
  for (SavedVariable& s : saved_) gone.push_back(s.release());
}

}  // namespace gradus::autograd
