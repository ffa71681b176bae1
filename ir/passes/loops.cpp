#include "ir/passes/loops.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "gradus/passes.h"
#include "gradus/registry.h"
#include "gradus/rewrite.h"
#include "gradus/rules.h"
#include "ir/passes/backpropagate.h"
#include "ir/text/settle.h"
#include "ops/control_flow.h"
#include "ops/structural.h"

namespace gradus::ir {

namespace {

using Flags = std::vector<bool>;
using Shared = std::shared_ptr<const Graph>;

// The body as sweeps take graphs: without `grad`, of operators that have rules.
Graph swept(const Graph& body) {
  Graph graph = body;
  expand_grad(graph);
  decompose(graph, true);
  return graph;
}

Attributes scan_of(ops::LoopForm form, std::string name, Graph body) {
  body.name = name;
  ops::GraphName named{std::move(name), std::make_shared<const Graph>(std::move(body))};
  return ops::scan_attributes(std::move(form), std::move(named));
}

// Which inputs and results of a step depend on what operands depend on, in any step.
struct Activity {
  Flags inputs, results;
};
Activity activity(Graph& body, size_t carries, Flags inputs) {
  Stage& stage = body.stages[0];
  for (;;) {
    std::vector<ValueId> wrt;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] && body[stage.inputs[i]].type.is_floating()) wrt.push_back(stage.inputs[i]);
    const std::span<Node> nodes(stage.nodes);
    const Flags dependent = find_dependent(body, {&nodes, 1}, wrt);
    Flags results;
    for (const Result& r : stage.results)
      results.push_back(body[r.value].type.is_floating() && dependent[index_of(r.value)]);
    bool grew = false;
    for (size_t i = 0; i < carries; ++i)
      if (results[i] && !inputs[i]) inputs[i] = grew = true;
    if (!grew) return {std::move(inputs), std::move(results)};
  }
}

// Names that sizes of the graph's only stage have.
void add_symbols(const Dim& d, DimensionNames& names) {
  d.for_each_symbol([&](std::string_view name) { names.emplace(name); });
}
void add_symbols(const Literal& l, DimensionNames& names) {
  if (const auto* d = std::get_if<Dim>(&l.value)) add_symbols(*d, names);
  if (const auto* list = std::get_if<std::vector<Literal>>(&l.value))
    for (const Literal& item : *list) add_symbols(item, names);
}
DimensionNames symbols_of(const Graph& graph) {
  DimensionNames names;
  const Stage& stage = graph.stages[0];
  for (ValueId v : stage.inputs)
    for (const Dim& d : graph[v].type.dims) add_symbols(d, names);
  for (const Node& node : stage.nodes) {
    for (const NamedLiteral& a : node.op->write(node.attributes)) add_symbols(a.value, names);
    for (const Operand& o : node.operands)
      if (const auto* d = std::get_if<Dim>(&o)) add_symbols(*d, names);
  }
  return names;
}

// Those that these inputs alone do not settle.
DimensionNames unsettled(const Graph& graph, std::span<const ValueId> inputs) {
  std::vector<const Type*> types;
  for (ValueId v : inputs) types.push_back(&graph[v].type);
  DimensionNames known, left;
  settle_names(types, known);
  for (const std::string& name : symbols_of(graph))
    if (!known.contains(name)) left.insert(name);
  return left;
}

bool names_one(const Type& type, const DimensionNames& names) {
  DimensionNames own;
  for (const Dim& d : type.dims) add_symbols(d, own);
  return std::ranges::any_of(own, [&](const std::string& n) { return names.contains(n); });
}

// Gives every input of the only stage a name that no other has.
void name_inputs(Graph& graph) {
  std::unordered_set<std::string> taken;
  for (const Value& v : graph.values) taken.insert(v.name);
  std::unordered_set<std::string> seen;
  size_t next = 0;
  for (ValueId v : graph.stages[0].inputs) {
    std::string& name = graph[v].name;
    if (!name.empty() && seen.insert(name).second) continue;
    do name = fmt::format("in{}", next++);
    while (!taken.insert(name).second || !seen.insert(name).second);
  }
}

