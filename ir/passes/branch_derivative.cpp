#include <algorithm>

#include "gradus/passes.h"
#include "gradus/rules.h"
#include "ir/passes/loop_step.h"
#include "ops/structural.h"

namespace gradus::ir {

namespace {

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
      const LoopStep s = differentiate_step(bodies_.back(), wanted, order_, {});
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
    LoopStep s = differentiate_step(bodies_[branch], wanted, order_, summed);
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

std::vector<LoopGradient> differentiate_branch(GraphWorld& world, const Node& node,
                                               const LoopCotangents& given) {
  return BranchDerivative(world, node, given).run();
}

}  // namespace gradus::ir
