#include "gradus/passes.h"
#include "gradus/rewrite.h"
#include "gradus/rules.h"
#include "ir/passes/backpropagate.h"
#include "ops/structural.h"

namespace gradus::ir {

namespace {

// The nodes before the point that is being rebuilt: earlier stages, then this one so far.
std::vector<Node> emit_sweep(Graph& graph, size_t stage, const Node& node,
                             std::vector<Node>& so_far, Substitute& substitute) {
  std::vector<Node> emitted;
  GraphWorld world(graph, stage, emitted);
  world.set_place(node.where);
  ValueId y = value_in(node.operands[0]);
  const bool cotangent = ops::has_cotangent(node);
  size_t first = cotangent ? 2 : 1;
  Root root{y, no_value};
  if (cotangent)
    root.cotangent = value_in(node.operands[1]);
  else
    root.cotangent = GraphWorld::id_of(ops::ones_like(world.value(y)));
  std::vector<ValueId> wrt;
  for (size_t i = first; i < node.operands.size(); ++i) wrt.push_back(value_in(node.operands[i]));
  std::vector<std::vector<Node>*> runs;
  for (size_t s = 0; s < stage; ++s) runs.push_back(&graph.stages[s].nodes);
  runs.push_back(&so_far);
  std::vector<ValueId> gradients = backpropagate(graph, world, runs, {&root, 1}, wrt);
  for (size_t i = 0; i < wrt.size(); ++i)
    if (gradients[i] == no_value)
      gradients[i] = GraphWorld::id_of(ops::zeros_like(world.value(wrt[i])));
  // Rules may emit compositions; a later grad has to go through them.
  emitted = decompose_nodes(graph, stage, std::move(emitted), substitute, Kept::differentiable);
  for (size_t i = 0; i < wrt.size(); ++i) {
    ValueId by = substitute(gradients[i]);
    substitute.replace(node.results[i], by);
    hand_name_over(graph, node.results[i], by);
  }
  return emitted;
}

}  // namespace

void expand_grad(Graph& graph) {
  settle_calls(graph);
  if (!has_grad(graph)) return;
  decompose(graph, true);  // sweeps want rules
  Substitute substitute(graph);
  for (size_t s = 0; s < graph.stages.size(); ++s) {
    Stage& stage = graph.stages[s];
    std::vector<Node> done;
    done.reserve(stage.nodes.size());
    for (Node& node : stage.nodes) {
      substitute.apply(node);
      if (!ops::is_gradient(node)) {
        done.push_back(std::move(node));
        continue;
      }
      for (Node& n : emit_sweep(graph, s, node, done, substitute)) done.push_back(std::move(n));
    }
    stage.nodes = std::move(done);
    substitute.apply(stage.results);
  }
}

}  // namespace gradus::ir