// A step and its backward pass as two stages.
struct BodyStep {
  Graph graph;
  // Inputs of stage 1: cotangents by result; by input of stage 0, the sum of its gradient so far.
  std::vector<ValueId> cotangents, sums;
  std::vector<ValueId> gradients;  // by input of stage 0; no_value: structurally zero
};

// `order` says which results have cotangents, in the order in which a sweep comes to them; `summed`
// which inputs' gradients are added to a sum.
BodyStep differentiate_step(const Graph& body, const Flags& active, std::span<const size_t> order,
                            const Flags& summed) {
  BodyStep s{body, {}, {}, {}};
  Graph& g = s.graph;
  g.stages.emplace_back();
  const Stage& forward = g.stages[0];
  std::vector<Root> roots;
  auto input = [&](ValueId like) {
    const ValueId v = g.add_value(Type(g[like].type), {}, 1);
    g.stages[1].inputs.push_back(v);
    roots.push_back({like, v});
    return v;
  };
  s.cotangents.assign(forward.results.size(), no_value);
  for (size_t i : order) s.cotangents[i] = input(forward.results[i].value);
  s.sums.assign(forward.inputs.size(), no_value);
  for (size_t i = 0; i < summed.size(); ++i)
    if (summed[i]) s.sums[i] = input(forward.inputs[i]);
  auto is_active = [&](size_t i) {
    return active[i] && body[body.stages[0].inputs[i]].type.is_floating();
  };
  std::vector<ValueId> wrt;
  for (size_t i = 0; i < forward.inputs.size(); ++i)
    if (is_active(i)) wrt.push_back(forward.inputs[i]);

  std::vector<Node> emitted;
  GraphWorld world(g, 1, emitted);
  const std::span<Node> nodes(g.stages[0].nodes);
  std::vector<ValueId> found = backpropagate(g, world, {&nodes, 1}, roots, wrt);
  Substitute substitute(g);
  g.stages[1].nodes = decompose_nodes(g, 1, std::move(emitted), substitute, true);
  size_t next = 0;
  for (size_t i = 0; i < forward.inputs.size(); ++i)
    s.gradients.push_back(is_active(i) ? substitute(found[next++]) : no_value);
  for (ValueId v : s.gradients)
    if (v != no_value) g.stages[1].results.push_back({{}, v});
  eliminate_dead_code(g, 1);
  return s;
}

// The derivative of one scan.
class ScanDerivative {
 public:
  ScanDerivative(Graph& graph, GraphWorld& world, Node& node, const LoopCotangents& given)
      : graph_(graph),
        world_(world),
        node_(node),
        given_(given),
        loop_(*ops::loop_in(node)),
        body_(swept(*loop_.body)) {}

  std::vector<LoopGradient> run() {
    active_ = activity(body_, loop_.carries, Flags(given_.wanted.begin(), given_.wanted.end()));
    const BodyStep step = settle();
    find_kept(step);
    const size_t own = body_.stages[0].results.size();
    keep(step);
    return emit_backward(step, own);
  }

 private:
  // `carried`: carries that have a cotangent. What reads the stacks stands behind all steps.
  BodyStep differentiate(const Flags& carried, const Flags& summed) const {
    std::vector<size_t> order;
    for (size_t i = loop_.carries; i < active_.results.size(); ++i)
      if (given_.results[i].defined() && active_.results[i]) order.push_back(i);
    for (size_t i = 0; i < loop_.carries; ++i)
      if (carried[i]) order.push_back(i);
    return differentiate_step(body_, active_.inputs, order, summed);
  }

