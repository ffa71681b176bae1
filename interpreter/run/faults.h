// What code of a device finds wrong: it says so in memory, which the host looks at.
#pragma once

#include "interpreter/plan.h"

namespace gradus::interpreter {

// Before the plan's steps. `buffer` is theirs.
void clear_faults(devices::Backend& device, const SegmentPlan& plan, std::byte* buffer);
// Waits for the steps, where the plan has any that may fail. Throws the error of the first
// instruction that met something, which `at` is then: what others met may follow from it.
void check_faults(devices::Backend& device, const SegmentPlan& plan, const std::byte* buffer,
                  uint32_t& at);

}  // namespace gradus::interpreter
