#include "ir/passes/count_trips.h"

#include <algorithm>

#include "gradus/registry.h"
#include "gradus/rules.h"
#include "ir/passes/backpropagate.h"
#include "ir/passes/graph_world.h"
#include "ir/text/settle.h"
#include "ops/control_flow.h"
#include "ops/selection.h"
#include "ops/structural.h"

namespace gradus::ir {

namespace {

bool is_data_loop(const Node& node) {
  return node.op && ops::data_loop_in(*node.op, node.attributes).has_value();
}

// Another name than every value and result of the graph has.
std::string free_name(const Graph& graph, std::string name) {
  auto taken = [&](const std::string& n) {
    const auto& results = graph.stages[0].results;
    return std::ranges::any_of(graph.values, [&](const Value& v) { return v.name == n; }) ||
           std::ranges::any_of(results, [&](const Result& r) { return r.name == n; });
  };
  const std::string first = name;
  for (int n = 2; taken(name); ++n) name = fmt::format("{}{}", first, n);
  return name;
}

// The graph with an input i64[] more at `place`.
Graph with_number(const Graph& graph, size_t place) {
  Graph g = graph;
  const ValueId n = g.add_value(Type(DType::i64, {}), free_name(g, "trips"), 0);
  auto& inputs = g.stages[0].inputs;
  inputs.insert(inputs.begin() + static_cast<ptrdiff_t>(place), n);
  g.name += "_counted";
  return g;
}

ops::GraphName named(Graph graph) {
  std::string name = graph.name;
  return {std::move(name), std::make_shared<const Graph>(std::move(graph))};
}

// The loop that counts its steps in its last carry.
Attributes counting(const ops::DataLoop& loop) {
  Graph body = with_number(*loop.body, loop.carries);
  Stage& stage = body.stages[0];
  GraphWorld world(body, 0, stage.nodes);
  const ops::Value n = world.value(stage.inputs[loop.carries]);
  stage.results.push_back(
      {free_name(body, "next_trips"), GraphWorld::id_of(n + ops::num(int64_t{1}))});
  return ops::while_attributes(static_cast<int64_t>(loop.carries) + 1,
                               named(with_number(*loop.condition, loop.carries)),
                               named(std::move(body)), *loop.max_trips, {}, *loop.failure);
}

// The nodes that take the loop's place; the last is the scan, with its results.
std::vector<Node> counted(Graph& graph, size_t stage, const Node& node, const std::string& size) {
  const ops::DataLoop loop = *ops::data_loop_in(*node.op, node.attributes);
  std::vector<Node> nodes;
  GraphWorld world(graph, stage, nodes);
  world.set_place(node.where);
  SmallVector<ops::Value, 4> operands;
  for (size_t i = 0; i <= node.operands.size(); ++i) {
    if (i == loop.carries) operands.push_back(ops::full(world, {}, 0, DType::i64));
    if (i < node.operands.size()) operands.push_back(world.value(node.operands[i]));
  }
  const auto last = world.emit(ops::while_operator(), counting(loop), operands);
  world.emit(ops::range_operator(), ops::range_attributes(Dim::symbol(size)),
             std::array{last.back()});
  Node scan = node;
  ops::LoopForm form;
  form.carries = static_cast<int64_t>(loop.carries);
  form.length = Dim::symbol(size);
  form.checkpoint = *loop.checkpoint;
  scan.op = &ops::scan_operator();
  scan.attributes = ops::scan_attributes(std::move(form), *ops::graphs_in(node)[1]);
  nodes.push_back(std::move(scan));
  return nodes;
}

// By value. Nobody reads the carries of a loop that counts.
std::vector<bool> used_in(const Graph& graph, std::span<std::vector<Node>* const> runs,
                          std::span<const Root> roots) {
  std::vector<bool> used(graph.values.size());
  auto use = [&](ValueId v) {
    if (v != no_value) used[index_of(v)] = true;
  };
  for (const std::vector<Node>* nodes : runs)
    for (const Node& node : *nodes)
      for (const Operand& o : node.operands) use(value_in(o));
  for (const Stage& stage : graph.stages)
    for (const Result& r : stage.results) use(r.value);
  for (const Root& r : roots) use(r.value);
  return used;
}

}  // namespace

std::vector<std::span<Node>> spans_of(std::span<std::vector<Node>* const> runs) {
  std::vector<std::span<Node>> spans;
  for (std::vector<Node>* nodes : runs) spans.push_back(*nodes);
  return spans;
}

void count_trips(Graph& graph, std::span<std::vector<Node>* const> runs,
                 std::span<const Root> roots, std::span<const ValueId> wrt) {
  if (std::ranges::none_of(runs, [](auto* r) { return std::ranges::any_of(*r, is_data_loop); }))
    return;
  const std::vector<bool> dependent = find_dependent(graph, spans_of(runs), wrt),
                          used = used_in(graph, runs, roots);
  DimensionNames taken;
  for (const Value& v : graph.values)
    for (const Dim& d : v.type.dims)
      d.for_each_symbol([&](std::string_view name) { taken.emplace(name); });
  for (size_t r = 0; r < runs.size(); ++r) {
    std::vector<Node> done;
    done.reserve(runs[r]->size());
    for (Node& node : *runs[r]) {
      const bool passes = is_data_loop(node) && std::ranges::any_of(node.results, [&](ValueId y) {
                            return dependent[index_of(y)] && used[index_of(y)];
                          });
      if (!passes) {
        done.push_back(std::move(node));
        continue;
      }
      std::string size = "trips";
      for (int n = 2; !taken.insert(size).second; ++n) size = fmt::format("trips{}", n);
      for (Node& n : counted(graph, r, node, size)) done.push_back(std::move(n));
    }
    *runs[r] = std::move(done);
  }
}

void count_trips(Graph& graph) {
  std::vector<std::vector<Node>*> runs;
  std::vector<ValueId> inputs;
  for (Stage& stage : graph.stages) {
    runs.push_back(&stage.nodes);
    inputs.insert(inputs.end(), stage.inputs.begin(), stage.inputs.end());
  }
  count_trips(graph, runs, {}, inputs);
}

}  // namespace gradus::ir