  // Which carries have cotangents is a fixed point: one that has some in a step has them in all
  // steps before.
  BodyStep settle() const {
    Flags carried(loop_.carries), summed(body_.stages[0].inputs.size());
    for (size_t i = 0; i < loop_.carries; ++i)
      carried[i] = given_.results[i].defined() && active_.results[i];
    for (;;) {
      const BodyStep s = differentiate(carried, {});
      bool grew = false;
      for (size_t i = 0; i < loop_.carries; ++i)
        if (s.gradients[i] != no_value && !carried[i]) carried[i] = grew = true;
      if (grew) continue;
      for (size_t i = loop_.carries; i < summed.size(); ++i)
        summed[i] = s.gradients[i] != no_value &&
                    (i >= loop_.first_constant() || given_.gradients[i].defined());
      return differentiate(carried, summed);
    }
  }

  // What the backward pass reads of the step: inputs, what is computed again of those, and what is
  // kept. What a carry becomes is its input of the step that the backward loop took before: that
  // hands it on, so that one stack is kept of a carry, and one sum of its gradients.
  void find_kept(const BodyStep& s) {
    const Graph& g = s.graph;
    maker_.assign(g.values.size(), nullptr);
    for (const Node& n : g.stages[0].nodes)
      for (ValueId v : n.results) maker_[index_of(v)] = &n;
    input_.assign(g.values.size(), SIZE_MAX);
    for (size_t i = 0; i < g.stages[0].inputs.size(); ++i)
      input_[index_of(g.stages[0].inputs[i])] = i;
    reads_.assign(g.stages[0].inputs.size(), false);
    handed_on_.assign(loop_.carries, no_value);
    std::vector<ValueId> pending;
    auto read = [&](ValueId v) {
      if (v != no_value && g[v].stage == 0) pending.push_back(v);
    };
    for (const Node& n : g.stages[1].nodes)
      for (const Operand& o : n.operands) read(value_in(o));
    for (const Result& r : g.stages[1].results) read(r.value);
    std::unordered_set<ValueId> seen;
    while (!pending.empty()) {
      const ValueId v = pending.back();
      pending.pop_back();
      if (!seen.insert(v).second) continue;
      if (const size_t i = input_[index_of(v)]; i != SIZE_MAX) {
        reads_[i] = true;
        if (i < loop_.carries) kept_.push_back(v);
      } else if (const size_t carry = carry_that_becomes(g, v); carry < loop_.carries) {
        handed_on_[carry] = v;
        read(g.stages[0].inputs[carry]);
      } else if (is_made_again(*maker_[index_of(v)])) {
        again_.insert(maker_[index_of(v)]);
        for (const Operand& o : maker_[index_of(v)]->operands) read(value_in(o));
      } else {
        kept_.push_back(v);
      }
    }
    std::ranges::sort(kept_);
  }

  size_t carry_that_becomes(const Graph& g, ValueId v) const {
    const auto& results = g.stages[0].results;
    size_t i = 0;
    while (i < loop_.carries && results[i].value != v) ++i;
    return i;
  }

  // What depends on constants alone, and views of inputs.
  bool is_made_again(const Node& n) const {
    const OperatorTraits& traits = n.op->traits;
    if (traits.opaque || traits.loop || n.op->data_sized) return false;
    return std::ranges::all_of(n.operands, [&](const Operand& o) {
      const ValueId v = value_in(o);
      if (v == no_value) return true;
      const size_t i = input_[index_of(v)];
      if (i != SIZE_MAX) return i >= loop_.first_constant() || traits.may_be_view;
      return is_made_again(*maker_[index_of(v)]);
    });
  }

