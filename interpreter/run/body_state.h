// Steps of a loop whose body has sizes that data decide: each is a round of a state of the body.
#pragma once

#include <span>

#include "interpreter/run/steps.h"

namespace gradus::interpreter {

// Of one loop while it runs. It takes memory for itself: what a step needs is known in the step.
class BodyState {
 public:
  // In the memory, and with the limits, of the run that goes on on this thread.
  BodyState(std::shared_ptr<const Code> body, const KernelChoice& kernels);

  // Given   what a step takes and gives, and where that lies
  // Result  the step's results are there; those that are absent are zeros
  // `at` is the instruction that runs, for who catches what it throws.
  void run(std::span<const Layout> in, std::byte* const* inputs, std::span<const Layout> out,
           std::byte* const* results, uint32_t& at);

 private:
  RunOptions options_;
  StateData state_;
};

}  // namespace gradus::interpreter
