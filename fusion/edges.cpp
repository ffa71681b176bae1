#include "fusion/edges.h"

#include "fusion/nest.h"
#include "work/move.h"

namespace gradus::fusion {

std::optional<Edge> edge_of(const ir::Node& node, std::span<const std::optional<Layout>> in,
                            const Layout& out, const ir::DimEnvironment& sizes) {
  if (!node.op->edge || out.numel() == 0) return std::nullopt;
  ops::EdgeCall call{node.attributes, in, out, sizes, {}};
  if (!node.op->edge(call)) return std::nullopt;
  Edge edge{std::move(call.found), &node, ir::no_value, out};
  if (edge.sources.size() > most_operands) return std::nullopt;
  edge.result = node.results[0];
  return edge;
}

bool reshape(Edge& edge, const Sizes& shape) {
  if (edge.sources.size() != 1) return false;
  auto seen = [&](const Sizes& strides) {
    return view_strides(Layout(edge.layout.dtype, edge.layout.shape, strides), shape);
  };
  auto strides = seen(edge.sources[0].strides);
  if (!strides) return false;
  if (edge.index) {
    auto of_index = seen(edge.index->strides);
    if (!of_index) return false;
    edge.index->strides = std::move(*of_index);
  }
  edge.sources[0] = {edge.sources[0].operand, Sizes(shape.size(), 0), shape, std::move(*strides)};
  edge.layout = Layout(edge.layout.dtype, shape);
  return true;
}

}  // namespace gradus::fusion
