// Nodes whose gradients are what a tape gives: of an operator, and of a whole tape.
#pragma once

#include "autograd/rule_tape.h"
#include "autograd/saved_variable.h"

namespace gradus::autograd {

class TapedNode : public Node {
 public:
  bool is_traceable() const final { return true; }
  bool is_thread_safe() const final { return true; }
  void release_variables() final;
  void prefetch_values() const final;

  // For who plays its tapes elsewhere. The steps whose derivative it is, as RuleTape::visit tells.
  virtual void visit(RuleTape::Told told) const = 0;
  // The tape of its gradients for these edges and these cotangents, and the slot there of the
  // cotangent at an input.
  virtual const RuleTape& tape(std::span<const bool> wanted,
                               std::span<const bool> arrived) const = 0;
  uint32_t cotangent_slot(size_t input) const { return plan_.cotangents[input]; }
  // By input of the tape: what was kept or is made again, as variables with their edges. Throws
  // Error if it was released or changed.
  SmallVector<Variable, 8> unpack(const RuleTape& tape) const;

 protected:
  // `owner` keeps the plan and its tapes alive.
  TapedNode(Ref<const RefCounted> owner, const TapePlan& plan, SmallVector<Edge, 2>&& edges)
      : Node(std::move(edges)), owner_(std::move(owner)), plan_(plan) {}
  // Of a slot of its tapes that is no cotangent: where its gradient goes; its name in errors.
  virtual Edge edge_of(uint32_t slot) const = 0;
  virtual std::string what(uint32_t slot) const = 0;

  const Ref<const RefCounted> owner_;
  const TapePlan& plan_;
  SmallVector<KeptValue, 2> kept_;  // as in the plan, until they are let go

 private:
  Variables apply(Variables&& cotangents) final;
  const TapeRun& new_run(uint64_t wanted, uint64_t arrived) const;
  // Small values, without variables in between. False if it cannot.
  bool play_small(const TapeRun& run, const Variables& cotangents, Variables& gradients) const;
  Variables play(const RuleTape& tape, Variables&& cotangents) const;
  // By its place in the plan. The lock is held.
  const Tensor& value_at(size_t place) const {
    if (place >= kept_.size() || kept_[place].changed()) [[unlikely]]
      refuse(place);
    return kept_[place].data;
  }
  [[noreturn]] void refuse(size_t place) const;
  Variable unpack_at(size_t place) const;
  void unpack(const RuleTape& tape, SmallVector<Variable, 8>& slots) const;
};

}  // namespace gradus::autograd
