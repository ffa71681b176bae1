// The node of a whole tape: what a derivative rule did, as one function.
#pragma once

#include "autograd/joined_tape.h"
#include "autograd/taped_node.h"

namespace gradus::autograd {

class TapeNode final : public TapedNode {
 public:
  // Plays a tape on small values so that what it gives has one node (see joined_tape.h). `inputs`
  // are its given ones; `edge_of` says where an input's gradient goes; `owner` keeps the tape
  // alive. False where it has to be played step by step: for a recorder, in anomaly mode, for
  // values that are not small and contiguous, and for tapes that a node for each step would add up
  // otherwise.
  static bool play(const Ref<const RefCounted>& owner, const RuleTape& tape,
                   const TapeInputs& inputs, Context& context, FunctionRef<Edge(uint32_t)> edge_of,
                   Variables& gradients);

  TapeNode(Ref<const RefCounted> owner, const JoinedTape& tape, const JoinedTape::Plan& plan,
           SmallVector<Edge, 2>&& edges);

  std::string name() const override { return std::string(tape_.name()); }
  bool leads(size_t input, size_t edge) const override {
    return (plan().joints[input].leads >> edge & 1) != 0;
  }
  void visit(RuleTape::Told told) const override { tape_.tape().visit(told); }
  const RuleTape& tape(std::span<const bool> wanted, std::span<const bool> arrived) const override;

 private:
  const JoinedTape::Plan& plan() const { return static_cast<const JoinedTape::Plan&>(plan_); }
  Edge edge_of(uint32_t slot) const override;
  std::string what(uint32_t slot) const override { return tape_.what(slot); }

  const JoinedTape& tape_;
};

}  // namespace gradus::autograd
