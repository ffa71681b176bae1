// A third way to run a program: stage 0 as variables, each further stage by the engine.
#pragma once

#include <map>

#include "gradus/engine.h"
#include "ops/solvers.h"
#include "tests/corpus/sizes.h"
#include "tests/corpus/variable_walk.h"

namespace gradus::corpus {

// With named sizes a transposed convolution's gradient cuts off what may be left over; with known
// ones, as variables have them, there is nothing to cut, and sums associate otherwise.
inline bool sizes_decide(const Subject& subject) {
  for (const ir::Node& node : subject.graph.stages[0].nodes)
    if (node.op->name.starts_with("conv")) return true;
  return false;
}

// Loops run unrolled as variables, and so do the steps of solvers. Their second derivatives add up
// in other orders there (see docs/decisions.md): so many stages have the same bits.
inline size_t stages_of_same_bits(const Subject& subject) {
  for (const ir::Node& node : subject.graph.stages[0].nodes)
    if (node.op->traits.loop || ops::solver_in(*node.op, node.attributes)) return 2;
  return SIZE_MAX;
}

namespace by_engine {

using autograd::Variable;

// Stage 0 without gradients, and without calls but for those with a derivative of their own.
inline ir::Graph forward_of(const Subject& subject) {
  ir::Graph graph = subject.graph;
  graph.stages.resize(1);
  ir::expand_grad(graph);
  ir::decompose(graph, true);
  return graph;
}

class Eager {
 public:
  explicit Eager(const Subject& subject)
      : subject_(subject), graph_(forward_of(subject)), state_(subject.code) {}

  Results run() {
    Results results;
    VariableWalk walk(graph_, state_);
    const ir::Stage& first = graph_.stages[0];
    for (size_t i = 0; i < first.inputs.size(); ++i)
      walk.at(first.inputs[i]) = input(0, i, graph_[first.inputs[i]].name);
    state_.run(subject_.inputs[0]);
    walk.run_stage(0);
    Named outputs;
    for (const ir::Result& r : first.results)
      outputs.emplace_back(r.name, r.value == ir::no_value ? Variable() : walk.at(r.value));
    results.push_back(tensors(outputs));
    Named all = outputs;
    for (size_t k = 1; k < subject_.graph.stages.size(); ++k) {
      state_.run(subject_.inputs[k]);
      outputs = run_backward(k, all);
      results.push_back(tensors(outputs));
      all.insert(all.end(), outputs.begin(), outputs.end());
    }
    return results;
  }

 private:
  using Named = std::vector<std::pair<std::string, Variable>>;

  Variable input(size_t stage, size_t i, const std::string& name) {
    Tensor t = subject_.inputs[stage][i];
    // A further derivative may be with respect to an absent cotangent: zeros, then.
    if (!t.defined() && stage + 1 < subject_.graph.stages.size())
      t = Tensor::zeros(subject_.code->input_type(stage, i).dtype, sizes(stage, i));
    if (!t.defined()) return {};
    Variable v(t, is_floating(t.dtype()));
    if (v.requires_grad()) inputs_[name] = v;
    return v;
  }

  Sizes sizes(size_t stage, size_t i) const {
    Sizes shape;
    for (const ir::Dim& d : subject_.code->input_type(stage, i).dims)
      shape.push_back(d.substitute([&](std::string_view name) -> std::optional<ir::Dim> {
                         return ir::Dim(state_.dimension(name).value_or(-1));
                       }).value());
    return shape;
  }

  static std::vector<Tensor> tensors(const Named& outputs) {
    std::vector<Tensor> list;
    for (const auto& [name, v] : outputs) list.push_back(v.defined() ? v.data() : Tensor());
    return list;
  }

  // Stage k: cotangents by the names of the results before, gradients by the names of inputs.
  Named run_backward(size_t k, const Named& before) {
    const ir::Stage& stage = subject_.graph.stages[k];
    std::map<std::string, Variable> cotangents;
    for (size_t i = 0; i < stage.inputs.size(); ++i) {
      const std::string& name = subject_.graph[stage.inputs[i]].name;
      cotangents[name] = input(k, i, name);
    }
    std::vector<autograd::Edge> roots;
    autograd::Variables given;
    for (const auto& [name, v] : before) {
      auto ct = cotangents.find(fmt::format("ct{}_{}", k, name));
      if (!v.defined() || !v.requires_grad() || ct == cotangents.end()) continue;
      roots.push_back(v.gradient_edge());
      given.push_back(ct->second);
    }
    std::vector<autograd::Capture> captures;
    std::string prefix = fmt::format("d{}_", k);
    Named outputs;
    for (const ir::Result& r : stage.results) {
      auto x = inputs_.find(r.name.substr(prefix.size()));
      captures.push_back({x == inputs_.end() ? autograd::Edge() : x->second.gradient_edge(), {}});
      outputs.emplace_back(r.name, Variable());
    }
    if (roots.empty()) return outputs;
    autograd::ExecuteOptions options{.keep_graph = true, .create_graph = true};
    auto found =
        autograd::engine_of(autograd::current_context())->execute(roots, given, options, captures);
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i].second = found[i];
    return outputs;
  }

  const Subject& subject_;
  ir::Graph graph_;
  State state_;
  std::map<std::string, Variable> inputs_;  // floating, of all stages so far
};

}  // namespace by_engine

// Whether the later stages are what `differentiate` makes of stage 0 alone, so that the engine can
// take their place.
inline bool is_derived(const Subject& subject) {
  for (size_t k = 1; k < subject.graph.stages.size(); ++k) {
    std::string gradient = fmt::format("d{}_", k), cotangent = fmt::format("ct{}_", k);
    for (const ir::Result& r : subject.graph.stages[k].results)
      if (!r.name.starts_with(gradient)) return false;
    for (ir::ValueId v : subject.graph.stages[k].inputs)
      if (!subject.graph[v].name.starts_with(cotangent)) return false;
  }
  return true;
}

// What the stages return: stage k's gradients are those of stage k-1's results, found by the engine
// in the graph that all stages before left.
inline Results evaluate_eagerly(const Subject& subject) { return by_engine::Eager(subject).run(); }

}  // namespace gradus::corpus
