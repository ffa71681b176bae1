// The node of a whole tape: what a derivative rule did, as one function.
#pragma once

#include <array>

#include "autograd/joined_tape.h"
#include "autograd/saved_variable.h"

namespace gradus::autograd {

// What a tape is given, in its order: values, and variables where these are at hand (of
// cotangents; else null). Places past those are not initialised.
struct TapeInputs {
  static constexpr size_t most = 16;
  std::array<const Tensor*, most> tensors;
  std::array<const Variable*, most> variables;
};

// Plays a tape on small values so that what it gives has one node (see joined_tape.h). `inputs`
// are its given ones; `edge_of` says where an input's gradient goes; `owner` keeps the tape alive.
// False where it has to be played step by step: for a recorder, in anomaly mode, for values that
// are not small and contiguous, and for tapes that a node for each step would add up otherwise.
bool play_joined(const Ref<const RefCounted>& owner, const RuleTape& tape, const TapeInputs& inputs,
                 Context& context, FunctionRef<Edge(uint32_t)> edge_of, Variables& gradients);

// The same unrecorded: see RuleTape::play_small.
bool play_small(const RuleTape& tape, const TapeInputs& inputs, Context& context,
                Variables& gradients);

class TapeNode final : public Node {
 public:
  TapeNode(Ref<const RefCounted> owner, const JoinedTape& tape, const JoinedTape::Plan& plan,
           SmallVector<Edge, 2> edges);

  std::string name() const override { return std::string(tape_.name()); }
  bool is_traceable() const override { return true; }
  bool is_thread_safe() const override { return true; }
  bool leads(size_t input, size_t edge) const override {
    return (plan_.joints[input].leads >> edge & 1) != 0;
  }
  void release_variables() override;
  void prefetch_values() const override;

  // For who runs it elsewhere: the tape that it did; that of its gradients, for these edges and
  // these cotangents; the slot there of the cotangent at an input.
  const RuleTape& tape() const { return tape_.tape(); }
  const RuleTape& derivative(std::span<const bool> wanted, std::span<const bool> given) const;
  uint32_t cotangent_slot(size_t input) const {
    return tape_.cotangent_of(plan_.joints[input].slot);
  }
  // The slots of the tape that the derivative reads, as variables with their edges. Throws Error if
  // they were released or changed.
  Variables unpack(const RuleTape& derivative) const;

 private:
  friend bool play_joined(const Ref<const RefCounted>&, const RuleTape&, const TapeInputs&,
                          Context&, FunctionRef<Edge(uint32_t)>, Variables&);
  Variables apply(Variables&& cotangents) override;
  Variables apply_any(const RuleTape& derivative, const Variables& cotangents);
  bool apply_small(const TapeRun& run, const Variables& cotangents, Variables& gradients);
  // What was kept, by its place in the plan; a slot's value, undefined if it is none that was kept.
  // The lock is held.
  const Tensor& value_at(size_t place) const;
  const Tensor& value_of(uint32_t slot) const;
  // The cotangent at a slot of the derivative; null where there is none.
  const Variable* cotangent_at(uint32_t slot, const Variables& cotangents) const;
  Edge edge_of(uint32_t slot) const;

  const Ref<const RefCounted> owner_;
  const JoinedTape& tape_;
  const JoinedTape::Plan& plan_;
  SmallVector<KeptValue, 2> kept_;  // as in the plan, until they are let go
};

}  // namespace gradus::autograd
