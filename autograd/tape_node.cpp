#include "autograd/tape_node.h"

#include <algorithm>

namespace gradus::autograd {

namespace {

size_t place_of(const RuleTape& tape, uint32_t slot) {
  return static_cast<size_t>(std::ranges::lower_bound(tape.given(), slot) - tape.given().begin());
}

// What a gradient that no step makes, or that leads nowhere, is as a variable.
Variable handed_through(const RuleTape& tape, uint32_t slot, const TapeInputs& inputs,
                        FunctionRef<Edge(uint32_t)> edge_of) {
  size_t place = place_of(tape, slot);
  if (inputs.variables[place]) return *inputs.variables[place];
  Edge edge = edge_of(slot);
  return edge.valid() ? Variable(*inputs.tensors[place], std::move(edge))
                      : Variable(*inputs.tensors[place]);
}

}  // namespace

bool play_joined(const Ref<const RefCounted>& owner, const RuleTape& tape, const TapeInputs& inputs,
                 Context& context, FunctionRef<Edge(uint32_t)> edge_of, Variables& gradients) {
  const JoinedTape& joined = tape.joined();
  const ThreadState& state = thread_state();
  if (!joined.possible() || state.recorder || state.anomaly != AnomalyMode::off) return false;
  auto uses = joined.uses();
  SmallVector<Edge, 2> edges;
  edges.reserve(uses.size());
  JoinedTape::Set leading = 0;
  for (size_t u = 0; u < uses.size(); ++u)
    if (edges.emplace_back(edge_of(uses[u].slot)).valid()) leading |= JoinedTape::Set{1} << u;
  const JoinedTape::Plan& plan = joined.plan(leading);
  if (!plan.possible) return false;
  SmallVector<Tensor, 4> tensors;
  if (!tape.play_small({inputs.tensors.data(), tape.given().size()}, context, tensors))
    return false;
  Ref<TapeNode> node;
  if (!plan.joints.empty()) {
    node = make_ref<TapeNode>(owner, joined, plan, std::move(edges));
    for (uint32_t place : plan.kept_places) {
      if (inputs.variables[place] && inputs.variables[place]->is_inference()) refuse_inference();
      node->kept_.emplace_back(*inputs.tensors[place]);
    }
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    uint32_t slot = tape.gradients()[i], joint = plan.joint_of_gradient[i];
    if (slot == RuleTape::none) {
      gradients.emplace_back();
    } else if (joint != RuleTape::none) {
      // The same variable where the same value is the gradient of several.
      size_t before = 0;
      while (plan.joint_of_gradient[before] != joint) ++before;
      if (before < i)
        gradients.push_back(gradients[before]);
      else
        gradients.emplace_back(std::move(tensors[i]), Edge{node, joint});
    } else if (slot >= tape.inputs()) {
      gradients.emplace_back(std::move(tensors[i]));
    } else {
      gradients.push_back(handed_through(tape, slot, inputs, edge_of));
    }
  }
  return true;
}

bool play_small(const RuleTape& tape, const TapeInputs& inputs, Context& context,
                Variables& gradients) {
  SmallVector<Tensor, 4> tensors;
  if (!tape.play_small({inputs.tensors.data(), tape.given().size()}, context, tensors))
    return false;
  for (Tensor& t : tensors)
    if (t.defined())
      gradients.emplace_back(std::move(t));
    else
      gradients.emplace_back();
  return true;
}

TapeNode::TapeNode(Ref<const RefCounted> owner, const JoinedTape& tape,
                   const JoinedTape::Plan& plan, SmallVector<Edge, 2> edges)
    : Node(std::move(edges)), owner_(std::move(owner)), tape_(tape), plan_(plan) {
  share_inputs(plan.inputs);
  if (plan.selective) set_selective();
}

const Tensor& TapeNode::value_at(size_t place) const {
  auto name = [&] { return tape_.what(plan_.kept[place]); };
  if (place >= kept_.size()) refuse_freed(name());
  return kept_[place].get(name);
}

const Tensor& TapeNode::value_of(uint32_t slot) const {
  static const Tensor undefined;
  auto place = std::ranges::find(plan_.kept, slot);
  return place == plan_.kept.end() ? undefined
                                   : value_at(static_cast<size_t>(place - plan_.kept.begin()));
}

// Of a slot of the tape.
Edge TapeNode::edge_of(uint32_t slot) const {
  for (size_t u = 0; u < tape_.uses().size(); ++u)
    if (tape_.uses()[u].slot == slot) return next_edge(u);
  for (uint32_t k = 0; k < plan_.joints.size(); ++k)
    if (plan_.joints[k].slot == slot) return {Ref<Node>(const_cast<TapeNode*>(this)), k};
  return {};
}

// Cotangents' slots follow those of the tape.
const Variable* TapeNode::cotangent_at(uint32_t slot, const Variables& cotangents) const {
  for (size_t k = 0; k < cotangents.size(); ++k)
    if (tape_.cotangent_of(plan_.joints[k].slot) == slot) return &cotangents[k];
  return nullptr;
}

Variables TapeNode::apply(Variables&& cotangents) {
  uint64_t arrived = 0;
  for (size_t k = 0; k < cotangents.size(); ++k)
    if (cotangents[k].defined()) arrived |= uint64_t{1} << k;
  if (arrived == 0) return Variables(outputs());
  const TapeRun& run = tape_.run_of(plan_, task_outputs() & plan_.leading, arrived);
  Variables gradients;
  if (run.small && apply_small(run, cotangents, gradients)) return gradients;
  return apply_any(*run.tape, cotangents);
}

Variables TapeNode::apply_any(const RuleTape& tape, const Variables& cotangents) {
  SmallVector<Variable, 8> slots(tape.slots());
  {
    Lock lock(*this);
    for (uint32_t slot : tape.given()) {
      const Tensor& value = value_of(slot);
      if (!value.defined())
        slots[slot] = *cotangent_at(slot, cotangents);
      else if (Edge edge = edge_of(slot); edge.valid())
        slots[slot] = Variable(value, std::move(edge));
      else
        slots[slot] = Variable(value);
    }
  }
  return tape.play(std::move(slots), [&](uint32_t slot) { return edge_of(slot); });
}

bool TapeNode::apply_small(const TapeRun& run, const Variables& cotangents, Variables& gradients) {
  const ThreadState& state = thread_state();
  Context& context = *current_context();
  // What the user wrote is not called under the lock.
  if (state.recorder || !context.heap()) return false;
  TapeInputs inputs;
  // Only kernels run below: what was kept is read where it lies.
  Lock lock(*this);
  for (size_t i = 0; i < run.sources.size(); ++i) {
    const uint32_t source = run.sources[i];
    const bool arrives = (source & TapeRun::cotangent) != 0;
    inputs.variables[i] = arrives ? &cotangents[source & ~TapeRun::cotangent] : nullptr;
    inputs.tensors[i] = arrives ? &inputs.variables[i]->data() : &value_at(source);
  }
  const RuleTape& tape = *run.tape;
  if (state.mode != GradMode::enabled) return play_small(tape, inputs, context, gradients);
  auto edge_at = [&](uint32_t slot) {
    const Variable* cotangent = cotangent_at(slot, cotangents);
    return cotangent ? cotangent->gradient_edge() : edge_of(slot);
  };
  return play_joined(owner_, tape, inputs, context, edge_at, gradients);
}

const RuleTape& TapeNode::derivative(std::span<const bool> wanted,
                                     std::span<const bool> given) const {
  JoinedTape::Set edges = 0, cotangents = 0;
  for (size_t e = 0; e < wanted.size(); ++e)
    if (wanted[e] && (plan_.leading >> e & 1) != 0) edges |= JoinedTape::Set{1} << e;
  for (size_t k = 0; k < given.size(); ++k)
    if (given[k]) cotangents |= tape_.bit_of(plan_.joints[k].slot);
  return tape_.derivative(edges, cotangents);
}

Variables TapeNode::unpack(const RuleTape& derivative) const {
  SmallVector<Variable, 8> slots(derivative.slots());
  {
    Lock lock(*this);
    for (uint32_t slot : derivative.given())
      if (const Tensor& value = value_of(slot); value.defined()) slots[slot] = Variable(value);
  }
  GradModeGuard mode(GradMode::no_grad);
  derivative.make_again(slots);
  Variables found(tape_.tape().slots());
  for (uint32_t slot = 0; slot < found.size(); ++slot) {
    if (!slots[slot].defined()) continue;
    Edge edge = edge_of(slot);
    found[slot] = edge.valid() ? Variable(slots[slot].data(), std::move(edge)) : slots[slot];
  }
  return found;
}

void TapeNode::prefetch_values() const {
  Lock lock(*this);  // another backward may let them go
  for (const KeptValue& k : kept_) k.data.prefetch();
}

void TapeNode::release_variables() {
  SmallVector<KeptValue, 2> gone;  // dies after the lock is let go
  Lock lock(*this);
  gone = std::move(kept_);
}

}  // namespace gradus::autograd
