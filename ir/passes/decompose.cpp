#include "gradus/passes.h"
#include "gradus/rewrite.h"
#include "ir/passes/graph_world.h"

namespace gradus::ir {

namespace {

bool to_be_taken_apart(const Node& node, bool keep_differentiable) {
  if (!node.op->runs_composed(node.attributes)) return false;
  return !(keep_differentiable && node.op->has_vjp(node.attributes));
}

}  // namespace

void take_apart(Graph& graph, size_t stage, const Node& node, std::vector<Node>& nodes,
                Substitute& substitute) {
  GraphWorld world(graph, stage, nodes);
  world.set_place(node.where);
  SmallVector<ops::Value, 4> operands;
  for (const Operand& o : node.operands) operands.push_back(world.value(o));
  ops::ComposeCall call{*node.op, world, operands, node.attributes, {}};
  try {
    node.op->compose(call);
  } catch (const Error& e) {
    if (e.where().known()) throw;
    throw graph.error_at(node.where, fmt::format("{}: {}", node.op->name, e.bare()));
  }
  GRADUS_CHECK(call.results.size() == node.results.size());
  for (size_t i = 0; i < node.results.size(); ++i) {
    ValueId by = GraphWorld::id_of(call.results[i]);
    substitute.replace(node.results[i], by);
    hand_name_over(graph, node.results[i], by);
  }
}

std::vector<Node> decompose_nodes(Graph& graph, size_t stage, std::vector<Node> nodes,
                                  Substitute& substitute, bool keep_differentiable) {
  std::vector<Node> done;
  done.reserve(nodes.size());
  // Compositions may emit compositions: what is emitted is looked at again, as a stack.
  std::vector<Node> pending;
  for (Node& next : nodes) {
    pending.push_back(std::move(next));
    while (!pending.empty()) {
      Node node = std::move(pending.back());
      pending.pop_back();
      substitute.apply(node);
      if (!to_be_taken_apart(node, keep_differentiable)) {
        refuse_too_many_nodes(done.size());
        done.push_back(std::move(node));
        continue;
      }
      std::vector<Node> emitted;
      take_apart(graph, stage, node, emitted, substitute);
      for (; !emitted.empty(); emitted.pop_back()) pending.push_back(std::move(emitted.back()));
    }
  }
  return done;
}

void decompose(Graph& graph, bool keep_differentiable) {
  settle_calls(graph);
  Substitute substitute(graph);
  for (size_t s = 0; s < graph.stages.size(); ++s) {
    Stage& stage = graph.stages[s];
    stage.nodes =
        decompose_nodes(graph, s, std::move(stage.nodes), substitute, keep_differentiable);
    substitute.apply(stage.results);
  }
}

}  // namespace gradus::ir
