#include "ir/passes/hoist_invariants.h"

#include <algorithm>

#include "gradus/passes.h"
#include "gradus/rewrite.h"
#include "ir/passes/loop_step.h"
#include "ir/passes/recompute_cost.h"
#include "ops/control_flow.h"
#include "ops/structural.h"

namespace gradus::ir {

namespace {

// What a loop's graph computes of constants alone, and what is left of it.
struct Parted {
  Graph before;  // takes the carries (of which it knows sizes) and constants; gives `values`
  Graph step;    // takes `values` as its last inputs
  std::vector<ValueId> values;
};

// Whether a run of it can end in an Error, or not at all.
bool may_fail(const Graph& graph, const Node& node) {
  if (ops::constant_in(node)) return false;
  if (!recompute_cost(graph, node) || ops::data_loop_in(*node.op, node.attributes)) return true;
  return std::ranges::any_of(ops::graphs_in(node), [](const ops::GraphName* named) {
    Graph inner = *named->graph;
    expand_grad(inner);
    decompose(inner, false);
    return std::ranges::any_of(inner.stages[0].nodes,
                               [&](const Node& n) { return may_fail(inner, n); });
  });
}

class Parting {
 public:
  Parting(Graph body, size_t carries, size_t first_constant)
      : body_(std::move(body)), carries_(carries), first_constant_(first_constant) {
    expand_grad(body_);
    decompose(body_, false);
    hoist_invariants(body_);
  }

  std::optional<Parted> run() {
    find_invariants();
    if (std::ranges::count(moved_, true) == 0) return std::nullopt;
    Parted p{body_, body_, read_by_steps()};
    Stage& before = p.before.stages[0];
    before.inputs = inputs_before();
    before.nodes = nodes_before();
    before.results.clear();
    for (ValueId v : p.values)
      before.results.push_back({fmt::format("r{}", before.results.size()), v});
    if (!unsettled(p.before, before.inputs).empty()) return std::nullopt;  // a slice says a size
    Stage& step = p.step.stages[0];
    std::erase_if(step.nodes, [&](const Node& n) { return moved_of(n); });
    step.inputs.insert(step.inputs.end(), p.values.begin(), p.values.end());
    eliminate_dead_code(p.step);
    name_inputs(p.step);
    return p;
  }

 private:
  bool all_operands(const Node& node, const Flags& flags) const {
    return std::ranges::all_of(node.operands, [&](const Operand& o) {
      return value_in(o) == no_value || flags[index_of(value_in(o))];
    });
  }
  bool any_operand(const Node& node, const Flags& flags) const {
    return std::ranges::any_of(node.operands, [&](const Operand& o) {
      return value_in(o) != no_value && flags[index_of(value_in(o))];
    });
  }
  bool moved_of(const Node& node) const {
    return !node.results.empty() && moved_[index_of(node.results[0])];
  }

  // A node moves if it is worth it: a cheap one where what it reads moves, which its result then
  // stands for. None moves that need not end well: the loop may take no step.
  void find_invariants() {
    Flags invariant(body_.values.size());
    moved_.assign(body_.values.size(), false);
    const Stage& stage = body_.stages[0];
    for (size_t i = first_constant_; i < stage.inputs.size(); ++i)
      invariant[index_of(stage.inputs[i])] = true;
    for (const Node& node : stage.nodes) {
      if (!all_operands(node, invariant) || may_fail(body_, node)) continue;
      const auto cost = recompute_cost(body_, node);
      const bool reads = any_operand(node, invariant);
      const bool moves =
          cost && reads &&
          (*cost > again::moves || (node.op->pointwise && any_operand(node, moved_)));
      for (ValueId v : node.results) {
        invariant[index_of(v)] = true;
        moved_[index_of(v)] = moves;
      }
    }
  }

  // Of what moves.
  std::vector<ValueId> read_by_steps() const {
    std::vector<ValueId> values;
    auto note = [&](ValueId v) {
      if (v != no_value && moved_[index_of(v)] && std::ranges::find(values, v) == values.end())
        values.push_back(v);
    };
    for (const Node& node : body_.stages[0].nodes)
      if (!moved_of(node))
        for (const Operand& o : node.operands) note(value_in(o));
    for (const Result& r : body_.stages[0].results) note(r.value);
    return values;
  }

