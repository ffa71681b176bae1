// The instructions of a run that somebody watches, one after the other.
#pragma once

#include "interpreter/plan.h"

namespace gradus::interpreter {

// Goes from step to step of a plan. Instructions that need no step (views inside the stage,
// constants, all of a group but the last) are begun and ended on the way. `Teller` has
// begin(instruction, step), with a null step for those, and end(instruction); either may throw.
template <class Teller>
class Walk {
 public:
  Walk(uint32_t first, uint32_t end, Teller teller)
      : next_(first), end_(end), teller_(std::move(teller)) {}

  void reach(const Step& step) {
    if (runs_ && next_ == step.instruction + 1) return;  // it has several steps
    if (step.instruction < next_) {                      // the end of what an earlier one began
      if (runs_) finish();
      return;
    }
    go_to(step.instruction);
    begin(&step);
  }
  void end() { go_to(end_); }

 private:
  void go_to(uint32_t instruction) {
    if (runs_) finish();
    while (next_ < instruction) {
      begin(nullptr);
      finish();
    }
  }
  void begin(const Step* step) {
    runs_ = true;
    teller_.begin(next_++, step);
  }
  void finish() {
    runs_ = false;
    teller_.end(next_ - 1);
  }

  uint32_t next_, end_;  // the first instruction that has not begun; the last one's successor
  bool runs_ = false;    // the one before `next_` does
  Teller teller_;
};

}  // namespace gradus::interpreter
