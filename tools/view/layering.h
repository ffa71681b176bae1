// Layered drawing of directed graphs: layers, an order in each, and places along them.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace gradus::view {

// What is to be drawn: boxes of a width, and edges that all point down. Edges may be there twice.
struct LayeredGraph {
  std::vector<double> widths;
  std::vector<std::pair<uint32_t, uint32_t>> edges;
};

struct Layering {
  uint32_t layers = 0;
  std::vector<uint32_t> layer;  // by node
  std::vector<double> centre;   // by node; the leftmost box begins at 0
  // By node: where its edges pass the layers below it, as far as they go.
  std::vector<std::vector<double>> trunks;
  std::vector<bool> straight;  // by edge: it has no such way, and goes behind what is there
  double width = 0;
};

// After Sugiyama, Tagawa and Toda (1981): longest paths give the layers, sweeps of barycentres the
// order, weighted isotonic regression (pool adjacent violators) the places. Edges of one node share
// their way as far as they go together. A node that nothing leads to stands right above its first
// reader. The same graph gives the same drawing. Near-linear: edges so long that their ways would
// be most of the work go straight. Nothing where the edges make a circle.
std::optional<Layering> find_layers(const LayeredGraph& graph);

}  // namespace gradus::view
