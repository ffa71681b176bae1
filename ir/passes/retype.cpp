#include <algorithm>
#include <unordered_map>

#include "gradus/passes.h"
#include "gradus/registry.h"
#include "ops/roles.h"
#include "ops/structural.h"

namespace gradus::ir {

namespace {

void retype(Literal& l, DType dtype) {
  if (auto* d = std::get_if<DType>(&l.value)) {
    if (is_floating(*d)) *d = dtype;
  } else if (auto* t = std::get_if<Tensor>(&l.value)) {
    if (is_floating(t->dtype())) *t = t->to(dtype);
  } else if (auto* list = std::get_if<std::vector<Literal>>(&l.value)) {
    for (Literal& item : *list) retype(item, dtype);
  }
}

// One program and the graphs it calls, each once.
class Retyper {
 public:
  explicit Retyper(DType dtype) : dtype_(dtype) {}

  Graph retyped(const Graph& original) {
    Graph graph = original;
    for (size_t s = 0; s < graph.stages.size(); ++s) {
      Stage& stage = graph.stages[s];
      for (ValueId v : stage.inputs)
        if (graph[v].type.is_floating()) graph[v].type.dtype = dtype_;
      std::vector<Node> nodes;
      nodes.reserve(stage.nodes.size());
      for (Node& node : stage.nodes) retype_node(graph, s, std::move(node), nodes);
      stage.nodes = std::move(nodes);
    }
    return graph;
  }

 private:
  void retype_node(Graph& graph, size_t stage, Node node, std::vector<Node>& nodes) {
    node.attributes = retyped(node);
    SmallVector<Type, 2> types;
    try {
      types = ops::infer(graph, node, nullptr);
    } catch (const Error& e) {  // a function that does not take this dtype
      if (e.where().known()) throw;
      throw graph.error_at(node.where, e.bare());
    }
    std::vector<Node> casts;
    for (size_t i = 0; i < types.size(); ++i) {
      ValueId y = node.results[i];
      graph[y].type = types[i];
      if (!types[i].is_floating() || types[i].dtype == dtype_) continue;
      // Integers have made a float of the default type: a quotient of two of them, i64 with 2.5.
      node.results[i] = graph.add_value(types[i], {}, stage);
      graph[y].type.dtype = dtype_;
      casts.push_back(ops::cast_node(node.results[i], y, dtype_, node.where));
    }
    nodes.push_back(std::move(node));
    for (Node& cast : casts) nodes.push_back(std::move(cast));
  }

  // What names graphs goes on naming them, of the new type.
  Attributes with_retyped_graphs(const Node& node) {
    SmallVector<std::shared_ptr<const Graph>, 2> graphs;
    for (const ops::GraphName* named : ops::graphs_in(node)) {
      const Graph* before = named->graph.get();
      auto it = callees_.find(before);
      if (it == callees_.end())
        it = callees_.emplace(before, std::make_shared<const Graph>(retyped(*before))).first;
      graphs.push_back(it->second);
    }
    return ops::with_graphs(node, graphs);
  }

  // Attributes with every floating dtype and constant changed, defaults included.
  Attributes retyped(const Node& node) {
    if (node.op->graphs) return with_retyped_graphs(node);
    LiteralList list = node.op->write(node.attributes);
    for (const NamedLiteral& d : node.op->describe()) {
      const auto* default_dtype = std::get_if<DType>(&d.value.value);
      bool written =
          std::any_of(list.begin(), list.end(), [&](auto& a) { return a.name == d.name; });
      if (default_dtype && !written) list.push_back(d);
    }
    if (list.empty()) return node.attributes;
    bool any = false;
    for (NamedLiteral& a : list) {
      std::string before = to_string(a.value);
      retype(a.value, dtype_);
      any |= std::holds_alternative<Tensor>(a.value.value) || to_string(a.value) != before;
    }
    return any ? ops::with_literals(node, list) : node.attributes;
  }

  DType dtype_;
  std::unordered_map<const Graph*, std::shared_ptr<const Graph>> callees_;
};

}  // namespace

Graph retype_floating(const Graph& original, DType dtype) {
  return Retyper(dtype).retyped(original);
}

}  // namespace gradus::ir