  // The loop gives what is kept as further results.
  void keep(const BodyStep& s) {
    Graph forward = s.graph;
    forward.stages.resize(1);
    auto& results = forward.stages[0].results;
    std::unordered_set<std::string> names;
    for (const Result& r : results) names.insert(r.name);
    size_t next = 0;
    for (ValueId v : kept_) {
      auto stacks = std::span(results).subspan(loop_.carries);
      auto same = std::ranges::find(stacks, v, &Result::value);
      stack_of_.push_back(loop_.carries + static_cast<size_t>(same - stacks.begin()));
      if (same != stacks.end()) continue;
      std::string name;
      do name = fmt::format("kept{}", next++);
      while (!names.insert(name).second);
      results.push_back({std::move(name), v});
    }
    compact(forward);
    length_ = ops::steps_of(*loop_.form, operand_types());
    node_.attributes = scan_of(*loop_.form, loop_.body->name, std::move(forward));
    loop_ = *ops::loop_in(node_);
    const size_t stage = graph_[node_.results[0]].stage;
    auto types = ops::infer(graph_, node_, nullptr);
    for (size_t i = node_.results.size(); i < types.size(); ++i)
      node_.results.push_back(graph_.add_value(std::move(types[i]), {}, stage));
  }

  SmallVector<OperandType, 4> operand_types() const {
    SmallVector<OperandType, 4> types;
    for (const Operand& o : node_.operands) types.push_back(graph_.type_of(o));
    return types;
  }

  ops::Value operand(size_t i) const { return world_.value(node_.operands[i]); }

  // The backward loop while it is put together: inputs of its body, and operands.
  struct Builder {
    std::vector<ValueId> inputs;
    std::vector<ops::Value> operands;
    void add(ValueId input, ops::Value operand) {
      inputs.push_back(input);
      operands.push_back(std::move(operand));
    }
  };

  std::vector<LoopGradient> emit_backward(const BodyStep& s, size_t own_results) {
    Graph back = s.graph;
    const std::vector<ValueId> inputs = back.stages[0].inputs;
    std::vector<Node> nodes;
    for (const Node& n : s.graph.stages[0].nodes)
      if (again_.contains(&n)) nodes.push_back(n);
    for (Node& n : back.stages[1].nodes) nodes.push_back(std::move(n));
    back.stages.resize(1);
    for (Value& v : back.values) v.stage = 0;
    back.stages[0] = {};
    back.stages[0].nodes = std::move(nodes);

    const std::vector<size_t> sizes = say_sizes(back, s, inputs);
    Builder b;
    std::vector<Result> results;
    std::vector<size_t> gradient_of;  // by result: the operand whose gradient it is
    constexpr size_t none = SIZE_MAX;
    auto give = [&](size_t input, ValueId v) {
      if (v == no_value) {
        GraphWorld zeros(back, 0, back.stages[0].nodes);
        v = GraphWorld::id_of(ops::zeros_of(zeros, back[inputs[input]].type));
      }
      results.push_back({fmt::format("d{}", results.size()), v});
      gradient_of.push_back(input);
    };
    ops::LoopForm attributes;
    for (size_t i = 0; i < loop_.carries; ++i) {
      if (s.cotangents[i] == no_value) continue;
      const ops::Value& ct = given_.results[i];
      b.add(s.cotangents[i], ct.defined() ? ct : ops::zeros_of(world_, operand(i).type));
      give(i, s.gradients[i]);
    }
    for (size_t i = loop_.first_constant(); i < inputs.size(); ++i) {
      if (s.sums[i] == no_value) continue;
      // x + -0.0 is x, whatever x: the sum of none.
      const ops::Value& sum = given_.gradients[i];
      const Type type = operand(i).type;
      b.add(s.sums[i], sum.defined() ? sum : ops::full(world_, type.dims, -0.0, type.dtype));
      give(i, s.gradients[i]);
    }
    for (size_t i = 0; i < loop_.carries; ++i) {
      if (handed_on_[i] == no_value) continue;
      b.add(handed_on_[i], world_.value(node_.results[i]));
      results.push_back({fmt::format("d{}", results.size()), inputs[i]});
      gradient_of.push_back(none);
    }
    attributes.carries = static_cast<int64_t>(b.inputs.size());
    for (size_t i = loop_.carries; i < own_results; ++i)
      if (s.cotangents[i] != no_value) b.add(s.cotangents[i], given_.results[i]);
    for (size_t i = loop_.carries; i < loop_.first_constant(); ++i) {
      if (s.sums[i] != no_value) b.add(s.sums[i], given_.gradients[i]);
      if (reads_[i]) b.add(inputs[i], operand(i));
    }
    for (size_t k = 0; k < kept_.size(); ++k)
      b.add(kept_[k], world_.value(node_.results[stack_of_[k]]));
    for (size_t i = loop_.carries; i < loop_.first_constant(); ++i)
      if (s.gradients[i] != no_value && given_.wanted[i]) give(i, s.gradients[i]);
    attributes.sequences = static_cast<int64_t>(b.inputs.size()) - attributes.carries;
    for (size_t i = loop_.first_constant(); i < inputs.size(); ++i)
      if (reads_[i]) b.add(inputs[i], operand(i));
    for (size_t i : sizes) b.add(inputs[i], operand(i));

    back.stages[0].inputs = b.inputs;
    back.stages[0].results = std::move(results);
    name_inputs(back);
    compact(back);
    attributes.length = length_;
    attributes.reverse = !loop_.form->reverse;
    world_.set_place(node_.where);
    auto found =
        world_.emit(ops::scan_operator(),
                    scan_of(std::move(attributes), loop_.body->name + "_backward", std::move(back)),
                    b.operands);
    std::vector<LoopGradient> gradients(inputs.size());
    for (size_t r = 0; r < gradient_of.size(); ++r) {
      const size_t i = gradient_of[r];
      if (i != none && given_.wanted[i])
        gradients[i] = {found[r], i >= loop_.carries && given_.gradients[i].defined()};
    }
    return gradients;
  }

