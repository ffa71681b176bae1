#include "tests/corpus/reference.h"

#include "ops/evaluate.h"
#include "tests/corpus/walk.h"

namespace gradus::corpus {

namespace {

struct Tensors {
  using Value = Tensor;
  static bool defined(const Tensor& t) { return t.defined(); }
  static Tensor of(Tensor t) { return t; }
  static auto run(const ir::Operator& op, const ir::Attributes& attributes,
                  std::span<const ops::EagerOperand> operands) {
    return ops::evaluate(op, attributes, operands, *Context::default_context());
  }
};

}  // namespace

Results evaluate_node_by_node(const Subject& subject) {
  ir::Graph graph = subject.graph;
  bool calls = false;
  for (const ir::Stage& stage : graph.stages)
    for (const ir::Node& node : stage.nodes)
      calls |= node.op == &ops::operator_record<ops::Call> ||
               node.op == &ops::operator_record<ops::Grad>;
  if (calls) {
    ir::expand_grad(graph);
    ir::decompose(graph, false);
  }
  State state(subject.code);
  Walk<Tensors> walk(graph, state);
  Results results;
  for (size_t s = 0; s < graph.stages.size(); ++s) {
    const ir::Stage& stage = graph.stages[s];
    for (size_t i = 0; i < stage.inputs.size(); ++i)
      walk.at(stage.inputs[i]) = subject.inputs[s][i];
    state.run(subject.inputs[s]);
    walk.run_stage(s);
    results.emplace_back();
    for (const ir::Result& r : stage.results)
      results.back().push_back(r.value == ir::no_value ? Tensor() : walk.at(r.value));
  }
  return results;
}

}  // namespace gradus::corpus
