#include "gradus/passes.h"
#include "gradus/registry.h"
#include "ir/passes/loops.h"

namespace gradus::ir {

namespace {

bool leaves_handle(const Graph& graph, const Node& node) {
  return node.op->traits.opaque && !node.results.empty() &&
         !graph[node.results.back()].type.is_tensor();
}

bool settles_size(const Node& node) {
  auto count = ops::count_in(*node.op, node.attributes);
  return count && !count->is_constant();
}

}  // namespace

void eliminate_dead_code(Graph& graph, size_t first_stage) {
  std::vector<bool> used(graph.values.size(), false);
  auto use = [&](ValueId v) {
    if (v != no_value) used[index_of(v)] = true;
  };
  for (size_t s = graph.stages.size(); s-- > 0;) {
    Stage& stage = graph.stages[s];
    for (const Result& r : stage.results) use(r.value);
    std::vector<bool> keep(stage.nodes.size(), true);
    for (size_t n = stage.nodes.size(); n-- > 0;) {
      Node& node = stage.nodes[n];
      if (s >= first_stage) {
        if (leaves_handle(graph, node) && !used[index_of(node.results.back())])
          node.results.pop_back();
        // One that settles a size stays: sizes have no uses that could be looked for here.
        bool needed = node.op->traits.acts || (node.op->data_sized && settles_size(node));
        for (ValueId y : node.results) needed |= used[index_of(y)];
        keep[n] = needed;
        if (!needed) continue;
        if (node.op->traits.loop) {
          std::vector<bool> read;
          for (ValueId y : node.results) read.push_back(used[index_of(y)]);
          prune_loop(graph, node, read);
        }
      }
      for (const Operand& o : node.operands) use(value_in(o));
    }
    size_t kept = 0;
    for (size_t n = 0; n < stage.nodes.size(); ++n)
      if (keep[n]) {
        if (kept != n) stage.nodes[kept] = std::move(stage.nodes[n]);
        ++kept;
      }
    stage.nodes.resize(kept);
  }
}

void compact(Graph& graph) {
  std::vector<ValueId> to(graph.values.size(), no_value);
  std::vector<Value> values;
  auto define = [&](ValueId& v) {
    to[index_of(v)] = static_cast<ValueId>(values.size());
    values.push_back(std::move(graph[v]));
    v = to[index_of(v)];
  };
  for (Stage& stage : graph.stages) {
    for (ValueId& v : stage.inputs) define(v);
    for (Node& node : stage.nodes) {
      for (Operand& o : node.operands)
        if (ValueId* v = std::get_if<ValueId>(&o)) *v = to[index_of(*v)];
      for (ValueId& v : node.results) define(v);
    }
    for (Result& r : stage.results)
      if (r.value != no_value) r.value = to[index_of(r.value)];
  }
  graph.values = std::move(values);
}

}  // namespace gradus::ir
