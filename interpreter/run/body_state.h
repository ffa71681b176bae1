// Steps of a loop whose body has sizes that data decide, or calls functions: each is a round of a
// state of the body.
#pragma once

#include <span>

#include "interpreter/run/steps.h"

namespace gradus::interpreter {

// Of one loop while it runs. It takes memory for itself: what a step needs is known in the step.
class BodyState {
 public:
  // In the memory, with the limits and the observer, of the run that goes on on this thread.
  BodyState(std::shared_ptr<const Code> body, const KernelChoice& kernels);
  BodyState(const BodyState&) = delete;

  // Given   what a step takes and gives, and where that lies
  // Execute functions may keep what they are given: that is memory of its own then
  // Result  the step's results are there; those that are absent are zeros
  // `at` is the instruction that runs, for who catches what it throws. Observers know the step as
  // `name`.
  void run(std::span<const Layout> in, std::byte* const* inputs, std::span<const Layout> out,
           std::byte* const* results, int64_t name, uint32_t& at);

 private:
  // What the state tells of its instructions are those of a step.
  class Observer final : public InstructionObserver {
   public:
    Observer(InstructionObserver& told, const Code& body) : told_(told), body_(body) {}
    void before(size_t, size_t i) override { told_.before_in_step({body_, step, i}); }
    void after(size_t, size_t i) override { told_.after_in_step({body_, step, i}); }
    void before_in_step(const StepPoint& at) override { told_.before_in_step(at); }
    void after_in_step(const StepPoint& at) override { told_.after_in_step(at); }
    int64_t step = 0;

   private:
    InstructionObserver& told_;
    const Code& body_;
  };

  std::optional<Observer> observer_;
  RunOptions options_;
  StateData state_;
};

}  // namespace gradus::interpreter
