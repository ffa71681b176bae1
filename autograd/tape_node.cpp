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

bool TapeNode::play(const Ref<const RefCounted>& owner, const RuleTape& tape,
                    const TapeInputs& inputs, Context& context, FunctionRef<Edge(uint32_t)> edge_of,
                    Variables& gradients) {
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

TapeNode::TapeNode(Ref<const RefCounted> owner, const JoinedTape& tape,
                   const JoinedTape::Plan& plan, SmallVector<Edge, 2>&& edges)
    : TapedNode(std::move(owner), plan, std::move(edges)), tape_(tape) {
  share_inputs(plan.inputs);
  if (plan.selective) set_selective();
}

// Of a slot of the tape.
Edge TapeNode::edge_of(uint32_t slot) const {
  for (size_t u = 0; u < tape_.uses().size(); ++u)
    if (tape_.uses()[u].slot == slot) return next_edge(u);
  for (uint32_t k = 0; k < plan().joints.size(); ++k)
    if (plan().joints[k].slot == slot) return {Ref<Node>(const_cast<TapeNode*>(this)), k};
  return {};
}

const RuleTape& TapeNode::tape(std::span<const bool> wanted, std::span<const bool> arrived) const {
  JoinedTape::Set edges = 0, cotangents = 0;
  for (size_t e = 0; e < wanted.size(); ++e)
    if (wanted[e]) edges |= JoinedTape::Set{1} << e;
  for (size_t k = 0; k < arrived.size(); ++k)
    if (arrived[k]) cotangents |= tape_.bit_of(plan().joints[k].slot);
  return tape_.derivative(edges & plan_.leading, cotangents);
}

}  // namespace gradus::autograd
