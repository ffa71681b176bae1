// Walking a program's nodes as written, with values of some kind: tensors, or variables.
#pragma once

#include <algorithm>

#include "ops/structural.h"
#include "tests/corpus/sizes.h"

namespace gradus::corpus {

// `Values` has a type Value (default-made: undefined), `defined(value)`, `of(tensor)`, and
// `run(op, attributes, operands)`, whose operands are std::variant<std::monostate, Value, Number>.
template <class Values>
class Walk {
 public:
  using Value = typename Values::Value;
  using Operand = std::variant<std::monostate, Value, ir::Number>;

  Walk(const ir::Graph& graph, SizeOf size_of) : graph_(graph), size_of_(std::move(size_of)) {
    values_.resize(graph.values.size());
  }
  // `sizes` is asked for the sizes of names; it has run as far as is walked.
  Walk(const ir::Graph& graph, const State& sizes)
      : Walk(graph, [&sizes](std::string_view name) { return sizes.dimension(name); }) {}

  virtual ~Walk() = default;

  Value& at(ir::ValueId v) { return values_[index_of(v)]; }

  void run_stage(size_t s) {
    for (const ir::Node& node : graph_.stages[s].nodes) run_node(node);
  }

  Sizes sizes_of(const ir::Type& type) const {
    Sizes shape;
    for (const ir::Dim& d : type.dims) shape.push_back(known(d).value());
    return shape;
  }

 protected:
  // An opaque function, or an `eval`.
  virtual void run_opaque(const ir::Node& node) = 0;
  const ir::Graph& graph() const { return graph_; }
  bool defined(ir::ValueId v) { return Values::defined(at(v)); }
  Value zeros(const ir::Type& type) const {
    return Values::of(Tensor::zeros(type.dtype, sizes_of(type)));
  }

 private:
  template <class Op>
  static bool is(const ir::Node& node) {
    return node.op == &ops::operator_record<Op>;
  }

  ir::Dim known(const ir::Dim& d) const { return with_sizes(d, size_of_); }

  Operand operand(const ir::Operand& o) {
    if (const auto* v = std::get_if<ir::ValueId>(&o)) {
      if (Values::defined(at(*v))) return at(*v);
      // An absent value is zeros of its type.
      return zeros(graph_[*v].type);
    }
    if (const auto* n = std::get_if<ir::Number>(&o)) return *n;
    if (const auto* d = std::get_if<ir::Dim>(&o)) return ir::Number::of(known(*d).value());
    return std::monostate();
  }

  void run_node(const ir::Node& node) {
    if (is<ops::Undefined>(node)) return;
    if (is<ops::Constant>(node)) {
      at(node.results[0]) =
          Values::of(ops::attributes_as<ops::Constant::Attr>(node.attributes).value);
      return;
    }
    if (node.op->traits.opaque) return run_opaque(node);
    if (node.op->name == "add" && run_sum(node)) return;
    std::vector<Operand> operands;
    for (const ir::Operand& o : node.operands) operands.push_back(operand(o));
    ir::LiteralList attributes = node.op->write(node.attributes);
    bool names = false;
    for (ir::NamedLiteral& a : attributes) names |= set_sizes(a.value, size_of_);
    auto results = Values::run(
        *node.op, names ? ops::with_literals(node, attributes) : node.attributes, operands);
    for (size_t i = 0; i < results.size(); ++i) at(node.results[i]) = results[i];
  }

  // An absent operand of a plain sum of equal types is left out.
  bool run_sum(const ir::Node& node) {
    if (!node.op->write(node.attributes).empty()) return false;
    const auto *x = std::get_if<ir::ValueId>(&node.operands[0]),
               *y = std::get_if<ir::ValueId>(&node.operands[1]);
    if (!x || !y || !(graph_[*x].type == graph_[*y].type)) return false;
    if (Values::defined(at(*x)) && Values::defined(at(*y))) return false;
    at(node.results[0]) = Values::defined(at(*x)) ? at(*x) : at(*y);
    return true;
  }

  const ir::Graph& graph_;
  SizeOf size_of_;
  std::vector<Value> values_;
};

}  // namespace gradus::corpus
