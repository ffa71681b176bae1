// Random programs over smooth operators, small enough to be differentiated three times.
#pragma once

#include "kernels/evaluate.h"
#include "tests/passes/support.h"

namespace gradus::test {

using ir::Literal;
using ir::LiteralList;

class RandomProgram {
 public:
  explicit RandomProgram(uint64_t seed) : random_(seed) {
    graph_.name = "random";
    graph_.stages.emplace_back();
    for (int i = 0; i < 3; ++i) {
      ir::Dims dims;
      for (size_t rank = random_() % 3; dims.size() < rank;) dims.push_back(random_dim());
      if (i == 0) dims = {ir::Dim::symbol("N"), 3};  // settles N and M
      if (i == 1) dims = {ir::Dim::symbol("M")};
      ir::ValueId x = graph_.add_value(ir::Type(DType::f64, dims), fmt::format("x{}", i), 0);
      graph_.stages[0].inputs.push_back(x);
      values_.push_back(x);
    }
    for (size_t n = 6 + random_() % 8; graph_.stages[0].nodes.size() < n;) add_random();
    // Values that nobody uses, and one that others use.
    std::vector<bool> used(graph_.values.size());
    for (const ir::Node& node : graph_.stages[0].nodes)
      for (const ir::Operand& o : node.operands)
        if (value_in(o) != ir::no_value) used[index_of(value_in(o))] = true;
    auto& results = graph_.stages[0].results;
    for (ir::ValueId v : values_)
      if (!used[index_of(v)] && results.size() < 2)
        results.push_back({fmt::format("r{}", results.size()), v});
    results.push_back({fmt::format("r{}", results.size()), any()});
    ir::verify(graph_);
  }

  const ir::Graph& graph() const { return graph_; }

  static int64_t size_of(const ir::Dim& d) {
    struct Environment : ir::DimEnvironment {
      std::optional<int64_t> find(std::string_view name) const override {
        return name == "N" ? 2 : 4;
      }
    };
    return d.evaluate(Environment());
  }
  static Sizes shape_of(const ir::Type& type) {
    Sizes s;
    for (const ir::Dim& d : type.dims) s.push_back(size_of(d));
    return s;
  }

 private:
  ir::Dim random_dim() {
    switch (random_() % 5) {
      case 0:
        return 1;
      case 1:
        return 3;
      case 2:
        return ir::Dim::symbol("M");
      default:
        return ir::Dim::symbol("N");
    }
  }
  ir::ValueId any() {
    return values_[values_.size() - 1 - random_() % std::min<size_t>(values_.size(), 6)];
  }

  // Appends a node if the operator takes these operands.
  bool add(std::string_view name, std::vector<ir::Operand> operands,
           const LiteralList& attributes = {}) {
    const ir::Operator* op = ops::find(name);
    ir::Node node{op, op->read(attributes), {}, {}, {}};
    for (ir::Operand& o : operands) node.operands.push_back(std::move(o));
    SmallVector<ir::Type, 2> types;
    std::vector<ir::DimEquality> equalities;
    try {
      types = ops::infer(graph_, node, &equalities);
    } catch (const Error&) {
      return false;
    }
    for (const ir::DimEquality& e : equalities)
      if (size_of(e.a) != size_of(e.b)) return false;
    for (const ir::Type& t : types)
      if (numel(shape_of(t)) > 48 || t.rank() > 4) return false;
    for (ir::Type& t : types) {
      ir::ValueId y = graph_.add_value(t, fmt::format("v{}", graph_.values.size()), 0);
      node.results.push_back(y);
      if (t.is_floating()) values_.push_back(y);
    }
    graph_.stages[0].nodes.push_back(std::move(node));
    return true;
  }

