// Inner graphs that data run: graphs of the program, for its loops and branches.
#pragma once

#include <functional>

#include "gradus/attributes.h"
#include "io/onnx/call.h"
#include "io/onnx/importer.h"

namespace gradus::onnx {

// What was imported of an inner graph, in values of the program.
struct Region {
  std::vector<ir::ValueId> inputs;    // what it takes
  std::vector<ir::ValueId> captured;  // what it reads beside
  std::vector<ir::ValueId> results;
  std::vector<ir::Node> nodes;
};

// A value that stands for what a region takes.
Value region_input(Importer& importer, ir::Type type, const std::string& name);

// Given   `make`, which imports an inner graph as if it stood at the node at hand, and gives what
//         that returns
// Result  the nodes that came of that, taken out of the program; constants stay, for others may use
//         them, too. Nothing of them stays where `make` throws
Region record_region(Importer& importer, std::vector<ir::ValueId> inputs,
                     const std::function<std::vector<Value>()>& make);

// The values that one of the regions captured, each once.
std::vector<ir::ValueId> all_captured(std::span<const Region* const> regions);

// The region as a graph that takes its inputs, then `captured`. Throws Unsupported where these do
// not say a size that it has by name, or data decide one of a result.
ops::GraphName graph_of(Importer& importer, const Region& region,
                        std::span<const ir::ValueId> captured, const std::string& name);

}  // namespace gradus::onnx
