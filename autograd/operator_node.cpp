#include "autograd/operator_node.h"

#include <algorithm>

namespace gradus::autograd {

OperatorNode::OperatorNode(Ref<const OperatorCall> call, std::span<const Variable* const> operands,
                           std::span<const Tensor> results, SmallVector<Edge, 2> edges)
    : Node(std::move(edges)), call_(std::move(call)) {
  for (uint32_t slot : call_->kept()) {
    if (slot < operands.size() && operands[slot]->is_inference()) refuse_inference();
    kept_.emplace_back(slot < operands.size() ? operands[slot]->data()
                                              : results[slot - operands.size()]);
  }
  if (call_->device().kind == DeviceKind::cpu) share_inputs(call_->node_inputs());
}

std::string OperatorNode::what(size_t slot) const {
  const ir::Operator& op = call_->op();
  size_t operands = call_->operands().size();
  if (slot < operands) return fmt::format("operand '{}' of '{}'", op.operand(slot).name, op.name);
  return fmt::format("result '{}' of '{}'",
                     op.results[std::min(slot - operands, op.results.size() - 1)], op.name);
}

const Tensor& OperatorNode::value_at(size_t place) const {
  auto name = [&] { return what(call_->kept()[place]); };
  if (place >= kept_.size()) refuse_freed(name());
  return kept_[place].get(name);
}

Edge OperatorNode::edge_of(size_t slot) const {
  const size_t operands = call_->operands().size();
  if (slot < operands) return next_edge(slot);
  if (!call_->results()[slot - operands].is_floating()) return {};
  return {Ref<Node>(const_cast<OperatorNode*>(this)), static_cast<uint32_t>(slot - operands)};
}

Variable OperatorNode::unpack(size_t slot) const {
  auto kept = call_->kept();
  auto place = std::ranges::find(kept, slot);
  if (place == kept.end()) return {};
  const Tensor& value = value_at(static_cast<size_t>(place - kept.begin()));
  Edge edge = edge_of(slot);
  if (edge.valid() && slot < call_->operands().size())
    if (Variable leaf = edge.node->accumulates_into(); leaf.defined()) return leaf;
  return edge.valid() ? Variable(value, std::move(edge)) : Variable(value);
}

void OperatorNode::unpack(ops::World& world, FunctionRef<ops::Value(const Variable&)> value,
                          SmallVector<ops::Value, 2>& operands,
                          SmallVector<ops::Value, 2>& results) const {
  Lock lock(*this);
  auto of_type = [&](size_t slot, const ir::Type& type) {
    Variable v = unpack(slot);
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
  constexpr size_t most = 64;
  if (outputs() > most || cotangents.size() > most) return apply_any(std::move(cotangents));
  uint64_t arrived = 0;
  for (size_t i = 0; i < cotangents.size(); ++i)
    if (cotangents[i].defined()) arrived |= uint64_t{1} << i;
  if (arrived == 0) return Variables(outputs());
  const TapeRun& run = call_->run_of(task_outputs(), arrived);
  Variables gradients;
  if (run.small && apply_small(run, cotangents, gradients)) return gradients;
  return apply_any(std::move(cotangents));
}

Variables OperatorNode::apply_any(Variables&& cotangents) {
  SlotMask wanted(outputs()), given(cotangents.size());
  for (size_t i = 0; i < outputs(); ++i)
    if (call_->operands()[i].is_tensor && task_should_compute_output(i)) wanted.set(i);
  for (size_t i = 0; i < cotangents.size(); ++i)
    if (cotangents[i].defined()) given.set(i);
  if (!given.any()) return Variables(outputs());
  const RuleTape& tape = call_->tape(wanted, given);
  SmallVector<Variable, 8> slots(tape.slots());
  const size_t values = call_->operands().size() + call_->results().size();
  {
    Lock lock(*this);
    for (uint32_t slot : call_->kept()) slots[slot] = unpack(slot);
  }
  for (size_t i = 0; i < cotangents.size(); ++i) slots[values + i] = std::move(cotangents[i]);
  return tape.play(std::move(slots));
}

bool OperatorNode::apply_small(const TapeRun& run, const Variables& cotangents,
                               Variables& gradients) {
  // A recorder is told of operators one by one. An allocator of the user's is not called under the
  // lock.
  const ThreadState& state = thread_state();
  Context& context = *current_context();
  if (state.recorder || !context.heap()) return false;
  TapeInputs inputs;
  // Only kernels run below: what was saved is read where it lies.
  Lock lock(*this);
  for (size_t place = 0; place < call_->kept().size(); ++place) static_cast<void>(value_at(place));
  for (size_t i = 0; i < run.sources.size(); ++i) {
    const uint32_t source = run.sources[i];
    const bool arrives = (source & TapeRun::cotangent) != 0;
    inputs.variables[i] = arrives ? &cotangents[source & ~TapeRun::cotangent] : nullptr;
    inputs.tensors[i] = arrives ? &inputs.variables[i]->data() : &kept_[source].data;
  }
  const RuleTape& tape = *run.tape;
  if (state.mode != GradMode::enabled) return play_small(tape, inputs, context, gradients);
  const size_t values = call_->operands().size() + call_->results().size();
  auto edge_at = [&](uint32_t slot) {
    return slot < values ? edge_of(slot) : cotangents[slot - values].gradient_edge();
  };
  return play_joined(call_, tape, inputs, context, edge_at, gradients);
}

void OperatorNode::prefetch_values() const {
  Lock lock(*this);  // another backward may let them go
  for (const KeptValue& k : kept_) k.data.prefetch();
}

void OperatorNode::release_variables() {
  SmallVector<KeptValue, 2> gone;  // dies after the lock is let go
  Lock lock(*this);
  gone = std::move(kept_);
}

}  // namespace gradus::autograd
