#include <unordered_set>

#include "gradus/passes.h"
#include "gradus/registry.h"
#include "gradus/rewrite.h"
#include "ir/passes/graph_world.h"
#include "ops/collectives.h"
#include "ops/size_names.h"
#include "ops/structural.h"

namespace gradus::ir {

namespace {

bool to_be_taken_apart(const Node& node, Kept kept) {
  if (!node.op->runs_composed(node.attributes)) return false;
  if (kept == Kept::none || !node.op->has_vjp(node.attributes)) return true;
  return kept == Kept::batched && !node.op->batch && !ops::is_call(node);
}

// A call whose graph has sizes that data decide: with names for them that the program lacks.
Attributes with_own_names(const Graph& graph, const Node& node) {
  if (!ops::is_call(node)) return node.attributes;
  const auto called = ops::graphs_in(node);
  std::unordered_set<std::string> taken, passed;
  auto add_names = [](const Value& v, std::unordered_set<std::string>& to) {
    for (const Dim& d : v.type.dims)
      d.for_each_symbol([&](std::string_view symbol) { to.emplace(symbol); });
  };
  for (ValueId v : called[0]->graph->stages[0].inputs) add_names((*called[0]->graph)[v], passed);
  ops::Substitution names;
  for (const Node& inner : called[0]->graph->stages[0].nodes) {
    const auto count = ops::count_in(*inner.op, inner.attributes);
    if (!count) continue;
    const std::string first(count->symbol_name());
    if (first.empty() || names(first) || passed.contains(first)) continue;
    if (taken.empty())
      for (const Value& v : graph.values) add_names(v, taken);
    std::string name = first;
    for (int n = 2; !taken.insert(name).second; ++n) name = fmt::format("{}{}", first, n);
    names.dims.emplace_back(first, Dim::symbol(name));
  }
  if (names.dims.empty()) return node.attributes;
  SmallVector<std::shared_ptr<const Graph>, 2> graphs;
  for (const ops::GraphName* named : called) graphs.push_back(named->graph);
  graphs[0] = std::make_shared<const Graph>(ops::with_sizes(*graphs[0], names));
  return ops::with_graphs(node, graphs);
}

}  // namespace

void take_apart(Graph& graph, size_t stage, const Node& node, std::vector<Node>& nodes,
                Substitute& substitute) {
  GraphWorld world(graph, stage, nodes);
  world.set_place(node.where);
  SmallVector<ops::Value, 4> operands;
  for (const Operand& o : node.operands) operands.push_back(world.value(o));
  const Attributes attributes = with_own_names(graph, node);
  ops::ComposeCall call{*node.op, world, operands, attributes, {}};
  try {
    node.op->compose(call);
  } catch (const Error& e) {
    if (e.where().known()) throw;
    throw graph.error_at(node.where, fmt::format("{}: {}", node.op->name, e.bare()));
  }
  GRADUS_CHECK(call.results.size() == node.results.size());
  for (size_t i = 0; i < node.results.size(); ++i) {
    const Type& type = graph[node.results[i]].type;
    ValueId by = GraphWorld::id_of(same_sharing(call.results[i].type, type)
                                       ? call.results[i]
                                       : ops::share_as(call.results[i], type));
    substitute.replace(node.results[i], by);
    hand_name_over(graph, node.results[i], by);
  }
}

std::vector<Node> decompose_nodes(Graph& graph, size_t stage, std::vector<Node> nodes,
                                  Substitute& substitute, Kept kept) {
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
      if (!to_be_taken_apart(node, kept)) {
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
  const Kept kept = keep_differentiable ? Kept::differentiable : Kept::none;
  Substitute substitute(graph);
  for (size_t s = 0; s < graph.stages.size(); ++s) {
    Stage& stage = graph.stages[s];
    stage.nodes = decompose_nodes(graph, s, std::move(stage.nodes), substitute, kept);
    substitute.apply(stage.results);
  }
}

}  // namespace gradus::ir
