// The loops of a group: which dimensions are one loop, and how each load walks them.
#pragma once

#include "fusion/group.h"

namespace gradus::fusion {

// Given    a group whose nest has its loads, steps and stores, the layouts of its inputs, the shape
//          of its loops, and how many of the last dimensions are a row (0: none)
// Execute  says the frame, and how the nest's loads walk
// Result   null, or why there are no such loops
const char* find_loops(Group& group, std::span<const Layout> inputs, const Sizes& shape,
                       size_t row_dims);

}  // namespace gradus::fusion
