#include "gradus/passes.h"
#include "kernels/evaluate.h"
#include "ops/structural.h"

namespace gradus::ir {

namespace {

constexpr int64_t most_elements = 1024;  // a folded constant is kept for the program's life

bool foldable(const Graph& graph, const Node& node, const std::vector<Tensor>& constants) {
  if (!node.op->bind || node.operands.empty()) return false;
  if (node.op->traits.structural || node.op->traits.opaque || node.op->data_sized) return false;
  if (node.op->traits.collective) return false;
  bool any_tensor = false;
  for (const Operand& o : node.operands) {
    if (std::holds_alternative<Dim>(o)) return false;
    ValueId v = value_in(o);
    if (v == no_value) continue;
    if (!constants[index_of(v)].defined()) return false;
    any_tensor = true;
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
  return any_tensor;
}

}  // namespace

void fold_constants(Graph& graph) {
  std::vector<Tensor> constants(graph.values.size());
  auto context = Context::default_context();
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
      SmallVector<ops::EagerOperand, 4> operands;
      for (const Operand& o : node.operands) {
        ValueId v = value_in(o);
        if (v != no_value)
          operands.emplace_back(constants[index_of(v)]);
        else if (auto* n = std::get_if<Number>(&o))
          operands.emplace_back(*n);
        else
          operands.emplace_back();
      }
      SmallVector<Tensor, 2> results;
      try {
        results = ops::evaluate(*node.op, node.attributes, operands, *context);
      } catch (const Error&) {
        done.push_back(std::move(node));  // it fails when run, with its place
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
