// What a derivative rule emits, recorded once for operands of given types and played on values.
// Rules never branch on data, so that one recording holds for every call.
#pragma once

#include "autograd/operator_call.h"

namespace gradus::autograd {

class JoinedTape;

// Slots are numbered. Of an operator's rule: the operands, the results, the results' cotangents,
// then what steps make. Of the derivative of a tape: that one's slots, a cotangent for each slot
// that its steps make, then what steps make; what the tape before made and is read here is made
// again by the first steps. Immutable once made, but for what follows it in a list.
class RuleTape {
 public:
  static constexpr uint32_t none = UINT32_MAX;

  // Records the rule of `call.op()`. Throws what the rule does.
  RuleTape(const OperatorCall& call, SlotMask wanted, SlotMask cotangents);
  ~RuleTape();

  bool is_for(const SlotMask& wanted, const SlotMask& cotangents) const {
    return wanted_ == wanted && cotangents_ == cotangents;
  }
  size_t slots() const { return types_.size(); }
  size_t inputs() const { return inputs_; }  // slots that are there before the first step
  // Those that are read and that no step makes again, ascending: what a player is given.
  std::span<const uint32_t> given() const { return given_; }
  bool reads(size_t input) const { return read_[input]; }
  // One per operand; of a derivative one per use (see joined_tape.h). Slots, or none where it is
  // structurally zero or not wanted.
  std::span<const uint32_t> gradients() const { return gradients_; }

  // Gives the gradients; undefined for none. `slots` has those that are given. Runs the steps as
  // operators on variables, recorded where that is on. What is made again gets the edge that
  // `edge_of` names for its slot.
  Variables play(
      SmallVector<Variable, 8>&& slots,
      FunctionRef<Edge(uint32_t)> edge_of = [](uint32_t) { return Edge(); }) const;
  // Only what is made again.
  void make_again(SmallVector<Variable, 8>& slots) const;
  // The same unrecorded, where it can be done without tensors in between: small contiguous values
  // on the CPU. `given` are the values of given(). False if it cannot.
  bool play_small(std::span<const Tensor* const> given, Context& context,
                  SmallVector<Tensor, 4>& gradients) const;
  // Whether play_small can where all is contiguous.
  bool is_small() const;
  // The tape run as one node; made on first use.
  const JoinedTape& joined() const;

  // Told of each step with its operands' slots.
  void visit(FunctionRef<void(const OperatorCall&, std::span<const uint32_t>)> step) const;
  // The gradients in another world, undefined for none. `slots` has what is there before the first
  // step, also what the first ones would make again.
  std::vector<ops::Value> emit(ops::World& world, std::vector<ops::Value> slots) const;

  const RuleTape* next() const { return next_; }
  void set_next(const RuleTape* next) { next_ = next; }

 private:
  friend class TapeRecorder;
  friend class TapeDerivative;
  friend class JoinedTape;
  struct Operand {
    uint32_t slot = none;  // none: a number, or left out
    bool last = false;     // nothing reads the slot after this
  };
  struct Step {
    Ref<const OperatorCall> call;
    SmallVector<Operand, 3> operands;
    uint32_t first_result = 0;
  };
  class Small;
  RuleTape();  // an empty one
  void mark_reads();
  const Small& small() const;

  const SlotMask wanted_, cotangents_;
  size_t inputs_ = 0;
  std::vector<Step> steps_;
  size_t again_ = 0;                    // so many first steps make what a tape before made
  SmallVector<uint32_t, 4> gradients_;  // slots
  SmallVector<bool, 8> read_;           // by input
  SmallVector<uint32_t, 4> given_;
  std::vector<ir::Type> types_;  // by slot; of what is no tensor empty
  bool on_cpu_ = true;
  const RuleTape* next_ = nullptr;
  mutable std::atomic<const Small*> small_{nullptr};        // owned
  mutable std::atomic<const JoinedTape*> joined_{nullptr};  // owned
};

// A tape of a node's gradients, and where the node has what it is given.
struct TapeRun {
  static constexpr uint32_t cotangent = 1u << 31;
  uint64_t wanted, arrived;  // edges, and inputs of the node
  const RuleTape* tape;
  // By given(): the place among what the node keeps; or the input whose cotangent it is, and
  // `cotangent`.
  SmallVector<uint32_t, 8> sources;
  bool small = false;  // it may be played on values where they lie: see TapeInputs
  const TapeRun* next = nullptr;
};

}  // namespace gradus::autograd
