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
                 FunctionRef<Edge(uint32_t)> edge_of, Variables& gradients) {
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
  if (!tape.play_small({inputs.tensors.data(), tape.given().size()}, tensors)) return false;
  Ref<TapeNode> node;
  if (!plan.joints.empty()) {
    node = make_ref<TapeNode>(owner, joined, plan, std::move(edges));
    for (size_t k = 0; k < plan.kept.size(); ++k) {
      size_t place = place_of(tape, plan.kept[k]);
      if (inputs.variables[place] && inputs.variables[place]->is_inference())
        throw Error(
            "a variable made in inference mode cannot be kept for a derivative; make it outside, "
            "or use a clone made outside");
      const Tensor& value = *inputs.tensors[place];
      node->kept_.push_back({value, value.version()});
    }
  }
  gradients.clear();
  for (size_t i = 0; i < tensors.size(); ++i) {
    uint32_t slot = tape.gradients()[i], joint = plan.joint_of_gradient[i];
    if (slot == RuleTape::none) {
      gradients.emplace_back();
    } else if (joint != RuleTape::none) {
      // The same variable where the same value is the gradient of several.
      auto first = std::find(plan.joint_of_gradient.begin(), plan.joint_of_gradient.end(), joint);
      auto before = static_cast<size_t>(first - plan.joint_of_gradient.begin());
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

bool play_small(const RuleTape& tape, const TapeInputs& inputs, Variables& gradients) {
  SmallVector<Tensor, 4> tensors;
  if (!tape.play_small({inputs.tensors.data(), tape.given().size()}, tensors)) return false;
  gradients.clear();
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
  share_inputs(plan.metadata, plan.elements);
  for (const JoinedTape::Joint& joint : plan.joints)
    if (joint.leads != plan.leading) set_selective();
}

const Tensor& TapeNode::value_of(uint32_t slot) const {
  static const Tensor undefined;
  auto place = std::find(plan_.kept.begin(), plan_.kept.end(), slot);
  if (place == plan_.kept.end()) return undefined;
  if (let_go_)
    throw Error(
        "{} was freed by an earlier backward through this graph; keep the graph (keep_graph) to "
        "run it again",
        tape_.what(slot));
  const Kept& kept = kept_[static_cast<size_t>(place - plan_.kept.begin())];
  if (kept.data.version() != kept.version)
    throw Error(
        "{} was changed in place (version {}, saved at version {}) and is needed for a "
        "derivative; work on a copy of it instead",
        tape_.what(slot), kept.data.version(), kept.version);
  return kept.data;
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
  JoinedTape::Set wanted = 0, arrived = 0;
  for (size_t k = 0; k < cotangents.size(); ++k)
    if (cotangents[k].defined()) arrived |= tape_.bit_of(plan_.joints[k].slot);
  if (arrived == 0) return Variables(outputs());
  for (size_t e = 0; e < outputs(); ++e)
    if ((plan_.leading >> e & 1) != 0 && task_should_compute_output(e))
      wanted |= JoinedTape::Set{1} << e;
  const RuleTape& tape = tape_.derivative(wanted, arrived);
  Variables gradients;
  if (apply_small(tape, cotangents, gradients)) return gradients;
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

bool TapeNode::apply_small(const RuleTape& tape, const Variables& cotangents,
                           Variables& gradients) {
  auto given = tape.given();
  if (given.size() > TapeInputs::most || thread_state().recorder) return false;
  if (!current_context()->heap()) return false;  // what the user wrote is not called under the lock
  TapeInputs inputs;
  // Only kernels run below: what was kept is read where it lies.
  Lock lock(*this);
  for (size_t i = 0; i < given.size(); ++i) {
    inputs.variables[i] = cotangent_at(given[i], cotangents);
    inputs.tensors[i] = inputs.variables[i] ? &inputs.variables[i]->data() : &value_of(given[i]);
  }
  if (!recording()) return play_small(tape, inputs, gradients);
  auto edge_at = [&](uint32_t slot) {
    const Variable* cotangent = cotangent_at(slot, cotangents);
    return cotangent ? cotangent->gradient_edge() : edge_of(slot);
  };
  return play_joined(owner_, tape, inputs, edge_at, gradients);
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

void TapeNode::release_variables() {
  SmallVector<Kept, 3> gone;  // dies after the lock is let go
  Lock lock(*this);
  let_go_ = true;
  gone = std::move(kept_);
}

}  // namespace gradus::autograd
