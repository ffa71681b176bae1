#include "tests/corpus/reference.h"

#include <algorithm>

#include "gradus/apply.h"
#include "gradus/thread_state.h"
#include "interpreter/handle.h"
#include "kernels/evaluate.h"
#include "ops/opaque.h"
#include "ops/structural.h"
#include "tests/corpus/walk.h"

namespace gradus::corpus {

namespace {

// In a graph that it runs.
bool calls_functions(const ir::Node& node) {
  return std::ranges::any_of(ops::graphs_in(node), [](const ops::GraphName* named) {
    return std::ranges::any_of(named->graph->stages[0].nodes, [](const ir::Node& n) {
      return n.op->traits.opaque || calls_functions(n);
    });
  });
}

// Functions take variables.
SmallVector<Tensor, 2> run_as_variables(const ir::Node& node,
                                        std::span<const ops::EagerOperand> operands) {
  autograd::GradModeGuard off(autograd::GradMode::no_grad);
  std::vector<autograd::VariableOperand> in;
  for (const ops::EagerOperand& o : operands) in.push_back(autograd::Variable(std::get<Tensor>(o)));
  SmallVector<Tensor, 2> out;
  for (const autograd::Variable& v : autograd::apply(*node.op, node.attributes, in))
    out.push_back(v.data());
  return out;
}

struct Tensors {
  using Value = Tensor;
  static bool defined(const Tensor& t) { return t.defined(); }
  static Tensor of(Tensor t) { return t; }
  static auto run(const ir::Operator& op, const ir::Attributes& attributes,
                  std::span<const ops::EagerOperand> operands) {
    const ir::Node node{&op, attributes, {}, {}, {}};
    if (calls_functions(node)) return run_as_variables(node, operands);
    return ops::evaluate(op, attributes, operands, *Context::default_context());
  }
};

class TensorWalk final : public Walk<Tensors> {
 public:
  TensorWalk(const ir::Graph& graph, const State& sizes) : Walk(graph, sizes) {
    handles_.resize(graph.values.size());
  }

 private:
  // Every handle is made and every gradient asked for, whether it is used or not.
  void run_opaque(const ir::Node& node) override {
    ir::ValueId last = node.results.back();
    bool leaves_handle = !graph()[last].type.is_tensor();
    SmallVector<Tensor, 4> operands;
    Ref<const interpreter::Handle> handle;
    for (const ir::Operand& o : node.operands) {
      const auto* v = std::get_if<ir::ValueId>(&o);
      if (v && !graph()[*v].type.is_tensor()) {
        handle = handles_[index_of(*v)];
        continue;
      }
      operands.push_back(v ? at(*v) : Tensor());
      if (v && !defined(*v) && (node.op->traits.acts || leaves_handle))
        operands.back() = zeros(graph()[*v].type);
    }
    interpreter::OpaqueResults results;
    auto context = Context::default_context();
    if (node.op->traits.acts) {
      auto function = std::dynamic_pointer_cast<const autograd::CppFunction>(
          ops::called_function(*node.op, node.attributes));
      SmallVector<bool, 4> marks;
      for (size_t i = 0; i < node.operands.size(); ++i)
        marks.push_back(
            ops::requires_grad(node.attributes, i, graph()[value_in(node.operands[i])].type));
      results = interpreter::call_function(*function, operands, marks, leaves_handle, context);
    } else {
      SmallVector<bool, 4> wanted(node.results.size() - leaves_handle, true);
      results = interpreter::evaluate_handle(handle, operands, wanted, leaves_handle, context);
    }
    for (size_t i = 0; i < results.tensors.size(); ++i) at(node.results[i]) = results.tensors[i];
    if (leaves_handle) handles_[index_of(last)] = results.handle;
  }

  std::vector<Ref<const interpreter::Handle>> handles_;
};

}  // namespace

Results evaluate_node_by_node(const Subject& subject) {
  ir::Graph graph = subject.graph;
  ir::settle_calls(graph);
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
  TensorWalk walk(graph, state);
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
