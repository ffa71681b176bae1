#include "ir/passes/loop_step.h"

#include <algorithm>
#include <unordered_set>

#include "gradus/passes.h"
#include "gradus/rewrite.h"
#include "ir/passes/backpropagate.h"

namespace gradus::ir {

Graph swept(const Graph& body) {
  Graph graph = body;
  expand_grad(graph);
  decompose(graph, true);
  return graph;
}

Attributes scan_of(ops::LoopForm form, std::string name, Graph body) {
  body.name = name;
  ops::GraphName named{std::move(name), std::make_shared<const Graph>(std::move(body))};
  return ops::scan_attributes(std::move(form), std::move(named));
}

bool takes_a_step(const Graph& graph, const Node& scan) {
  SmallVector<OperandType, 4> types;
  for (const Operand& o : scan.operands) types.push_back(graph.type_of(o));
  const Dim steps = ops::steps_of(*ops::loop_in(scan)->form, types);
  return steps.is_constant() && steps.value() > 0;
}

Activity activity(Graph& body, size_t carries, Flags inputs, bool certain) {
  Stage& stage = body.stages[0];
  for (;;) {
    std::vector<ValueId> wrt;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] && body[stage.inputs[i]].type.is_floating()) wrt.push_back(stage.inputs[i]);
    const std::span<Node> nodes(stage.nodes);
    const Flags dependent = find_dependent(body, {&nodes, 1}, wrt);
    Flags results;
    for (const Result& r : stage.results)
      results.push_back(body[r.value].type.is_floating() && dependent[index_of(r.value)]);
    bool grew = false;
    for (size_t i = 0; i < carries; ++i)
      if (results[i] && !inputs[i]) inputs[i] = grew = true;
    if (grew) continue;
    for (size_t i = 0; i < carries && !certain; ++i)
      if (inputs[i] && body[stage.inputs[i]].type.is_floating()) results[i] = true;
    return {std::move(inputs), std::move(results)};
  }
}

namespace {

void add_symbols(const Dim& d, DimensionNames& names) {
  d.for_each_symbol([&](std::string_view name) { names.emplace(name); });
}
void add_symbols(const Literal& l, DimensionNames& names) {
  if (const auto* d = std::get_if<Dim>(&l.value)) add_symbols(*d, names);
  if (const auto* list = std::get_if<std::vector<Literal>>(&l.value))
    for (const Literal& item : *list) add_symbols(item, names);
}

}  // namespace

DimensionNames symbols_of(const Graph& graph) {
  DimensionNames names;
  const Stage& stage = graph.stages[0];
  for (ValueId v : stage.inputs)
    for (const Dim& d : graph[v].type.dims) add_symbols(d, names);
  for (const Node& node : stage.nodes) {
    for (const NamedLiteral& a : node.op->write(node.attributes)) add_symbols(a.value, names);
    for (const Operand& o : node.operands)
      if (const auto* d = std::get_if<Dim>(&o)) add_symbols(*d, names);
  }
  return names;
}

DimensionNames unsettled(const Graph& graph, std::span<const ValueId> inputs) {
  std::vector<const Type*> types;
  for (ValueId v : inputs) types.push_back(&graph[v].type);
  DimensionNames known, left;
  settle_names(types, known);
  for (const Node& node : graph.stages[0].nodes)
    if (const auto count = ops::count_in(*node.op, node.attributes)) add_symbols(*count, known);
  for (const std::string& name : symbols_of(graph))
    if (!known.contains(name)) left.insert(name);
  return left;
}

bool settles_by_data(const Graph& graph) {
  return std::ranges::any_of(graph.stages[0].nodes,
                             [](const Node& node) { return bool(node.op->data_sized); });
}

bool names_one(const Type& type, const DimensionNames& names) {
  DimensionNames own;
  for (const Dim& d : type.dims) add_symbols(d, own);
  return std::ranges::any_of(own, [&](const std::string& n) { return names.contains(n); });
}

void name_inputs(Graph& graph) {
  std::unordered_set<std::string> taken;
  for (const Value& v : graph.values) taken.insert(v.name);
  std::unordered_set<std::string> seen;
  size_t next = 0;
  for (ValueId v : graph.stages[0].inputs) {
    std::string& name = graph[v].name;
    if (!name.empty() && seen.insert(name).second) continue;
    do name = fmt::format("in{}", next++);
    while (!taken.insert(name).second || !seen.insert(name).second);
  }
}

LoopStep differentiate_step(const Graph& body, const Flags& active, std::span<const size_t> order,
                            const Flags& summed) {
  LoopStep s{body, {}, {}, {}, {}};
  Graph& g = s.graph;
  g.stages.emplace_back();
  const Stage& forward = g.stages[0];
  std::vector<Root> roots;
  auto input = [&](ValueId like) {
    const ValueId v = g.add_value(Type(g[like].type), {}, 1);
    g.stages[1].inputs.push_back(v);
    roots.push_back({like, v});
    return v;
  };
  s.cotangents.assign(forward.results.size(), no_value);
  for (size_t i : order) s.cotangents[i] = input(forward.results[i].value);
  s.sums.assign(forward.inputs.size(), no_value);
  for (size_t i = 0; i < summed.size(); ++i)
    if (summed[i]) s.sums[i] = input(forward.inputs[i]);
  auto is_active = [&](size_t i) {
    return active[i] && body[body.stages[0].inputs[i]].type.is_floating();
  };
  std::vector<ValueId> wrt;
  for (size_t i = 0; i < forward.inputs.size(); ++i)
    if (is_active(i)) wrt.push_back(forward.inputs[i]);

  std::vector<Node> emitted;
  GraphWorld world(g, 1, emitted);
  std::vector<Node>* const step = &g.stages[0].nodes;
  Flags sums;
  std::vector<ValueId> found = backpropagate(g, world, {&step, 1}, roots, wrt, &sums);
  Substitute substitute(g);
  g.stages[1].nodes = decompose_nodes(g, 1, std::move(emitted), substitute, Kept::differentiable);
  size_t next = 0;
  for (size_t i = 0; i < forward.inputs.size(); ++i) {
    const bool active_here = is_active(i);
    s.added.push_back(active_here && sums[next]);
    s.gradients.push_back(active_here ? substitute(found[next++]) : no_value);
  }
  for (ValueId v : s.gradients)
    if (v != no_value) g.stages[1].results.push_back({{}, v});
  eliminate_dead_code(g, 1);
  return s;
}

}  // namespace gradus::ir
