// A staged graph as a picture.
#pragma once

#include "gradus/graph.h"
#include "tools/view/overlay.h"
#include "tools/view/picture.h"

namespace gradus::view {

// One column for each stage; between two of them what is held for later ones, with what it costs.
// The picture is not arranged yet.
Picture picture_of(const ir::Graph& graph, const Overlay& overlay);

}  // namespace gradus::view
