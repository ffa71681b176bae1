// A tape run as one node of the graph, instead of one node for each of its steps. What the engine
// would do with those nodes is recorded as the tape's derivative, which is a tape again.
#pragma once

#include "autograd/rule_tape.h"

namespace gradus::autograd {

// Such a node has an edge for each use of an input by a step that has a derivative, later steps
// first: contributions to an input then arrive, and are added up, as from a node for each step. Its
// inputs take the cotangents of joints: of gradients that steps make, and of what else steps make
// and a derivative reads, since the node of that derivative has edges back there.
//
// Thread-safe; what is found is found once.
class JoinedTape {
 public:
  static constexpr size_t most = 64;  // uses, and results of steps: sets of them are words
  using Set = uint64_t;

  struct Use {
    uint32_t step, operand, slot;
  };
  struct Joint {
    uint32_t slot;
    Set leads;  // to these uses
  };
  // How the node is made where `leading`, of the uses, lead somewhere. Its inputs are the joints.
  struct Plan : TapePlan {
    bool possible = false;  // else there is a node for each step
    SmallVector<Joint, 2> joints;
    bool selective = false;                // a joint does not lead to all that leads somewhere
    SmallVector<uint32_t, 4> kept_places;  // of what is kept: places among what the tape is given
    // By gradient of the tape: its joint; or none, where it is an input's value, or leads nowhere.
    SmallVector<uint32_t, 2> joint_of_gradient;
    const Plan* next = nullptr;
  };

  explicit JoinedTape(const RuleTape& tape);
  JoinedTape(const JoinedTape&) = delete;

  const RuleTape& tape() const { return tape_; }
  // Whether any plan may be possible.
  bool possible() const { return possible_; }
  std::span<const Use> uses() const { return uses_; }
  const Plan& plan(Set leading) const;
  // The uses' gradients, for cotangents of these results of steps (counted from the first slot that
  // is no input). Of a possible plan, with a part of what leads there.
  const RuleTape& derivative(Set wanted, Set cotangents) const;
  // The bit of a joint's slot in `cotangents`.
  Set bit_of(uint32_t slot) const { return Set{1} << (slot - tape_.inputs()); }
  // Of a derivative: the number of the slot that has the cotangent of `slot`.
  uint32_t cotangent_of(uint32_t slot) const {
    return static_cast<uint32_t>(tape_.slots() + slot - tape_.inputs());
  }
  // "operand 'x' of 'mul'": the last use of a slot; and the operator that makes the first gradient.
  std::string what(uint32_t slot) const;
  std::string_view name() const;

 private:
  struct Derivative {
    Set wanted, cotangents;
    std::unique_ptr<const RuleTape> tape;
    const Derivative* next = nullptr;
  };
  void find_uses();
  // The uses that lie below an operand of a step; the number of that which it is.
  Set leads_to(size_t step, size_t operand) const;
  size_t use_of(size_t step, size_t operand) const;
  // Whether a node would be made for it.
  static bool recorded(const RuleTape::Step& step);
  bool refuses(Set leading) const;
  bool fill(Plan& plan) const;

  const RuleTape& tape_;
  bool possible_ = false;
  std::vector<Use> uses_;
  std::vector<Set> leads_;  // by result of a step
  mutable GrowingList<Plan> plans_;
  mutable GrowingList<Derivative> derivatives_;
  friend class TapeDerivative;
};

}  // namespace gradus::autograd
