#pragma once

#include "gradus/graph.h"

namespace embed {

// Windows of one element are their operand.
void drop_single_windows(gradus::ir::Graph& graph);

}  // namespace embed
