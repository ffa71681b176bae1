// Recording the derivative of a tape.
#pragma once

#include "autograd/joined_tape.h"
#include "autograd/tape_recorder.h"

namespace gradus::autograd {

// Does to a tape what the engine does to a graph of a node for each step: later steps first, each
// one's rule on the sum of what has arrived, gradients fitted to their operand, then added up.
class TapeDerivative {
 public:
  using Set = JoinedTape::Set;
  // Throws Error where a step has no derivative, or its rule throws.
  TapeDerivative(const JoinedTape& of, Set wanted, Set cotangents);

  // What is read of the tape's slots, but for what is read only to make others again.
  const std::vector<bool>& reads() const { return reads_; }
  // Whether later derivatives add up as they would for a node for each step. These make sums of
  // what reaches a use right after the step's rule, the joined node after all rules: they differ
  // where a value goes into such a sum and into a later step's rule.
  bool keeps_order() const { return keeps_order_; }
  std::unique_ptr<const RuleTape> take();

 private:
  void run_rule(size_t step);
  void hand_on(size_t step, std::span<const ops::Value> gradients);
  void look_at_order();
  void make_again();

  const JoinedTape& of_;
  const RuleTape& tape_;
  const Set wanted_;
  std::unique_ptr<RuleTape> made_;
  TapeRecorder world_;
  std::vector<ops::Value> cotangents_;  // by result of a step: the sum so far
  struct Handed {
    uint32_t slot;
    size_t after;  // so many steps
  };
  std::vector<Handed> handed_;  // to uses
  std::vector<bool> reads_;
  bool keeps_order_ = true;
};

}  // namespace gradus::autograd