  // A body knows sizes by its inputs: those that say what others do not stay, read or not. Carries
  // of them are constants, which are returned.
  std::vector<size_t> say_sizes(Graph& back, const BodyStep& s,
                                const std::vector<ValueId>& inputs) {
    std::vector<ValueId>& known = back.stages[0].inputs;
    for (const auto* list : {&s.cotangents, &s.sums})
      for (ValueId v : *list)
        if (v != no_value) known.push_back(v);
    known.insert(known.end(), kept_.begin(), kept_.end());
    for (ValueId v : handed_on_)
      if (v != no_value) known.push_back(v);
    for (size_t i = loop_.carries; i < inputs.size(); ++i)
      if (reads_[i]) known.push_back(inputs[i]);
    std::vector<size_t> carries;
    for (size_t i = inputs.size(); i-- > 0;) {
      const DimensionNames missing = unsettled(back, known);
      if (missing.empty()) break;
      if ((i >= loop_.carries && reads_[i]) || !names_one(back[inputs[i]].type, missing)) continue;
      known.push_back(inputs[i]);
      if (i < loop_.carries)
        carries.push_back(i);
      else
        reads_[i] = true;
    }
    return carries;
  }

  Graph& graph_;
  GraphWorld& world_;
  Node& node_;
  const LoopCotangents& given_;
  ops::Loop loop_;
  Graph body_;
  Activity active_;
  Dim length_;
  std::vector<const Node*> maker_;         // of the step's values
  std::vector<size_t> input_;              // by value: which input of the step it is
  Flags reads_;                            // by input: the backward pass reads it
  std::unordered_set<const Node*> again_;  // nodes that the backward pass has, too
  std::vector<ValueId> kept_;              // the step's values that are stacked
  std::vector<ValueId> handed_on_;         // by carry: what it becomes, where that is read
  std::vector<size_t> stack_of_;           // by kept value: the loop's result
};