  std::vector<ValueId> inputs_before() const {
    const std::vector<ValueId>& all = body_.stages[0].inputs;
    std::vector<ValueId> inputs(all.begin(), all.begin() + static_cast<ptrdiff_t>(carries_));
    inputs.insert(inputs.end(), all.begin() + static_cast<ptrdiff_t>(first_constant_), all.end());
    return inputs;
  }

  // What moves, and copies of what that needs.
  std::vector<Node> nodes_before() const {
    Flags needed = moved_;
    std::vector<Node> nodes;
    const std::vector<Node>& all = body_.stages[0].nodes;
    for (size_t n = all.size(); n-- > 0;) {
      const bool wanted =
          std::ranges::any_of(all[n].results, [&](ValueId v) { return needed[index_of(v)]; });
      if (!wanted) continue;
      for (const Operand& o : all[n].operands)
        if (value_in(o) != no_value) needed[index_of(value_in(o))] = true;
      nodes.push_back(all[n]);
    }
    std::ranges::reverse(nodes);
    return nodes;
  }

  Graph body_;
  size_t carries_, first_constant_;
  Flags moved_;  // by value
};

// The graph with further inputs that it does not read, as many as the types have.
Graph with_unread(Graph graph, std::span<const Type> types) {
  DimensionNames taken = symbols_of(graph);
  size_t next = 0;
  for (Type type : types) {
    for (Dim& d : type.dims) {  // the other graph's names say nothing here
      std::string name;
      do name = fmt::format("n{}", next++);
      while (!taken.insert(name).second);
      d = Dim::symbol(name);
    }
    graph.stages[0].inputs.push_back(graph.add_value(std::move(type), {}, 0));
  }
  name_inputs(graph);
  return graph;
}

// Of loops that may take more than one step: how many operands are carries, and are no constants.
struct Operands {
  size_t carries, first_constant;
};
std::optional<Operands> operands_of(const Graph& graph, const Node& node) {
  if (const auto scan = ops::loop_in(node)) {
    SmallVector<OperandType, 4> types;
    for (const Operand& o : node.operands) types.push_back(graph.type_of(o));
    const Dim steps = ops::steps_of(*scan->form, types);
    if (steps.is_constant() && steps.value() <= 1) return std::nullopt;
    return Operands{scan->carries, scan->first_constant()};
  }
  const auto data = ops::data_loop_in(*node.op, node.attributes);
  return data ? std::optional(Operands{data->carries, data->carries}) : std::nullopt;
}

// Emits into `done` what moves out of the steps of the node, if that is a loop.
void hoist(Graph& graph, size_t stage, Node& node, std::vector<Node>& done) {
  const std::optional<Operands> operands = operands_of(graph, node);
  if (!operands) return;
  SmallVector<std::shared_ptr<const Graph>, 2> graphs;
  for (const ops::GraphName* named : ops::graphs_in(node)) graphs.push_back(named->graph);
  std::optional<Parted> parted =
      Parting(*graphs.back(), operands->carries, operands->first_constant).run();
  if (!parted) return;
  GraphWorld world(graph, stage, done);
  world.set_place(node.where);
  SmallVector<ops::Value, 4> in;
  for (size_t i = 0; i < node.operands.size(); ++i)
    if (i < operands->carries || i >= operands->first_constant)
      in.push_back(world.value(node.operands[i]));
  std::vector<Type> types;
  for (const ops::Value& v : ops::emit_graph(world, *node.op, parted->before, in)) {
    node.operands.push_back(v.operand);
    types.push_back(v.type);
  }
  graphs.back() = std::make_shared<const Graph>(std::move(parted->step));
  for (size_t g = 0; g + 1 < graphs.size(); ++g)  // of a `while`, whose condition stays as it is
    graphs[g] = std::make_shared<const Graph>(with_unread(*graphs[g], types));
  node.attributes = ops::with_graphs(node, graphs);
}

}  // namespace

void hoist_invariants(Graph& graph) {
  const auto is_loop = [](const Node& node) { return node.op->traits.loop; };
  for (size_t s = 0; s < graph.stages.size(); ++s) {
    if (std::ranges::none_of(graph.stages[s].nodes, is_loop)) continue;
    std::vector<Node> nodes = std::move(graph.stages[s].nodes), done;
    done.reserve(nodes.size());
    for (Node& node : nodes) {
      if (is_loop(node)) hoist(graph, s, node, done);
      done.push_back(std::move(node));
    }
    graph.stages[s].nodes = std::move(done);
  }
}

}  // namespace gradus::ir
