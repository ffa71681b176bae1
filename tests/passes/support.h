// Small helpers for the tests of the passes.
#pragma once

#include "gradus/registry.h"
#include "gradus/text.h"
#include "tests/interpreter/support.h"

namespace gradus::test {

inline ir::Graph graph_of(const std::string& text) { return ir::parse(text, "test.ir").program(); }

// The program with derivative stages, verified.
inline ir::Graph derived(const ir::Graph& graph, const ir::DifferentiateOptions& options) {
  ir::Graph g = ir::differentiate(graph, options);
  ir::verify(g);
  return g;
}
inline ir::Graph derived(const std::string& text, const ir::DifferentiateOptions& options) {
  return derived(graph_of(text), options);
}

// "x: f64[N], w: f64[N] -> y: f64[]"
inline std::string signature(const ir::Graph& graph, size_t stage) {
  std::string s;
  for (ir::ValueId v : graph.stages[stage].inputs)
    s += (s.empty() ? "" : ", ") + graph[v].name + ": " + to_string(graph[v].type);
  s += " ->";
  bool first = true;
  for (const ir::Result& r : graph.stages[stage].results) {
    s += (first ? " " : ", ") + r.name;
    s += r.value == ir::no_value ? " = none" : ": " + to_string(graph[r.value].type);
    first = false;
  }
  return s;
}

// How many nodes of the stage have this operator; all of them without a name.
inline size_t count(const ir::Graph& graph, size_t stage, std::string_view op = {}) {
  size_t n = 0;
  for (const ir::Node& node : graph.stages[stage].nodes) n += op.empty() || node.op->name == op;
  return n;
}

// The position of a stage's result.
inline size_t result_index(const ir::Graph& graph, size_t stage, std::string_view name) {
  const auto& results = graph.stages[stage].results;
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i].name == name) return i;
  ADD_FAILURE() << "stage " << stage << " has no result " << name;
  return 0;
}

// Every step of the lowering, verified after each.
inline ir::Graph lowered(const ir::Graph& graph) {
  return ir::lower(graph, [](std::string_view pass, const ir::Graph& g) {
    EXPECT_NO_THROW(ir::verify(g)) << "after " << pass;
  });
}

// All stages' results of one run. `inputs` by stage.
inline std::vector<std::vector<Tensor>> run_all(
    const ir::Graph& graph, const std::vector<std::vector<Tensor>>& inputs,
    std::shared_ptr<Context> context = Context::default_context()) {
  State state(Code::compile(graph), context);
  std::vector<std::vector<Tensor>> results;
  for (const auto& in : inputs) results.push_back(state.run(in));
  return results;
}

// Equal but for the signs of zeros.
inline bool same_values(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.dtype() != b.dtype() || !std::ranges::equal(a.shape(), b.shape())) return false;
  std::vector<double> x = a.to_doubles(), y = b.to_doubles();
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i] != y[i] && !(x[i] != x[i] && y[i] != y[i])) return false;
  return true;
}

inline Tensor zeros(Sizes shape) { return Tensor::zeros(DType::f64, shape); }

// Standard normal elements.
inline Tensor normal(Sizes shape, std::mt19937_64& random) {
  std::vector<double> values(static_cast<size_t>(numel(shape)));
  std::normal_distribution<double> n;
  for (double& v : values) v = n(random);
  return Tensor::from(DType::f64, shape, values);
}

}  // namespace gradus::test
