#include <set>

#include "gradus/passes.h"
#include "gradus/rewrite.h"
#include "ops/structural.h"

namespace gradus::ir {

std::vector<std::pair<std::string, Tensor>> lift_constants(Graph& graph, int64_t elements) {
  std::set<std::string, std::less<>> taken;
  for (const Value& v : graph.values) taken.insert(v.name);
  size_t next = 0;
  std::vector<std::pair<std::string, Tensor>> lifted;
  std::vector<ValueId> inputs;
  Substitute substitute(graph);
  for (size_t s = 0; s < graph.stages.size(); ++s) {
    Stage& stage = graph.stages[s];
    std::vector<Node> kept;
    for (Node& node : stage.nodes) {
      substitute.apply(node);
      const Tensor* value = ops::constant_in(node);
      if (!value || value->numel() < elements) {
        kept.push_back(std::move(node));
        continue;
      }
      size_t same = 0;
      while (same < lifted.size() && !bitwise_equal(lifted[same].second, *value)) ++same;
      if (same == lifted.size()) {
        std::string name = graph[node.results[0]].name;
        // The constant's own name goes over to the input.
        if (name.empty()) do
            name = "w" + std::to_string(next++);
          while (!taken.insert(name).second);
        graph[node.results[0]].name.clear();
        Type type = graph[node.results[0]].type;
        inputs.push_back(graph.add_value(std::move(type), name, 0));
        lifted.emplace_back(std::move(name), *value);
      }
      substitute.replace(node.results[0], inputs[same]);
    }
    stage.nodes = std::move(kept);
    substitute.apply(stage.results);
  }
  auto& first = graph.stages[0].inputs;
  first.insert(first.end(), inputs.begin(), inputs.end());
  return lifted;
}

}  // namespace gradus::ir
