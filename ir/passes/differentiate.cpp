// `differentiate`: appends backward stages.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "gradus/passes.h"
#include "gradus/rewrite.h"
#include "ir/passes/backpropagate.h"

namespace gradus::ir {

namespace {

// A result of a stage that takes a cotangent. `value` is no_value for a structural zero, whose
// cotangent stands in the signature all the same.
struct Output {
  std::string name;
  Type type;
  ValueId value;
};

class Differentiator {
 public:
  Differentiator(Graph graph, const DifferentiateOptions& options)
      : graph_(std::move(graph)), options_(options) {
    if (options_.wrt) wrt_.insert(options_.wrt->begin(), options_.wrt->end());
  }

  Graph run() {
    check_request();
    expand_grad(graph_);
    decompose(graph_, true);
    size_t first_new = graph_.stages.size();
    for (size_t k = 1; k < first_new; ++k) check_interface(k);
    for (const Value& v : graph_.values)
      if (!v.name.empty()) taken_.insert(v.name);
    // Each is tidied before the next: there is less to differentiate, and all orders at once give
    // the same program as one order after the other. What is `none` has been decided by then.
    for (size_t k = first_new; k <= static_cast<size_t>(options_.order); ++k) {
      append_stage(k);
      eliminate_dead_code(graph_, k);
      compact(graph_);
    }
    compact(graph_);
    return std::move(graph_);
  }

 private:
  void check_request() const {
    if (options_.order < 0) throw Error("the order of derivatives must not be negative");
    if (graph_.stages.empty()) throw Error("graph '{}' has no stage", graph_.name);
    if (!options_.wrt) return;
    auto inputs = by_name(graph_.stages[0].inputs);
    for (const std::string& name : *options_.wrt) {
      auto it = inputs.find(name);
      if (it == inputs.end())
        throw Error("there is no input '{}' in stage 0 to differentiate with respect to; {}", name,
                    input_list());
      if (!graph_[it->second].type.is_floating())
        throw Error("input '{}' is {}; only floating inputs can be differentiated with respect to",
                    name, to_string(graph_[it->second].type));
    }
  }

  std::string input_list() const {
    std::string names;
    for (ValueId v : graph_.stages[0].inputs)
      if (graph_[v].type.is_floating()) names += (names.empty() ? "" : ", ") + graph_[v].name;
    return names.empty() ? "it has no floating inputs" : "its floating inputs are: " + names;
  }

  // The inputs of stage `s` that later stages give gradients for.
  std::vector<ValueId> differentiated_inputs(size_t s) const {
    std::vector<ValueId> inputs;
    if (s > 0 && !options_.cotangents) return inputs;
    for (ValueId v : graph_.stages[s].inputs) {
      if (!graph_[v].type.is_floating()) continue;
      if (s == 0 && options_.wrt && !wrt_.contains(graph_[v].name)) continue;
      inputs.push_back(v);
    }
    return inputs;
  }
  std::vector<ValueId> all_differentiated_inputs(size_t before) const {
    std::vector<ValueId> all;
    for (size_t s = 0; s < before; ++s)
      for (ValueId v : differentiated_inputs(s)) all.push_back(v);
    return all;
  }

  using ByName = std::unordered_map<std::string_view, ValueId>;
  ByName by_name(std::span<const ValueId> values) const {
    ByName names;
    for (ValueId v : values) names.emplace(graph_[v].name, v);
    return names;
  }

  // The results of stage `s` that take cotangents in the next one.
  std::vector<Output> outputs(size_t s) const {
    std::vector<Output> list;
    ByName inputs;
    if (s > 0) inputs = by_name(all_differentiated_inputs(s));
    std::string prefix = "d" + std::to_string(s) + "_";
    for (const Result& r : graph_.stages[s].results) {
      if (r.value != no_value) {
        if (graph_[r.value].type.is_floating())
          list.push_back({r.name, graph_[r.value].type, r.value});
        continue;
      }
      // A zero gradient has the type of the input it belongs to.
      if (s == 0 || !r.name.starts_with(prefix)) continue;
      auto x = inputs.find(std::string_view(r.name).substr(prefix.size()));
      if (x != inputs.end())
        list.push_back({r.name, cotangent_type(graph_[x->second].type), no_value});
    }
    return list;
  }
  std::vector<Output> roots(size_t k) const {
    std::vector<Output> list;
    for (size_t s = options_.total ? 0 : k - 1; s < k; ++s)
      for (Output& o : outputs(s)) list.push_back(std::move(o));
    return list;
  }

