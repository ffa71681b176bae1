// Graphs with other names for their sizes.
#pragma once

#include "ops/structural.h"

namespace gradus::ops {

// The one-stage graph with sizes in the place of names, wherever they stand.
ir::Graph with_sizes(const ir::Graph& graph, const Substitution& sizes);

}  // namespace gradus::ops
