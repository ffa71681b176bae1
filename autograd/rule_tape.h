// What a derivative rule emits, recorded once for operands of given types and played on values.
// Rules never branch on data, so that one recording holds for every call.
#pragma once

#include "autograd/operator_call.h"

namespace gradus::autograd {

// Slots are numbered: the operands, the results, the results' cotangents, then what steps make.
// Immutable once made, but for what follows it in a list.
class RuleTape {
 public:
  static constexpr uint32_t none = UINT32_MAX;

  // Records the rule of `call.op()`. Throws what the rule does.
  RuleTape(const OperatorCall& call, SlotMask wanted, SlotMask cotangents);
  ~RuleTape();

  bool is_for(const SlotMask& wanted, const SlotMask& cotangents) const {
    return wanted_ == wanted && cotangents_ == cotangents;
  }
  size_t slots() const { return slots_; }
  size_t inputs() const { return inputs_; }  // slots that are given
  bool reads(size_t input) const { return read_[input]; }

  // Gives one gradient per operand; undefined ones are structurally zero or not wanted. `slots` has
  // the inputs that are read. Runs the steps as operators on variables, recorded where that is on.
  Variables play(SmallVector<Variable, 8>&& slots) const;
  // The same unrecorded, where it can be done without tensors in between: small contiguous values
  // on the CPU. `inputs` has those that are read. Nothing if it cannot.
  std::optional<SmallVector<Tensor, 2>> play_small(std::span<const Tensor> inputs) const;

  const RuleTape* next() const { return next_; }
  void set_next(const RuleTape* next) { next_ = next; }

 private:
  friend class TapeRecorder;
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
  void mark_reads();
  const Small& small() const;

  const SlotMask wanted_, cotangents_;
  size_t inputs_ = 0, slots_ = 0;
  std::vector<Step> steps_;
  SmallVector<uint32_t, 2> gradients_;  // slots, by operand
  SmallVector<bool, 8> read_;           // by input
  std::vector<Layout> layouts_;         // by input, contiguous; of what is no tensor empty
  bool on_cpu_ = true;
  const RuleTape* next_ = nullptr;
  mutable std::atomic<const Small*> small_{nullptr};  // owned
};

}  // namespace gradus::autograd