  // A stage that is there already must have the interface that `differentiate` would give it.
  void check_interface(size_t k) const {
    auto fail = [&](const std::string& message) {
      throw Error::at(graph_.source ? graph_.source->file : graph_.name, {},
                      fmt::format("stage {} of graph '{}' does not have the interface of a "
                                  "derivative stage: {}",
                                  k, graph_.name, message));
    };
    check_cotangents(k, fail);
    check_gradients(k, fail);
  }

  template <class Fail>
  void check_cotangents(size_t k, Fail fail) const {
    const Stage& stage = graph_.stages[k];
    ByName inputs = by_name(stage.inputs);
    std::unordered_set<std::string> expected;
    for (const Output& o : roots(k)) {
      std::string name = fmt::format("ct{}_{}", k, o.name);
      auto it = inputs.find(name);
      if (it == inputs.end())
        fail(fmt::format("it lacks the input %{}: {}", name, to_string(o.type)));
      if (const Type type = cotangent_type(o.type); !(graph_[it->second].type == type))
        fail(fmt::format("its input %{} is {}, it must be {}", name,
                         to_string(graph_[it->second].type), to_string(type)));
      expected.insert(std::move(name));
    }
    for (ValueId v : stage.inputs)
      if (!expected.contains(graph_[v].name))
        fail(
            fmt::format("its input %{} is not the cotangent of a floating result", graph_[v].name));
  }

  template <class Fail>
  void check_gradients(size_t k, Fail fail) const {
    const Stage& stage = graph_.stages[k];
    std::unordered_map<std::string_view, ValueId> results;
    for (const Result& r : stage.results) results.emplace(r.name, r.value);
    std::unordered_set<std::string> expected;
    for (ValueId x : all_differentiated_inputs(k)) {
      std::string name = fmt::format("d{}_{}", k, graph_[x].name);
      auto r = results.find(name);
      if (r == results.end())
        fail(
            fmt::format("it lacks the result {0}; return {0} = none if that gradient is zero, or "
                        "limit the inputs that are differentiated",
                        name));
      const Type type = cotangent_type(graph_[x].type);
      if (r->second != no_value && !(graph_[r->second].type == type))
        fail(fmt::format("its result {} is {}, it must be {}", name,
                         to_string(graph_[r->second].type), to_string(type)));
      expected.insert(std::move(name));
    }
    for (const Result& r : stage.results)
      if (!expected.contains(r.name))
        fail(fmt::format("its result {} is not the gradient of an input", r.name));
  }

  ValueId add_input(size_t stage, const std::string& name, const Type& type) {
    if (!taken_.insert(name).second)
      throw Error("stage {} needs an input named %{}, but that name is taken; rename the value",
                  stage, name);
    ValueId v = graph_.add_value(type, name, stage);
    graph_.stages[stage].inputs.push_back(v);
    return v;
  }

  void append_stage(size_t k) {
    std::vector<Output> outs = roots(k);
    std::vector<ValueId> wrt = all_differentiated_inputs(k);
    graph_.stages.emplace_back();
    std::vector<Root> seeds;
    for (const Output& o : outs) {
      ValueId ct = add_input(k, fmt::format("ct{}_{}", k, o.name), cotangent_type(o.type));
      if (o.value != no_value) seeds.push_back({o.value, ct});
    }
    std::vector<Node> nodes;
    GraphWorld world(graph_, k, nodes);
    std::vector<std::vector<Node>*> runs;
    for (size_t s = 0; s < k; ++s) runs.push_back(&graph_.stages[s].nodes);
    std::vector<ValueId> gradients = backpropagate(graph_, world, runs, seeds, wrt);
    Substitute substitute(graph_);
    Stage& stage = graph_.stages[k];
    stage.nodes = decompose_nodes(graph_, k, std::move(nodes), substitute, Kept::differentiable);
    for (size_t i = 0; i < wrt.size(); ++i) {
      std::string name = fmt::format("d{}_{}", k, graph_[wrt[i]].name);
      ValueId g = substitute(gradients[i]);
      if (g != no_value && graph_[g].name.empty() && taken_.insert(name).second)
        graph_[g].name = name;
      stage.results.push_back({std::move(name), g});
    }
  }

  Graph graph_;
  const DifferentiateOptions& options_;
  std::unordered_set<std::string_view> wrt_;
  std::unordered_set<std::string> taken_;
};

}  // namespace

Graph differentiate(const Graph& graph, const DifferentiateOptions& options) {
  return Differentiator(graph, options).run();
}

}  // namespace gradus::ir
