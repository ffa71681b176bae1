#include "autograd/taped_node.h"

#include <algorithm>

#include "autograd/tape_node.h"

namespace gradus::autograd {

Variables TapedNode::apply(Variables&& cotangents) {
  constexpr size_t most = 64;
  if (outputs() <= most && cotangents.size() <= most) {
    uint64_t arrived = 0;
    for (size_t i = 0; i < cotangents.size(); ++i)
      if (cotangents[i].defined()) arrived |= uint64_t{1} << i;
    if (arrived == 0) return Variables(outputs());
    const uint64_t wanted = task_outputs() & plan_.leading;
    const TapeRun* known = plan_.runs.first();
    while (known && (known->wanted != wanted || known->arrived != arrived)) known = known->next;
    const TapeRun& run = known ? *known : new_run(wanted, arrived);
    Variables gradients;
    if (run.small && play_small(run, cotangents, gradients)) return gradients;
    return play(*run.tape, std::move(cotangents));
  }
  SmallVector<bool, 4> wanted, arrived;
  for (size_t i = 0; i < outputs(); ++i) wanted.push_back(task_should_compute_output(i));
  for (const Variable& v : cotangents) arrived.push_back(v.defined());
  if (std::ranges::count(arrived, true) == 0) return Variables(outputs());
  return play(tape(wanted, arrived), std::move(cotangents));
}

const TapeRun& TapedNode::new_run(uint64_t wanted, uint64_t arrived) const {
  SmallVector<bool, 4> wants, arrives;
  for (size_t i = 0; i < outputs(); ++i) wants.push_back((wanted >> i & 1) != 0);
  for (size_t i = 0; i < inputs(); ++i) arrives.push_back((arrived >> i & 1) != 0);
  return plan_.add(wanted, arrived, tape(wants, arrives));
}

bool TapedNode::play_small(const TapeRun& run, const Variables& cotangents,
                           Variables& gradients) const {
  // A recorder is told of operators one by one. An allocator of the user's is not called under the
  // lock.
  const ThreadState& state = thread_state();
  Context& context = *current_context();
  if (state.recorder || !context.heap()) return false;
  TapeInputs inputs;
  // Only kernels run below: what was kept is read where it lies.
  Lock lock(*this);
  if (plan_.strict)
    for (size_t place = 0; place < plan_.kept.size(); ++place) static_cast<void>(value_at(place));
  for (size_t i = 0; i < run.sources.size(); ++i) {
    const uint32_t source = run.sources[i];
    const bool arrives = (source & TapeRun::cotangent) != 0;
    inputs.variables[i] = arrives ? &cotangents[source & ~TapeRun::cotangent] : nullptr;
    inputs.tensors[i] = arrives        ? &inputs.variables[i]->data()
                        : plan_.strict ? &kept_[source].data
                                       : &value_at(source);
  }
  if (state.mode == GradMode::enabled) {
    auto edge_at = [&](uint32_t slot) {
      auto input = std::ranges::find(plan_.cotangents, slot);
      if (input == plan_.cotangents.end()) return edge_of(slot);
      return cotangents[static_cast<size_t>(input - plan_.cotangents.begin())].gradient_edge();
    };
    return TapeNode::play(owner_, *run.tape, inputs, context, edge_at, gradients);
  }
  SmallVector<Tensor, 4> tensors;
  if (!run.tape->play_small({inputs.tensors.data(), run.sources.size()}, context, tensors))
    return false;
  for (Tensor& t : tensors) gradients.push_back(t.defined() ? Variable(std::move(t)) : Variable());
  return true;
}

Variables TapedNode::play(const RuleTape& tape, Variables&& cotangents) const {
  SmallVector<Variable, 8> slots(tape.slots());
  unpack(tape, slots);
  for (size_t i = 0; i < plan_.cotangents.size(); ++i)
    slots[plan_.cotangents[i]] = std::move(cotangents[i]);
  return tape.play(std::move(slots), [&](uint32_t slot) { return edge_of(slot); });
}

void TapedNode::refuse(size_t place) const {
  const std::string name = what(plan_.kept[place]);
  if (place >= kept_.size()) refuse_freed(name);
  refuse_changed(name, kept_[place].data, kept_[place].version);
}

Variable TapedNode::unpack_at(size_t place) const {
  const Tensor& value = value_at(place);
  Edge edge = edge_of(plan_.kept[place]);
  if (!edge.valid()) return Variable(value);
  if (Variable leaf = edge.node->accumulates_into(); leaf.defined() && leaf.data().same_as(value))
    return leaf;
  return Variable(value, std::move(edge));
}

void TapedNode::unpack(const RuleTape& tape, SmallVector<Variable, 8>& slots) const {
  Lock lock(*this);
  for (size_t place = 0; place < plan_.kept.size(); ++place)
    if (const uint32_t slot = plan_.kept[place]; plan_.strict || tape.gives(slot))
      slots[slot] = unpack_at(place);
}

SmallVector<Variable, 8> TapedNode::unpack(const RuleTape& tape) const {
  SmallVector<Variable, 8> slots(tape.slots());
  unpack(tape, slots);
  tape.make_again(slots, [&](uint32_t slot) { return edge_of(slot); });
  slots.resize(tape.inputs());
  return slots;
}

void TapedNode::prefetch_values() const {
  Lock lock(*this);  // another backward may let them go
  for (const KeptValue& k : kept_) k.data.prefetch();
}

void TapedNode::release_variables() {
  SmallVector<KeptValue, 2> gone;  // dies after the lock is let go
  Lock lock(*this);
  gone = std::move(kept_);
}

}  // namespace gradus::autograd
