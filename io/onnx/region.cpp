#include "io/onnx/region.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "gradus/messages.h"
#include "gradus/passes.h"
#include "gradus/registry.h"
#include "gradus/text.h"
#include "ir/passes/loop_step.h"

namespace gradus::onnx {

namespace {

std::vector<ir::Node>& program_nodes(Importer& importer) {
  return importer.program().graph().stages[0].nodes;
}

// Takes the nodes from `mark` on out of the program, but those that depend on nothing.
std::vector<ir::Node> take_out(Importer& importer, size_t mark) {
  std::vector<ir::Node>& all = program_nodes(importer);
  std::vector<ir::Node> taken, stay;
  std::unordered_set<ir::ValueId> constant;
  for (size_t n = mark; n < all.size(); ++n) {
    ir::Node& node = all[n];
    const bool stays = std::ranges::all_of(node.operands, [&](const ir::Operand& o) {
      const ir::ValueId v = ir::value_in(o);
      return v == ir::no_value || constant.contains(v);
    });
    if (stays) constant.insert(node.results.begin(), node.results.end());
    (stays ? stay : taken).push_back(std::move(node));
  }
  all.resize(mark);
  for (ir::Node& node : stay) all.push_back(std::move(node));
  return taken;
}

void find_captured(Region& r) {
  std::unordered_set<ir::ValueId> own(r.inputs.begin(), r.inputs.end());
  auto read = [&](ir::ValueId v) {
    if (v != ir::no_value && own.insert(v).second) r.captured.push_back(v);
  };
  for (const ir::Node& node : r.nodes) {
    for (const ir::Operand& o : node.operands) read(ir::value_in(o));
    own.insert(node.results.begin(), node.results.end());
  }
  for (ir::ValueId v : r.results) read(v);
}

// In all rounds, and by either branch, a result has one size.
void refuse_results_by_data(const ir::Graph& g) {
  std::set<std::string, std::less<>> counted;
  for (const ir::Node& n : g.stages[0].nodes)
    if (const auto count = ops::count_in(*n.op, n.attributes))
      count->for_each_symbol([&](std::string_view name) { counted.emplace(name); });
  for (const ir::Result& r : g.stages[0].results)
    for (const Dim& d : g[r.value].type.dims)
      d.for_each_symbol([&](std::string_view name) {
        if (counted.contains(name))
          throw Unsupported(
              fmt::format("the inner graph '{}' has a result with a size that data decides",
                          g.name),
              "an inner graph with a result whose size data decides");
      });
}

}  // namespace

Value region_input(Importer& importer, ir::Type type, const std::string& name) {
  ir::Graph& graph = importer.program().graph();
  return importer.program().world().value(graph.add_value(std::move(type), name, 0));
}

Region record_region(Importer& importer, std::vector<ir::ValueId> inputs,
                     const std::function<std::vector<Value>()>& make) {
  const size_t mark = program_nodes(importer).size();
  Region r;
  r.inputs = std::move(inputs);
  try {
    for (const Value& v : make()) r.results.push_back(ir::GraphWorld::id_of(v));
  } catch (...) {
    take_out(importer, mark);
    throw;
  }
  r.nodes = take_out(importer, mark);
  find_captured(r);
  return r;
}

std::vector<ir::ValueId> all_captured(std::span<const Region* const> regions) {
  std::vector<ir::ValueId> all;
  for (const Region* r : regions)
    for (ir::ValueId v : r->captured)
      if (std::ranges::find(all, v) == all.end()) all.push_back(v);
  return all;
}

ops::GraphName graph_of(Importer& importer, const Region& region,
                        std::span<const ir::ValueId> captured, const std::string& name) {
  const ir::Graph& program = importer.program().graph();
  ir::Graph g;
  g.name = name.empty() ? "inner" : printable(name);
  g.source = program.source;
  g.stages.resize(1);
  ir::Stage& stage = g.stages[0];
  std::unordered_map<ir::ValueId, ir::ValueId> to;
  auto copy = [&](ir::ValueId v) {
    auto [it, is_new] = to.try_emplace(v);
    if (is_new) it->second = g.add_value(ir::Type(program[v].type), program[v].name, 0);
    return it->second;
  };
  for (ir::ValueId v : region.inputs) stage.inputs.push_back(copy(v));
  for (ir::ValueId v : captured) stage.inputs.push_back(copy(v));
  for (const ir::Node& node : region.nodes) {
    ir::Node& n = stage.nodes.emplace_back(node);
    for (ir::Operand& o : n.operands)
      if (const ir::ValueId v = ir::value_in(o); v != ir::no_value) o = copy(v);
    for (ir::ValueId& v : n.results) v = copy(v);
  }
  for (ir::ValueId v : region.results)
    stage.results.push_back({fmt::format("r{}", stage.results.size()), copy(v)});
  ir::name_inputs(g);
  ir::eliminate_dead_code(g);
  ir::compact(g);
  refuse_results_by_data(g);
  if (const auto unknown = ir::unsettled(g, stage.inputs); !unknown.empty())
    throw Unsupported(
        fmt::format("the inner graph '{}' has the size {}, which none of its inputs has", g.name,
                    *unknown.begin()),
        "an inner graph with a size that none of its inputs has");
  ir::verify(g);
  return {g.name, std::make_shared<const ir::Graph>(std::move(g))};
}

}  // namespace gradus::onnx
