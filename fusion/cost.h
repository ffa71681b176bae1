// Which groups are worth a kernel.
#pragma once

#include "fusion/nest.h"

namespace gradus::fusion {

// Bounds of a group: what is compiled in some ten milliseconds, and keeps its values in registers
// for the most part.
inline constexpr size_t most_steps = 48;
// Loads and stores. A kernel keeps as many pointers on its stack.
inline constexpr size_t most_slots = 32;
// Up to so many elements what an instruction costs is the call, not its elements: then also those
// are grouped that share nothing.
inline constexpr int64_t few_elements = 4096;

// Whether a kernel of the nest beats a loop for each step.
bool worth_a_kernel(const Nest& nest, const Frame& frame);

}  // namespace gradus::fusion
