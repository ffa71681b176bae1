// Parts of staged programs as programs of their own, with names of their own.
#include <algorithm>
#include <unordered_set>

#include "gradus/passes.h"
#include "gradus/rewrite.h"
#include "gradus/rules.h"
#include "ir/passes/graph_world.h"

namespace gradus::ir {

namespace {

// Of the only stage: what reads an input named by `absent` reads zeros, and the input goes.
void leave_out(Graph& graph, const std::vector<std::string>& absent) {
  std::unordered_set<std::string_view> left(absent.begin(), absent.end());
  Substitute substitute(graph);
  std::vector<Node> nodes;
  GraphWorld world(graph, 0, nodes);
  std::vector<ValueId> kept;
  for (ValueId v : graph.stages[0].inputs) {
    if (left.erase(graph[v].name) == 0) {
      kept.push_back(v);
      continue;
    }
    const Type type = graph[v].type;
    substitute.replace(v, GraphWorld::id_of(ops::zeros_of(world, type)));
  }
  if (!left.empty()) throw Error("there is no input '{}' to leave out", *left.begin());
  Stage& stage = graph.stages[0];
  stage.inputs = std::move(kept);
  for (Node& node : stage.nodes) {
    substitute.apply(node);
    nodes.push_back(std::move(node));
  }
  stage.nodes = std::move(nodes);
  substitute.apply(stage.results);
}

}  // namespace

Graph join_stages(const Graph& graph, size_t from, const std::vector<std::string>& absent) {
  if (from >= graph.stages.size())
    throw Error("there is no stage {}: '{}' has {}", from, graph.name, graph.stages.size());
  Graph joined = graph;
  expand_grad(joined);
  Stage one;
  for (size_t s = 0; s < joined.stages.size(); ++s) {
    Stage& stage = joined.stages[s];
    one.inputs.insert(one.inputs.end(), stage.inputs.begin(), stage.inputs.end());
    std::ranges::move(stage.nodes, std::back_inserter(one.nodes));
    if (s >= from) std::ranges::move(stage.results, std::back_inserter(one.results));
  }
  joined.stages.clear();
  joined.stages.push_back(std::move(one));
  for (Value& v : joined.values) v.stage = 0;
  leave_out(joined, absent);
  eliminate_dead_code(joined);
  compact(joined);
  return joined;
}

Graph rename(const Graph& graph, const std::vector<std::string>& inputs,
             const std::vector<std::string>& results) {
  Graph renamed = graph;
  if (graph.stages.size() != 1)
    throw Error("rename takes a program of one stage; '{}' has {}", graph.name,
                graph.stages.size());
  Stage& stage = renamed.stages[0];
  if (inputs.size() != stage.inputs.size() || results.size() != stage.results.size())
    throw Error("rename takes a name for each input and result: {} and {}", stage.inputs.size(),
                stage.results.size());
  for (Value& v : renamed.values) v.name.clear();
  for (size_t i = 0; i < inputs.size(); ++i) renamed[stage.inputs[i]].name = inputs[i];
  for (size_t i = 0; i < results.size(); ++i) stage.results[i].name = results[i];
  return renamed;
}

Graph select_results(const Graph& graph, const std::vector<std::string>& names) {
  if (graph.stages.size() != 1)
    throw Error("select_results takes a program of one stage; '{}' has {}", graph.name,
                graph.stages.size());
  Graph selected = graph;
  std::vector<Result> results;
  for (const std::string& name : names) {
    auto it = std::ranges::find(graph.stages[0].results, name, &Result::name);
    if (it == graph.stages[0].results.end()) throw Error("there is no result '{}'", name);
    results.push_back(*it);
  }
  selected.stages[0].results = std::move(results);
  eliminate_dead_code(selected);
  compact(selected);
  return selected;
}

}  // namespace gradus::ir
