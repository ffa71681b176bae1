#include "autograd/tape_node.h"

#include <algorithm>

namespace gradus::autograd {

bool play_joined(const Ref<const RefCounted>& owner, const RuleTape& tape,
                 std::span<const TapeInput> inputs, FunctionRef<Edge(uint32_t)> edge_of,
                 Variables& gradients) {
  const JoinedTape& joined = tape.joined();
  const ThreadState& state = thread_state();
  if (!joined.possible() || state.recorder || state.anomaly != AnomalyMode::off) return false;
  auto uses = joined.uses();
  SmallVector<Edge, 2> edges(uses.size());
  JoinedTape::Set leading = 0;
  for (size_t u = 0; u < uses.size(); ++u) {
    edges[u] = edge_of(uses[u].slot);
    if (edges[u].valid()) leading |= JoinedTape::Set{1} << u;
  }
  const JoinedTape::Plan& plan = joined.plan(leading);
  if (!plan.possible) return false;
  SmallVector<const Tensor*, 8> given;
  for (const TapeInput& in : inputs) given.push_back(in.tensor);
  SmallVector<Tensor, 4> tensors;
  if (!tape.play_small(given, tensors)) return false;
  auto index_of = [&](uint32_t slot) {
    return static_cast<size_t>(std::ranges::lower_bound(tape.given(), slot) - tape.given().begin());
  };
  Ref<TapeNode> node;
  if (!plan.joints.empty()) {
    node = make_ref<TapeNode>(owner, joined, plan, std::move(edges));
    for (size_t k = 0; k < plan.kept.size(); ++k) {
      const TapeInput& in = inputs[index_of(plan.kept[k])];
      if (in.variable && in.variable->is_inference())
        throw Error(
            "a variable made in inference mode cannot be kept for a derivative; make it outside, "
            "or use a clone made outside");
      node->kept_[k] = {*in.tensor, in.tensor->version()};
    }
  }
  SmallVector<Variable, 2> joints(plan.joints.size());
  gradients = Variables(tape.gradients().size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    uint32_t slot = tape.gradients()[i], joint = plan.joint_of_gradient[i];
    if (slot == RuleTape::none) continue;
    if (joint != RuleTape::none) {
      Variable& v = joints[joint];
      if (!v.defined()) v = Variable(std::move(tensors[i]), Edge{node, joint});
      gradients[i] = v;
    } else if (slot >= tape.inputs()) {
      gradients[i] = Variable(std::move(tensors[i]));
    } else if (const TapeInput& in = inputs[index_of(slot)]; in.variable) {
      gradients[i] = *in.variable;
    } else {
      Edge edge = edge_of(slot);
      gradients[i] = edge.valid() ? Variable(*in.tensor, std::move(edge)) : Variable(*in.tensor);
    }
  }
  return true;
}

bool play_small(const RuleTape& tape, std::span<const TapeInput> inputs, Variables& gradients) {
  SmallVector<const Tensor*, 8> given;
  for (const TapeInput& in : inputs) given.push_back(in.tensor);
  SmallVector<Tensor, 4> tensors;
  if (!tape.play_small(given, tensors)) return false;
  gradients = Variables(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].defined()) gradients[i] = Variable(std::move(tensors[i]));
  return true;
}

TapeNode::TapeNode(Ref<const RefCounted> owner, const JoinedTape& tape,
                   const JoinedTape::Plan& plan, SmallVector<Edge, 2> edges)
    : Node(std::move(edges)),
      owner_(std::move(owner)),
      tape_(tape),
      plan_(plan),
      kept_(plan.kept.size()) {
  for (const JoinedTape::Joint& joint : plan.joints) {
    add_input(joint.metadata);
    if (joint.leads != plan.leading) set_selective();
  }
}

SmallVector<Tensor, 4> TapeNode::values_for(const RuleTape& derivative) const {
  SmallVector<Tensor, 4> values(derivative.given().size());
  Lock lock(*this);
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t slot = derivative.given()[i];
    auto place = std::ranges::find(plan_.kept, slot);
    if (place == plan_.kept.end()) continue;
    const Kept& kept = kept_[static_cast<size_t>(place - plan_.kept.begin())];
    if (let_go_)
      throw Error(
          "{} was freed by an earlier backward through this graph; keep the graph (keep_graph) to "
          "run it again",
          tape_.what(slot));
    if (kept.data.version() != kept.version)
      throw Error(
          "{} was changed in place (version {}, saved at version {}) and is needed for a "
          "derivative; work on a copy of it instead",
          tape_.what(slot), kept.data.version(), kept.version);
    values[i] = kept.data;
  }
  return values;
}

// Of a slot of the tape.
Edge TapeNode::edge_of(uint32_t slot) const {
  for (size_t u = 0; u < tape_.uses().size(); ++u)
    if (tape_.uses()[u].slot == slot) return next_edge(u);
  for (uint32_t k = 0; k < plan_.joints.size(); ++k)
    if (plan_.joints[k].slot == slot) return {Ref<Node>(const_cast<TapeNode*>(this)), k};
  return {};
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
  SmallVector<Tensor, 4> values = values_for(tape);
  // Cotangents' slots follow those of the tape.
  auto cotangent_at = [&](uint32_t slot) -> const Variable* {
    for (size_t k = 0; k < cotangents.size(); ++k)
      if (tape_.cotangent_of(plan_.joints[k].slot) == slot) return &cotangents[k];
    return nullptr;
  };
  SmallVector<TapeInput, 4> inputs(values.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i].variable = values[i].defined() ? nullptr : cotangent_at(tape.given()[i]);
    inputs[i].tensor = inputs[i].variable ? &inputs[i].variable->data() : &values[i];
  }
  auto edge_at = [&](uint32_t slot) {
    const Variable* cotangent = cotangent_at(slot);
    return cotangent ? cotangent->gradient_edge() : edge_of(slot);
  };
  Variables gradients;
  if (recording()) {
    if (play_joined(owner_, tape, inputs, edge_at, gradients)) return gradients;
  } else if (!thread_state().recorder) {
    if (play_small(tape, inputs, gradients)) return gradients;
  }
  SmallVector<Variable, 8> slots(tape.slots());
  for (size_t i = 0; i < inputs.size(); ++i) {
    uint32_t slot = tape.given()[i];
    if (inputs[i].variable)
      slots[slot] = *inputs[i].variable;
    else if (Edge edge = edge_of(slot); edge.valid())
      slots[slot] = Variable(values[i], std::move(edge));
    else
      slots[slot] = Variable(values[i]);
  }
  return tape.play(std::move(slots), edge_at);
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
  SmallVector<Tensor, 4> values = values_for(derivative);
  SmallVector<Variable, 8> slots(derivative.slots());
  GradModeGuard mode(GradMode::no_grad);
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i].defined()) slots[derivative.given()[i]] = Variable(std::move(values[i]));
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
  kept_.resize(gone.size());
}

}  // namespace gradus::autograd
