#include "pass.h"

#include "gradus/rewrite.h"
#include "window_sums.h"

namespace embed {

void drop_single_windows(gradus::ir::Graph& graph) {
  gradus::ir::Substitute substitute(graph);
  for (gradus::ir::Stage& stage : graph.stages) {
    std::vector<gradus::ir::Node> kept;
    for (gradus::ir::Node& node : stage.nodes) {
      substitute.apply(node);
      const bool single = node.op == &gradus::ops::operator_record<WindowSums> &&
                          gradus::ops::attributes_as<WindowSums::Attr>(node.attributes).width == 1;
      if (single)
        substitute.replace(node.results[0], value_in(node.operands[0]));
      else
        kept.push_back(std::move(node));
    }
    stage.nodes = std::move(kept);
    substitute.apply(stage.results);
  }
}

}  // namespace embed