  void add_random() {
    ir::ValueId x = any(), y = any();
    const ir::Type type = graph_[x].type;
    auto rank = std::max<int64_t>(type.rank(), 1);
    auto dim = static_cast<int64_t>(random_() % static_cast<uint64_t>(rank));
    auto last = [&] { return ir::Operand(values_.back()); };
    switch (random_() % 19) {
      case 0:
        add("sin", {x});
        break;
      case 1:
        add("tanh", {x});
        break;
      case 2:
        add("sigmoid", {x});
        break;
      case 3:
        add("tanh", {x}) && add("exp", {last()});
        break;
      case 4:
        add("add", {x, y});
        break;
      case 5:
        add("sub", {x, ir::Number::of(0.5)});
        break;
      case 6:
        add("mul", {x, y}) && add("tanh", {last()});
        break;
      case 7:
        add("square", {y}) && add("add", {last(), ir::Number::of(1.0)}) && add("div", {x, last()});
        break;
      case 8:
        add("sum", {x}, {{"dim", dim, {}}, {"keepdim", random_() % 2 == 0, {}}});
        break;
      case 9:
        add("mean", {x}, {{"dim", dim, {}}});
        break;
      case 10:
        add("transpose", {x}, {{"dim0", dim, {}}, {"dim1", int64_t{-1}, {}}});
        break;
      case 11:
        add("unsqueeze", {x}, {{"dim", dim, {}}});
        break;
      case 12: {
        ir::Dims wider{ir::Dim::symbol("N")};
        for (const ir::Dim& d : type.dims) wider.push_back(d == ir::Dim(1) ? ir::Dim(3) : d);
        add("expand", {x}, {{"shape", Literal::list(wider), {}}});
        break;
      }
      case 13:
        add("reshape", {x}, {{"shape", Literal::list(ir::Dims{numel(type.dims)}), {}}});
        break;
      case 14:
        add("slice", {x}, {{"dim", dim, {}}, {"start", int64_t{0}, {}}, {"end", int64_t{1}, {}}});
        break;
      case 15:
        add("matmul", {x, y}) && add("tanh", {last()});
        break;
      case 16:
        add("logsumexp", {x}, {{"dim", dim, {}}});
        break;
      case 17:
        add("gelu", {x}) && add("cumsum", {last()}, {{"dim", dim, {}}});
        break;
      case 18:
        add("unbind", {x}, {{"dim", dim, {}}});
        break;
    }
  }

  std::mt19937_64 random_;
  ir::Graph graph_;
  std::vector<ir::ValueId> values_;
};

// One tensor per input of every stage.
inline std::vector<std::vector<Tensor>> random_inputs(const ir::Graph& graph, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<Tensor>> inputs;
  for (const ir::Stage& stage : graph.stages) {
    inputs.emplace_back();
    for (ir::ValueId v : stage.inputs)
      inputs.back().push_back(normal(RandomProgram::shape_of(graph[v].type), random));
  }
  return inputs;
}

// Runs a graph node by node, as it is: no passes, no plans, no registers.
inline std::vector<std::vector<Tensor>> evaluate_plainly(
    const ir::Graph& graph, const std::vector<std::vector<Tensor>>& inputs) {
  struct Environment : ir::DimEnvironment {
    std::optional<int64_t> find(std::string_view name) const override {
      return RandomProgram::size_of(ir::Dim::symbol(name));
    }
  } sizes;
  auto constant = [&](Literal& l, auto& self) -> void {
    if (auto* d = std::get_if<ir::Dim>(&l.value))
      *d = d->evaluate(sizes);
    else if (auto* list = std::get_if<std::vector<Literal>>(&l.value))
      for (Literal& item : *list) self(item, self);
  };
  std::vector<Tensor> values(graph.values.size());
  std::vector<std::vector<Tensor>> results;
  for (size_t s = 0; s < graph.stages.size(); ++s) {
    const ir::Stage& stage = graph.stages[s];
    for (size_t i = 0; i < stage.inputs.size(); ++i)
      values[index_of(stage.inputs[i])] = inputs[s][i];
    for (const ir::Node& node : stage.nodes) {
      SmallVector<ops::EagerOperand, 4> operands;
      for (const ir::Operand& o : node.operands) {
        if (value_in(o) != ir::no_value)
          operands.emplace_back(values[index_of(value_in(o))]);
        else if (auto* n = std::get_if<ir::Number>(&o))
          operands.emplace_back(*n);
        else if (auto* d = std::get_if<ir::Dim>(&o))
          operands.emplace_back(ir::Number::of(d->evaluate(sizes)));
        else
          operands.emplace_back();
      }
      LiteralList attributes = node.op->write(node.attributes);
      for (ir::NamedLiteral& a : attributes) constant(a.value, constant);
      auto out =
          ops::evaluate(*node.op, node.op->read(attributes), operands, *Context::default_context());
      for (size_t i = 0; i < out.size(); ++i) values[index_of(node.results[i])] = out[i];
    }
    results.emplace_back();
    for (const ir::Result& r : stage.results)
      results.back().push_back(r.value == ir::no_value ? Tensor() : values[index_of(r.value)]);
  }
  return results;
}

}  // namespace gradus::test
