// Code for a loop: its body is planned once, and run step by step without planning, locking or
// allocating.
#pragma once

#include "interpreter/plan/draft.h"

namespace gradus::interpreter {

struct LoopWork {
  work::WorkRef work;
  // Where the stage runs on a device, and its steps can: what asks for one after the other there.
  std::optional<work::Kernel> code;
  bool asks_host = false;          // some instruction of a step runs on the host
  std::optional<size_t> launches;  // as SegmentPlan::loop_launches counts them
};

// Given   an instruction that is a loop, and the layouts of its operands and results
// Result  work that is the loop. The plan notes what kernels its body waits for
LoopWork loop_work(Draft& draft, const Instruction& loop, std::span<const Layout> in,
                   std::span<const Layout> out);

}  // namespace gradus::interpreter
