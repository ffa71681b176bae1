#include <algorithm>

#include "gradus/passes.h"
#include "kernels/evaluate.h"
#include "ops/structural.h"

namespace gradus::ir {

namespace {

constexpr int64_t most_elements = 1024;  // a folded constant is kept for the program's life

// Whether a node's results follow from its attributes and from constants, and are small.
bool foldable(const Graph& graph, const Node& node, const std::vector<Tensor>& constants) {
  if (!node.op->bind) return false;
  if (node.op->traits.structural || node.op->traits.opaque || node.op->data_sized) return false;
  if (node.op->traits.collective) return false;
  for (const Operand& o : node.operands) {
    if (const auto* d = std::get_if<Dim>(&o); d && !d->is_constant()) return false;
    ValueId v = value_in(o);
    if (v != no_value && !constants[index_of(v)].defined()) return false;
  }
  for (ValueId y : node.results) {
    const Type& t = graph[y].type;
    if (!t.is_tensor() || !all_constant(t.dims) || numel(t.dims).value() > most_elements)
      return false;
  }
  // Attributes may hold sizes that only a run knows.
  for (const NamedLiteral& a : node.op->write(node.attributes))
    if (const auto* d = std::get_if<Dim>(&a.value.value); d && !d->is_constant())
      return false;
    else if (const auto* list = std::get_if<std::vector<Literal>>(&a.value.value))
      for (const Literal& l : *list)
        if (const auto* e = std::get_if<Dim>(&l.value); e && !e->is_constant()) return false;
  return true;
}

SmallVector<Tensor, 2> value_of(const Node& node, const std::vector<Tensor>& constants) {
  SmallVector<ops::EagerOperand, 4> operands;
  for (const Operand& o : node.operands) {
    ValueId v = value_in(o);
    if (v != no_value)
      operands.emplace_back(constants[index_of(v)]);
    else if (const auto* n = std::get_if<Number>(&o))
      operands.emplace_back(*n);
    else if (const auto* d = std::get_if<Dim>(&o))
      operands.emplace_back(Number::of(d->value()));
    else
      operands.emplace_back();
  }
  return ops::evaluate(*node.op, node.attributes, operands, *Context::default_context());
}

// Whether a new, contiguous tensor has one number in every place. Its readers broadcast the number,
// and would read a constant from memory.
bool is_uniform(const Tensor& value) {
  const std::byte* bytes = value.data();
  const auto size = static_cast<int64_t>(size_of(value.dtype()));
  return value.numel() < 2 || std::equal(bytes + size, bytes + size * value.numel(), bytes);
}

}  // namespace

void fold_constants(Graph& graph) {
  std::vector<Tensor> constants(graph.values.size());
  for (Stage& stage : graph.stages) {
    std::vector<Node> done;
    done.reserve(stage.nodes.size());
    for (Node& node : stage.nodes) {
      if (const Tensor* value = ops::constant_in(node)) {
        constants[index_of(node.results[0])] = *value;
        done.push_back(std::move(node));
        continue;
      }
      if (!foldable(graph, node, constants)) {
        done.push_back(std::move(node));
        continue;
      }
      SmallVector<Tensor, 2> results;
      try {
        results = value_of(node, constants);
      } catch (const Error&) {
        done.push_back(std::move(node));  // it fails when run, with its place
        continue;
      }
      // What has no operands stays for readers that do not fold.
      if (node.operands.empty()) {
        for (size_t i = 0; i < results.size(); ++i)
          if (!is_uniform(results[i])) constants[index_of(node.results[i])] = results[i];
        done.push_back(std::move(node));
        continue;
      }
      for (size_t i = 0; i < results.size(); ++i) {
        constants[index_of(node.results[i])] = results[i];
        done.push_back(ops::constant_node(results[i].copy(), node.results[i], node.where));
      }
    }
    stage.nodes = std::move(done);
  }
}

}  // namespace gradus::ir
