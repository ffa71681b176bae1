// What a derivative rule emits, recorded once for operands of given types and played on values.
// Rules never branch on data, so that one recording holds for every call.
#pragma once

#include <algorithm>
#include <array>

#include "autograd/growing_list.h"
#include "autograd/operator_call.h"

namespace gradus::autograd {

class JoinedTape;

// Slots are numbered. Of an operator's rule: the operands, the results, the results' cotangents,
// then what steps make. Of the derivative of a tape: that one's slots, a cotangent for each slot
// that its steps make, then what steps make; what the tape before made and is read here is made
// again by the first steps. Immutable once made.
class RuleTape {
 public:
  static constexpr uint32_t none = UINT32_MAX;

  // Records the rule of `call.op()` for these operands and results. Throws what the rule does.
  RuleTape(const OperatorCall& call, std::span<const bool> wanted, std::span<const bool> arrived);
  ~RuleTape();

  size_t slots() const { return types_.size(); }
  size_t inputs() const { return inputs_; }  // slots that are there before the first step
  // Those that are read and that no step makes again, ascending: what a player is given.
  std::span<const uint32_t> given() const { return given_; }
  bool gives(uint32_t slot) const { return std::ranges::binary_search(given_, slot); }
  bool reads(size_t input) const { return read_[input]; }
  // One per operand; of a derivative one per use (see joined_tape.h). Slots, or none where it is
  // structurally zero or not wanted.
  std::span<const uint32_t> gradients() const { return gradients_; }

  // Gives the gradients; undefined for none. `slots` has those that are given. Runs the steps as
  // operators on variables, recorded where that is on. What is made again gets the edge that
  // `edge_of` names for its slot.
  Variables play(SmallVector<Variable, 8>&& slots, FunctionRef<Edge(uint32_t)> edge_of) const;
  // Only what is made again.
  void make_again(SmallVector<Variable, 8>& slots, FunctionRef<Edge(uint32_t)> edge_of) const;
  // The same unrecorded, where it can be done without tensors in between: small contiguous values
  // on the CPU. `given` are the values of given(). False if it cannot.
  bool play_small(std::span<const Tensor* const> given, Context& context,
                  SmallVector<Tensor, 4>& gradients) const;
  // Whether play_small can where all is contiguous.
  bool is_small() const;
  // The tape run as one node; made on first use.
  const JoinedTape& joined() const;

  // Told of each step with its operands' slots.
  using Told = FunctionRef<void(const OperatorCall&, std::span<const uint32_t>)>;
  void visit(Told told) const;
  // The gradients in another world, undefined for none. `slots` has what is there before the first
  // step, also what the first ones would make again.
  std::vector<ops::Value> emit(ops::World& world, std::vector<ops::Value> slots) const;

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
    // An operand as a rule sees it, `at` giving what is in a slot.
    ops::Value operand(size_t i, FunctionRef<ops::Value(uint32_t)> at) const;
  };
  class Small;
  RuleTape() = default;
  void mark_reads();
  Variables run(const Step& step, const SmallVector<Variable, 8>& slots) const;
  const Small& small() const;

  size_t inputs_ = 0;
  std::vector<Step> steps_;
  size_t again_ = 0;                    // so many first steps make what a tape before made
  SmallVector<uint32_t, 4> gradients_;  // slots
  SmallVector<bool, 8> read_;           // by input
  SmallVector<uint32_t, 4> given_;
  std::vector<ir::Type> types_;  // by slot; of what is no tensor empty
  bool on_cpu_ = true;
  mutable std::atomic<const Small*> small_{nullptr};        // owned
  mutable std::atomic<const JoinedTape*> joined_{nullptr};  // owned
};

// What a tape is given, in its order: values, and variables where these are at hand (of
// cotangents; else null). Places past those are not initialised.
struct TapeInputs {
  static constexpr size_t most = 16;
  std::array<const Tensor*, most> tensors;
  std::array<const Variable*, most> variables;
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

// What nodes whose gradients are the same tapes share.
struct TapePlan {
  NodeInputs inputs;
  uint64_t leading = 0;                 // of the first 64 edges those along which a gradient may go
  SmallVector<uint32_t, 4> kept;        // slots of the tapes whose values a node keeps, ascending
  SmallVector<uint32_t, 2> cotangents;  // by input: the slot of its cotangent
  bool strict = false;  // a run looks whether anything kept was changed, also what it does not read
  mutable GrowingList<TapeRun> runs;  // found so far

  const TapeRun& add(uint64_t wanted, uint64_t arrived, const RuleTape& tape) const;
};

}  // namespace gradus::autograd
