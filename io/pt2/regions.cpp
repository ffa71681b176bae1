#include "io/pt2/regions.h"

#include <algorithm>

#include "gradus/messages.h"
#include "gradus/passes.h"
#include "gradus/text.h"
#include "ops/control_flow.h"

namespace gradus::pt2 {

namespace {

// Whether a value is complex is a matter of its name: what a region calls it has to agree.
void check_rank(const Subgraph& region, const std::string& name, const TensorPtr& tensor) {
  auto it = region.tensors.find(name);
  if (it == region.tensors.end()) return;
  if (static_cast<size_t>(tensor->read().rank()) != type_of(it->second).dims.size())
    throw Error("the region's input '{}' has another type than what it is given", printable(name));
}

}  // namespace

std::vector<TensorPtr> Regions::run_graph(const Subgraph& graph, std::vector<TensorPtr> inputs) {
  if (inputs.size() != graph.inputs.size())
    throw Error("the region takes {} inputs, {} are given", graph.inputs.size(), inputs.size());
  Scope scope;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (const auto* name = std::get_if<TensorName>(&graph.inputs[i]); name && inputs[i]) {
      check_rank(graph, name->name, inputs[i]);
      scope[name->name] = inputs[i];
    }
  in_.run_nodes(graph, scope);
  std::vector<TensorPtr> results;
  for (const Argument& o : graph.outputs) {
    if (std::holds_alternative<Dim>(o) || std::holds_alternative<NumberName>(o)) continue;
    const auto* name = std::get_if<TensorName>(&o);
    auto it = name ? scope.find(name->name) : scope.end();
    if (it == scope.end()) throw Error("the region does not give its outputs as tensors");
    results.push_back(it->second);
  }
  return results;
}

std::vector<TensorPtr> Regions::run_without_grad(const Subgraph& graph,
                                                 std::vector<TensorPtr> inputs) {
  ++in_.no_grad_;
  std::vector<TensorPtr> results = run_graph(graph, inputs);
  --in_.no_grad_;
  for (TensorPtr& r : results) {
    if (std::ranges::find(inputs, r) != inputs.end() || !is_floating(r->read().dtype())) continue;
    r = std::make_shared<TensorValue>(ops::detach(r->read()));
  }
  return results;
}

bool Regions::run_in_place(const Node& node, Scope& scope) {
  // Autocast has arguments of its own before the region: device, dtype, whether it is on.
  const bool cast = node.target.ends_with(".wrap_with_autocast");
  const size_t flag = cast ? 2 : 0, at = cast ? 4 : 1;
  if (!cast && !node.target.ends_with(".wrap_with_set_grad_enabled")) return false;
  if (node.inputs.size() <= at) return false;
  const bool* on = std::get_if<bool>(&node.inputs[flag].value);
  const auto* region = std::get_if<std::shared_ptr<Subgraph>>(&node.inputs[at].value);
  if (!on || !region) return false;
  if (cast && *on) throw Error("autocast is not supported; export the model in the wanted dtype");
  std::vector<TensorPtr> inputs;
  for (size_t i = at + 1; i < node.inputs.size(); ++i) {
    const auto* name = std::get_if<TensorName>(&node.inputs[i].value);
    inputs.push_back(name ? in_.find(name->name) : nullptr);
  }
  // The region's own names of numbers hold within it alone.
  const auto numbers = in_.numbers_;
  const std::vector<Argument>& own = (*region)->inputs;
  for (size_t i = 0; i < own.size() && at + 1 + i < node.inputs.size(); ++i)
    if (const auto* name = std::get_if<NumberName>(&own[i]))
      in_.numbers_[name->name] = in_.float_of(node.inputs[at + 1 + i].value);
  auto results = *on || cast ? run_graph(**region, inputs) : run_without_grad(**region, inputs);
  std::map<std::string, Value> given;  // sizes are known as expressions
  for (size_t i = 0; i < node.outputs.size() && i < (*region)->outputs.size(); ++i)
    if (const auto* name = std::get_if<NumberName>(&(*region)->outputs[i]))
      if (const auto* outer = std::get_if<NumberName>(&node.outputs[i]))
        given.emplace(outer->name, in_.number(name->name));
  for (const Node& inner : (*region)->nodes)
    for (const Argument& o : inner.outputs)
      if (const auto* name = std::get_if<NumberName>(&o)) in_.numbers_.erase(name->name);
  for (const Argument& i : own)
    if (const auto* name = std::get_if<NumberName>(&i)) in_.numbers_.erase(name->name);
  for (const auto& [name, value] : numbers) in_.numbers_[name] = value;
  for (const auto& [name, value] : given) in_.numbers_[name] = value;
  std::vector<std::string> names;
  for (const Argument& o : node.outputs)
    for_each_name(o, [&](const std::string& name) { names.push_back(name); });
  if (names.size() != results.size())
    throw Error("the region gives {} tensors, and the node names {}", results.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) in_.bind(names[i], results[i], scope);
  return true;
}

namespace {

const Subgraph& region_at(const Node& node, size_t i) {
  if (i < node.inputs.size())
    if (const auto* region = std::get_if<std::shared_ptr<Subgraph>>(&node.inputs[i].value))
      return **region;
  throw Error("its argument {} is no region", i);
}

// An empty list says nothing of its kind.
TensorNames tensors_at(const Node& node, size_t i) {
  if (i >= node.inputs.size()) throw Error("its argument {} is missing", i);
  const Argument& a = node.inputs[i].value;
  if (const auto* list = std::get_if<TensorNames>(&a)) return *list;
  if (const auto* none = std::get_if<Dims>(&a); none && none->empty()) return {};
  throw Error("its argument {} is no list of tensors", i);
}

}  // namespace

// The region as a graph that a loop or branch runs.
ops::GraphName Regions::graph_of(const Subgraph& region) const {
  Importer inner(in_.program_, in_.archive_, in_.lines_);
  inner.note_reads(region);
  inner.subgraph_ = &region;
  inner.no_grad_ = in_.no_grad_;
  Scope scope;
  for (const Argument& i : region.inputs) {
    const auto* name = std::get_if<TensorName>(&i);
    if (!name) throw Error("the region '{}' takes what is no tensor", printable(region.name));
    scope[name->name] = inner.add_input(name->name, type_of(inner.meta(name->name)));
  }
  inner.run_nodes(region, scope);
  for (const Argument& o : region.outputs) {
    const auto* name = std::get_if<TensorName>(&o);
    auto it = name ? scope.find(name->name) : scope.end();
    if (it == scope.end()) throw Error("the region does not give its outputs as tensors");
    inner.add_result(name->name, it->second->read());
  }
  for (const Importer::Input& i : inner.inputs_)
    if (i.tensor->memory().writes > 0)
      throw Error("the region '{}' writes to its input '{}', which is not supported",
                  printable(region.name), printable(i.name));
  ir::Graph& graph = inner.graph_;
  graph.name = region.name;
  ir::eliminate_dead_code(graph);
  ir::compact(graph);
  ir::verify(graph);
  return {graph.name, std::make_shared<const ir::Graph>(std::move(graph))};
}

// Appends the tensors of the list that argument i is; their number.
size_t Regions::add_operands(const Node& node, size_t i, std::vector<Value>& operands) const {
  const TensorNames names = tensors_at(node, i);
  for (const auto& name : names) {
    if (!name) throw Error("its argument {} lacks a tensor", i);
    operands.push_back(in_.find(*name)->read());
  }
  return names.size();
}

// A graph, then `lists` of tensors: carries, sequences, constants, the first ones left out.
void Regions::run_scan(const Node& node, size_t lists, Scope& scope) {
  const Subgraph& region = region_at(node, 0);
  std::vector<Value> operands;
  ops::LoopForm form;
  for (size_t k = 0; k < lists; ++k) {
    const size_t added = add_operands(node, 1 + k, operands);
    if (k + 3 == lists) form.carries = static_cast<int64_t>(added);
    if (k + 2 == lists) form.sequences = static_cast<int64_t>(added);
  }
  if (operands.size() != region.inputs.size())
    throw Error("the region takes {} inputs, {} are given", region.inputs.size(), operands.size());
  bind_all(
      node,
      in_.world_.emit(ops::scan_operator(), ops::scan_attributes(form, graph_of(region)), operands),
      scope);
}

// A condition and a body, then two lists of tensors: carries, constants.
void Regions::run_while(const Node& node, Scope& scope) {
  const Subgraph &condition = region_at(node, 0), &body = region_at(node, 1);
  std::vector<Value> operands;
  const size_t carries = add_operands(node, 2, operands);
  add_operands(node, 3, operands);
  for (const Subgraph* region : {&condition, &body})
    if (operands.size() != region->inputs.size())
      throw Error("the region takes {} inputs, {} are given", region->inputs.size(),
                  operands.size());
  const auto attributes =
      ops::while_attributes(static_cast<int64_t>(carries), graph_of(condition), graph_of(body));
  bind_all(node, in_.world_.emit(ops::while_operator(), attributes, operands), scope);
}

void Regions::run_branch(const Node& node, Scope& scope) {
  const auto* predicate =
      node.inputs.empty() ? nullptr : std::get_if<TensorName>(&node.inputs[0].value);
  if (!predicate) throw Error("its predicate is no tensor, which is not supported");
  std::vector<Value> operands{ops::reshape(in_.find(predicate->name)->read(), {})};
  add_operands(node, 3, operands);
  const auto attributes =
      ops::if_attributes(graph_of(region_at(node, 1)), graph_of(region_at(node, 2)));
  bind_all(node, in_.world_.emit(ops::if_operator(), attributes, operands), scope);
}

void Regions::bind_all(const Node& node, std::span<const Value> results, Scope& scope) {
  std::vector<std::string> names;
  for (const Argument& o : node.outputs)
    for_each_name(o, [&](const std::string& name) { names.push_back(name); });
  if (names.size() != results.size())
    throw Error("the region gives {} tensors, and the node names {}", results.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i)
    in_.bind(names[i], std::make_shared<TensorValue>(results[i]), scope);
}

bool Regions::run(const Node& node, Scope& scope) {
  if (run_in_place(node, scope)) return true;
  if (node.target.ends_with(".scan"))
    run_scan(node, 3, scope);
  else if (node.target.ends_with(".map_impl"))
    run_scan(node, 2, scope);
  else if (node.target.ends_with(".while_loop"))
    run_while(node, scope);
  else if (node.target.ends_with(".cond"))
    run_branch(node, scope);
  else
    return false;
  return true;
}

}  // namespace gradus::pt2