// The derivative of one branch: a branch, whose graphs compute what they read of the given ones
// again.
class BranchDerivative {
 public:
  BranchDerivative(GraphWorld& world, const Node& node, const LoopCotangents& given)
      : world_(world), node_(node), given_(given), inputs_(node.operands.size() - 1) {}

  std::vector<LoopGradient> run() {
    Flags wanted(given_.wanted.begin() + 1, given_.wanted.end()), summed(inputs_);
    for (size_t i = 0; i < given_.results.size(); ++i)
      if (given_.results[i].defined()) order_.push_back(i);
    reached_.assign(inputs_, false);
    const auto graphs = ops::graphs_in(node_);
    for (const ops::GraphName* named : graphs) {
      bodies_.push_back(swept(*named->graph));
      const BodyStep s = differentiate_step(bodies_.back(), wanted, order_, {});
      for (size_t i = 0; i < inputs_; ++i)
        if (s.gradients[i] != no_value) reached_[i] = true;
    }
    for (size_t i = 0; i < inputs_; ++i)
      summed[i] = reached_[i] && given_.gradients[i + 1].defined();
    ops::GraphName then = backward(0, wanted, summed, graphs[0]->name);
    ops::GraphName otherwise = backward(1, wanted, summed, graphs[1]->name);
    return emit(ops::if_attributes(std::move(then), std::move(otherwise)), summed);
  }

 private:
  // Takes the graph's inputs, cotangents and sums; gives gradients.
  ops::GraphName backward(size_t branch, const Flags& wanted, const Flags& summed,
                          const std::string& name) const {
    BodyStep s = differentiate_step(bodies_[branch], wanted, order_, summed);
    Graph& g = s.graph;
    Stage one;
    one.inputs = g.stages[0].inputs;
    for (size_t i : order_) one.inputs.push_back(s.cotangents[i]);
    for (ValueId v : s.sums)
      if (v != no_value) one.inputs.push_back(v);
    one.nodes = std::move(g.stages[0].nodes);
    for (Node& n : g.stages[1].nodes) one.nodes.push_back(std::move(n));
    for (Value& v : g.values) v.stage = 0;
    for (size_t i = 0; i < inputs_; ++i) {
      if (!reached_[i]) continue;
      ValueId v = s.gradients[i];
      if (v == no_value) {
        GraphWorld zeros(g, 0, one.nodes);
        v = GraphWorld::id_of(ops::zeros_of(zeros, g[one.inputs[i]].type));
      }
      one.results.push_back({fmt::format("d{}", one.results.size()), v});
    }
    g.stages.clear();
    g.stages.push_back(std::move(one));
    name_inputs(g);
    eliminate_dead_code(g);
    compact(g);
    g.name = name + "_backward";
    return {g.name, std::make_shared<const Graph>(std::move(g))};
  }

  std::vector<LoopGradient> emit(Attributes attributes, const Flags& summed) {
    SmallVector<ops::Value, 4> operands;
    for (const Operand& o : node_.operands) operands.push_back(world_.value(o));
    for (size_t i : order_) operands.push_back(given_.results[i]);
    for (size_t i = 0; i < inputs_; ++i)
      if (summed[i]) operands.push_back(given_.gradients[i + 1]);
    std::vector<LoopGradient> gradients(node_.operands.size());
    if (std::ranges::count(reached_, true) == 0) return gradients;
    world_.set_place(node_.where);
    auto found = world_.emit(ops::if_operator(), std::move(attributes), operands);
    for (size_t i = 0, next = 0; i < inputs_; ++i)
      if (reached_[i]) gradients[i + 1] = {found[next++], summed[i]};
    return gradients;
  }

  GraphWorld& world_;
  const Node& node_;
  const LoopCotangents& given_;
  const size_t inputs_;  // of the graphs
  std::vector<size_t> order_;
  std::vector<Graph> bodies_;
  Flags reached_;
};

}  // namespace

