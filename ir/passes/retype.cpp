#include <algorithm>

#include "ir/passes/passes.h"
#include "ops/registry.h"
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

// A call with a derivative of its own goes on calling, graphs of the new type.
Attributes retyped_call(const Attributes& attributes, DType dtype) {
  auto call = ops::attributes_as<ops::Call::Attr>(attributes);
  for (auto* target : {&call.target, &call.vjp_target})
    if (*target) *target = std::make_shared<Graph>(retype_floating(**target, dtype));
  return ops::make_attributes(std::move(call));
}

// Attributes with every floating dtype and constant changed, defaults included.
Attributes retyped(const Node& node, DType dtype) {
  if (node.op == &ops::operator_record<ops::Call>) return retyped_call(node.attributes, dtype);
  LiteralList list = node.op->write(node.attributes);
  for (const NamedLiteral& d : node.op->describe()) {
    const auto* default_dtype = std::get_if<DType>(&d.value.value);
    bool written = std::any_of(list.begin(), list.end(), [&](auto& a) { return a.name == d.name; });
    if (default_dtype && !written) list.push_back(d);
  }
  if (list.empty()) return node.attributes;
  bool any = false;
  for (NamedLiteral& a : list) {
    std::string before = to_string(a.value);
    retype(a.value, dtype);
    any |= std::holds_alternative<Tensor>(a.value.value) || to_string(a.value) != before;
  }
  return any ? node.op->read(list) : node.attributes;
}

}  // namespace

Graph retype_floating(const Graph& original, DType dtype) {
  Graph graph = original;
  for (Stage& stage : graph.stages) {
    for (ValueId v : stage.inputs)
      if (graph[v].type.is_floating()) graph[v].type.dtype = dtype;
    for (Node& node : stage.nodes) {
      node.attributes = retyped(node, dtype);
      auto types = ops::infer(graph, node, nullptr);
      for (size_t i = 0; i < types.size(); ++i) graph[node.results[i]].type = std::move(types[i]);
    }
  }
  return graph;
}

}  // namespace gradus::ir
