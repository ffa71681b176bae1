// Sums that the steps of a loop add to: where they lie, and when.
#pragma once

#include "interpreter/run/loop.h"

namespace gradus::interpreter {

// Given    a loop with its step's plan, and where the step finds its pointers
// Execute  finds carries that a kernel of the step reads only where it writes their next values,
//          each element before it is written
// Result   LoopCode::in_place: a sum of 256 KiB that each step adds to is then one block of memory,
//          not two in turns
void find_in_place(LoopCode& loop);

// Given    a scan whose carries in place are known, and the kernels that its step was planned with
// Execute  finds kernels that do nothing but to write such carries, and read little beside them
// Result   LoopCode::deferred: they run for several steps at once, with the same bits. The loop's
//          plan notes a kernel for several steps that is not there yet
void find_deferred(LoopCode& loop, const KernelChoice& choice, SegmentPlan& plan);

}  // namespace gradus::interpreter
