#include <algorithm>
#include <optional>
#include <utility>

#include "gradus/passes.h"
#include "kernels/evaluate.h"
#include "ops/structural.h"

namespace gradus::ir {

namespace {

constexpr int64_t most_elements = 1024;  // a folded constant is kept for the program's life

// Whether an operator gives the same small results in every run, if its operands are the same.
bool may_fold(const Graph& graph, const Node& node) {
  if (!node.op->bind) return false;
  if (node.op->traits.structural || node.op->traits.opaque || node.op->data_sized) return false;
  if (node.op->traits.collective) return false;
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

// Whether all elements of a new, contiguous tensor have the same bits. Readers broadcast such a
// number, and would read a constant from memory.
bool is_uniform(const Tensor& value) {
  const std::byte* bytes = value.data();
  const auto size = static_cast<int64_t>(size_of(value.dtype()));
  return value.numel() < 2 || std::equal(bytes + size, bytes + size * value.numel(), bytes);
}

class Folding {
 public:
  Folding(Graph& graph, Created created)
      : graph_(graph),
        folds_created_(created == Created::fold),
        constants_(graph.values.size()),
        created_(graph.values.size()) {}

  void run() {
    for (Stage& stage : graph_.stages) {
      size_t most = 0;  // a node becomes a constant for each result
      for (const Node& node : stage.nodes) most += std::max<size_t>(node.results.size(), 1);
      std::vector<Node> done;
      done.reserve(most);  // `created_` points into it
      for (Node& node : stage.nodes) fold(std::move(node), done);
      stage.nodes = std::move(done);
    }
  }

 private:
  void fold(Node node, std::vector<Node>& done) {
    if (const Tensor* value = ops::constant_in(node)) {
      constants_[index_of(node.results[0])] = *value;
    } else if (node.operands.empty()) {
      // An operator that is never recomputed may give other results then, such as a clock.
      if (folds_created_ && node.results.size() == 1 && node.op->recompute_cost != again::never) {
        done.push_back(std::move(node));
        created_[index_of(done.back().results[0])] = &done.back();
        return;
      }
    } else if (knows_operands(node) && may_fold(graph_, node) && evaluate_created(node)) {
      if (const auto results = value_of(node)) {
        for (size_t i = 0; i < results->size(); ++i) {
          constants_[index_of(node.results[i])] = (*results)[i];
          done.push_back(ops::constant_node((*results)[i].copy(), node.results[i], node.where));
        }
        return;
      }
    }
    done.push_back(std::move(node));
  }

  // Constants, numbers and sizes, and what is created without operands.
  bool knows_operands(const Node& node) const {
    return std::ranges::all_of(node.operands, [&](const Operand& o) {
      if (const auto* d = std::get_if<Dim>(&o)) return d->is_constant();
      const ValueId v = value_in(o);
      return v == no_value || constants_[index_of(v)].defined() || created_[index_of(v)];
    });
  }

  // The created operands of a node, when a first reader folds; they stay for readers that do not.
  bool evaluate_created(const Node& node) {
    for (const Operand& o : node.operands) {
      const ValueId v = value_in(o);
      if (v == no_value || constants_[index_of(v)].defined()) continue;
      const Node& creation = *std::exchange(created_[index_of(v)], nullptr);
      const auto made = may_fold(graph_, creation) ? value_of(creation) : std::nullopt;
      if (!made || is_uniform((*made)[0])) return false;
      constants_[index_of(v)] = (*made)[0];
    }
    return true;
  }

  // None where it throws: it then fails when run, with its place.
  std::optional<SmallVector<Tensor, 2>> value_of(const Node& node) const {
    SmallVector<ops::EagerOperand, 4> operands;
    for (const Operand& o : node.operands) {
      const ValueId v = value_in(o);
      if (v != no_value)
        operands.emplace_back(constants_[index_of(v)]);
      else if (const auto* n = std::get_if<Number>(&o))
        operands.emplace_back(*n);
      else if (const auto* d = std::get_if<Dim>(&o))
        operands.emplace_back(Number::of(d->value()));
      else
        operands.emplace_back();
    }
    try {
      return ops::evaluate(*node.op, node.attributes, operands, *Context::default_context());
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  Graph& graph_;
  bool folds_created_;
  std::vector<Tensor> constants_;     // by value
  std::vector<const Node*> created_;  // the same, not evaluated yet
};

}  // namespace

void fold_constants(Graph& graph, Created created) { Folding(graph, created).run(); }

}  // namespace gradus::ir