std::vector<bool> dependent_results(const Node& loop, std::span<const bool> operands) {
  const auto scan = ops::loop_in(loop);
  const auto own = scan ? operands : operands.subspan(1);
  std::vector<bool> results(loop.results.size());
  for (const ops::GraphName* named : ops::graphs_in(loop)) {
    Graph body = swept(*named->graph);
    const Activity a = activity(body, scan ? scan->carries : 0, Flags(own.begin(), own.end()));
    for (size_t i = 0; i < results.size(); ++i)
      if (a.results[i]) results[i] = true;
  }
  return results;
}

std::vector<LoopGradient> differentiate_loop(Graph& graph, GraphWorld& world, Node& loop,
                                             const LoopCotangents& given) {
  if (!ops::loop_in(loop)) return BranchDerivative(world, loop, given).run();
  return ScanDerivative(graph, world, loop, given).run();
}

namespace {

// As graphs below know it: by the inputs that have it.
Dim inner_size(const Dim& size, const Node& node) {
  if (size.is_constant()) return size;
  std::string name = "batch";
  for (const ops::GraphName* named : ops::graphs_in(node)) {
    const DimensionNames taken = symbols_of(*named->graph);
    for (int n = 2; taken.contains(name); ++n) name = fmt::format("batch{}", n);
  }
  return Dim::symbol(name);
}

SmallVector<ops::Value, 2> batch_branch(const Node& node, const ops::BatchedCall& c) {
  if (c.batched[0])
    throw Error("{}: its predicate differs within the batch; compute both and choose by `where`",
                c.op.name);
  SmallVector<Shared, 2> graphs;
  for (const ops::GraphName* named : ops::graphs_in(node)) {
    const Graph& g = *named->graph;
    std::vector<std::string> inputs;
    for (size_t i = 1; i < c.operands.size(); ++i)
      if (c.batched[i]) inputs.push_back(g[g.stages[0].inputs[i - 1]].name);
    graphs.push_back(std::make_shared<const Graph>(batch(g, inputs, inner_size(c.size, node))));
  }
  return c.world.emit(c.op, ops::with_graphs(node, graphs), c.operands);
}

}  // namespace

SmallVector<ops::Value, 2> batch_loop(const Node& node, const ops::BatchedCall& c) {
  if (!ops::loop_in(node)) return batch_branch(node, c);
  const ops::Loop loop = *ops::loop_in(node);
  const Stage& stage = loop.body->stages[0];
  const Dim size = inner_size(c.size, node);
  std::vector<std::string> inputs;
  SmallVector<ops::Value, 4> operands;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const bool carry = i < loop.carries, sequence = !carry && i < loop.first_constant();
    if (carry || c.batched[i]) inputs.push_back((*loop.body)[stage.inputs[i]].name);
    ops::Value x = carry ? c.stretched(i) : c.operands[i];
    operands.push_back(sequence && c.batched[i] ? ops::transpose(x, 0, 1) : std::move(x));
  }
  ops::LoopForm attributes = *loop.form;
  if (!attributes.length) {
    const size_t first = loop.carries;
    attributes.length = c.operands[first].dims()[c.batched[first] ? 1 : 0];
  }
  auto results = c.world.emit(
      ops::scan_operator(),
      scan_of(attributes, loop.body->name + "_batch", batch(*loop.body, inputs, size)), operands);
  for (size_t i = loop.carries; i < results.size(); ++i)
    results[i] = ops::transpose(results[i], 0, 1);
  return results;
}

void unroll(Graph& graph) {
  Substitute substitute(graph);
  auto has_length = [&](const Node& node) {
    const auto loop = ops::loop_in(node);
    if (!loop) return false;
    SmallVector<OperandType, 4> types;
    for (const Operand& o : node.operands) types.push_back(graph.type_of(o));
    return ops::steps_of(*loop->form, types).is_constant();
  };
  for (size_t s = 0; s < graph.stages.size(); ++s) {
    std::vector<Node> done, pending;  // a stack
    for (Node& next : graph.stages[s].nodes) {
      pending.push_back(std::move(next));
      while (!pending.empty()) {
        Node node = std::move(pending.back());
        pending.pop_back();
        substitute.apply(node);
        if (!has_length(node)) {
          refuse_too_many_nodes(done.size());
          done.push_back(std::move(node));
          continue;
        }
        std::vector<Node> steps;
        take_apart(graph, s, node, steps, substitute);
        for (; !steps.empty(); steps.pop_back()) pending.push_back(std::move(steps.back()));
      }
    }
    graph.stages[s].nodes = std::move(done);
    substitute.apply(graph.stages[s].results);
  }
}

void prune_loop(const Graph& graph, Node& node, const std::vector<bool>& used) {
  if (!ops::loop_in(node)) return;
  const ops::Loop loop = *ops::loop_in(node);
  Graph body = *loop.body;
  Stage& stage = body.stages[0];
  const std::vector<Result> all = stage.results;
  const std::vector<ValueId> inputs = stage.inputs;
  const std::vector<Node> nodes = stage.nodes;
  Flags live(all.size());
  for (size_t i = 0; i < all.size(); ++i) live[i] = used[i];
  Flags read(body.values.size());
  for (bool grew = true; grew;) {
    stage.results.clear();
    stage.nodes = nodes;
    for (size_t i = 0; i < all.size(); ++i)
      if (live[i]) stage.results.push_back(all[i]);
    eliminate_dead_code(body);
    read.assign(body.values.size(), false);
    for (const Node& n : stage.nodes)
      for (const Operand& o : n.operands)
        if (value_in(o) != no_value) read[index_of(value_in(o))] = true;
    for (const Result& r : stage.results) read[index_of(r.value)] = true;
    grew = false;
    for (size_t i = 0; i < loop.carries; ++i)
      if (!live[i] && read[index_of(inputs[i])]) live[i] = grew = true;
  }
  Flags stays(inputs.size());
  std::vector<ValueId> left;
  for (size_t i = 0; i < inputs.size(); ++i) {
    stays[i] = i < loop.carries ? live[i] : read[index_of(inputs[i])];
    if (stays[i]) left.push_back(inputs[i]);
  }
  for (size_t i = inputs.size(); i-- > loop.carries;) {  // that say sizes
    if (stays[i]) continue;
    stage.inputs = left;
    const DimensionNames missing = unsettled(body, left);
    if (missing.empty()) break;
    if (!names_one(body[inputs[i]].type, missing)) continue;
    stays[i] = true;
    left.push_back(inputs[i]);
  }
  stage.inputs = left;
  if (!unsettled(body, left).empty()) return;  // a carry that goes says a size: all stays
  if (std::ranges::count(live, false) == 0 && std::ranges::count(stays, false) == 0 &&
      stage.nodes.size() == nodes.size())
    return;
  ops::LoopForm attributes = *loop.form;
  SmallVector<OperandType, 4> types;
  for (const Operand& o : node.operands) types.push_back(graph.type_of(o));
  attributes.length = ops::steps_of(*loop.form, types);
  attributes.carries = attributes.sequences = 0;
  stage.inputs.clear();
  SmallVector<Operand, 2> operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!stays[i]) continue;
    stage.inputs.push_back(inputs[i]);
    operands.push_back(node.operands[i]);
    attributes.carries += i < loop.carries;
    attributes.sequences += i >= loop.carries && i < loop.first_constant();
  }
  SmallVector<ValueId, 2> results;
  for (size_t i = 0; i < all.size(); ++i)
    if (live[i]) results.push_back(node.results[i]);
  compact(body);
  node.attributes = scan_of(std::move(attributes), loop.body->name, std::move(body));
  node.operands = std::move(operands);
  node.results = std::move(results);
}

}  // namespace gradus::ir
