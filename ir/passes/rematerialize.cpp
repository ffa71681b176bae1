#include <algorithm>

#include "gradus/passes.h"
#include "gradus/rewrite.h"
#include "ir/passes/held_values.h"
#include "ir/passes/min_cut.h"
#include "ir/passes/recompute_cost.h"

namespace gradus::ir {

namespace {

// What later stages do with the values of a stage and those before it.
struct Choice {
  std::vector<std::vector<bool>> again;  // by stage and node: computed again
  int64_t held = 0;                      // bytes
};

// Chooses what is held after one stage.
class Chooser {
 public:
  Chooser(const Graph& graph, const HeldValues& values, size_t stage)
      : graph_(graph), values_(values), stage_(stage) {
    if (stage > 0) before_ = values.held_after(stage - 1);
    find_needed();
  }

  // The choice with the least recomputation that keeps the budget; of none, that which holds least.
  Choice within(int64_t budget) {
    Choice least;
    for (const bool products : {false, true}) {
      products_ = products;
      least = choose(0);
      if (least.held <= budget) return dearest_within(budget, std::move(least));
    }
    return least;
  }

 private:
  // The price of a held byte, in units of what `price` is for a byte that is moved again.
  static constexpr int64_t held_byte = 1 << 16;

  // Raises the price of recomputing while the budget is kept: first by powers of two, then between.
  Choice dearest_within(int64_t budget, Choice best) const {
    constexpr int64_t most = int64_t{1} << 36;
    int64_t kept = 0, broken = most;
    for (int64_t price = 1; price < most; price *= 2) {
      Choice c = choose(price);
      if (c.held > budget) {
        broken = price;
        break;
      }
      best = std::move(c);
      kept = price;
    }
    for (int step = 0; step < 10 && broken - kept > 1; ++step) {
      const int64_t price = kept + (broken - kept) / 2;
      Choice c = choose(price);
      if (c.held > budget) {
        broken = price;
      } else {
        best = std::move(c);
        kept = price;
      }
    }
    return best;
  }

  // What later stages read of this one and those before.
  void find_needed() {
    std::vector<bool> seen(graph_.values.size(), false);
    auto read = [&](ValueId v) {
      if (v == no_value || seen[index_of(v)] || graph_[v].stage > stage_ ||
          values_.is_free(v, stage_))
        return;
      seen[index_of(v)] = true;
      needed_.push_back(v);
    };
    for (size_t s = stage_ + 1; s < graph_.stages.size(); ++s) {
      for (const Node& node : graph_.stages[s].nodes)
        for (const Operand& o : node.operands) read(value_in(o));
      for (const Result& r : graph_.stages[s].results) read(r.value);
    }
  }

  // A value's price where it is held. Views are made again of what is held; what was let go before
  // this stage cannot be held after it.
  int64_t held_price(ValueId v) const {
    if (values_.is_view(v) || !values_.is_known(v)) return FlowNetwork::unlimited;
    if (graph_[v].stage < stage_ && !before_[index_of(v)]) return FlowNetwork::unlimited;
    return values_.bytes(v) * held_byte;
  }

  // The price of computing a node again where a moved byte costs `price`.
  int64_t again_price(const HeldValues::Maker& m, int64_t price) const {
    const Node& node = graph_.stages[m.stage].nodes[m.node];
    if (std::ranges::all_of(node.results, [&](ValueId v) { return values_.is_view(v); })) return 0;
    const auto cost = recompute_cost(graph_, node);
    if (!cost || (*cost >= costly && !products_)) return FlowNetwork::unlimited;
    int64_t bytes = 0;
    bool known = true;
    auto add = [&](ValueId v) {
      if (v == no_value) return;
      known &= values_.is_known(v);
      if (known) bytes += values_.bytes(v);
    };
    for (const Operand& o : node.operands) add(value_in(o));
    for (ValueId v : node.results) add(v);
    if (!known) return FlowNetwork::unlimited;
    // Up to twice as much for what comes last.
    const size_t all = graph_.stages[m.stage].nodes.size();
    const double later = 1 + static_cast<double>(m.node) / static_cast<double>(all);
    const double units = static_cast<double>(bytes) * static_cast<double>(*cost) *
                         static_cast<double>(price) * later;
    constexpr double most = static_cast<double>(FlowNetwork::unlimited >> 3);
    return static_cast<int64_t>(std::min(units, most));
  }

  // A network with a node for each program's node and each value that matter: those on the sink's
  // side are computed again, or there in later stages. What is cut is paid for: source -> node
  // where it is computed again, node -> value where that is held.
  Choice choose(int64_t price) const {
    FlowNetwork network;
    const uint32_t source = network.add_node(), sink = network.add_node();
    constexpr uint32_t none = UINT32_MAX;
    std::vector<uint32_t> number(graph_.values.size(), none);
    std::vector<std::vector<uint32_t>> node_number;
    for (size_t s = 0; s <= stage_; ++s)
      node_number.emplace_back(graph_.stages[s].nodes.size(), none);
    std::vector<ValueId> open;
    auto there = [&](ValueId v) {
      uint32_t& n = number[index_of(v)];
      if (n == none) {
        n = network.add_node();
        open.push_back(v);
      }
      return n;
    };
    for (ValueId v : needed_) network.add_edge(there(v), sink, FlowNetwork::unlimited);
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      const HeldValues::Maker& m = *values_.maker(v);
      uint32_t& n = node_number[m.stage][m.node];
      if (n == none) {
        n = network.add_node();
        const int64_t cost = again_price(m, price);
        network.add_edge(source, n, cost);
        if (cost < FlowNetwork::unlimited)
          for (const Operand& o : graph_.stages[m.stage].nodes[m.node].operands)
            if (const ValueId x = value_in(o); x != no_value && !values_.is_free(x, stage_))
              network.add_edge(there(x), n, FlowNetwork::unlimited);
      }
      network.add_edge(node_number[m.stage][m.node], number[index_of(v)], held_price(v));
    }
    const std::vector<bool> side = network.sink_side(source, sink);
    Choice choice;
    for (const auto& stage : node_number) {
      auto& again = choice.again.emplace_back(stage.size(), false);
      for (size_t n = 0; n < stage.size(); ++n) again[n] = stage[n] != none && side[stage[n]];
    }
    for (size_t v = 0; v < number.size(); ++v) {
      if (number[v] == none || !side[number[v]]) continue;
      const HeldValues::Maker& m = *values_.maker(static_cast<ValueId>(v));
      if (!choice.again[m.stage][m.node]) choice.held += values_.bytes(static_cast<ValueId>(v));
    }
    return choice;
  }

  const Graph& graph_;
  const HeldValues& values_;
  const size_t stage_;
  bool products_ = false;
  std::vector<bool> before_;  // held after the stage before
  std::vector<ValueId> needed_;
};

// Lets later stages compute again what was chosen.
class Rewriter {
 public:
  Rewriter(Graph& graph, const HeldValues& values, size_t stage, const Choice& choice)
      : graph_(graph), values_(values), stage_(stage), choice_(choice), again_(graph) {}

  void run() {
    for (size_t s = stage_ + 1; s < graph_.stages.size(); ++s) {
      Stage& stage = graph_.stages[s];
      done_.clear();
      done_.reserve(stage.nodes.size());
      for (Node& node : stage.nodes) {
        for (Operand& o : node.operands)
          if (ValueId* v = std::get_if<ValueId>(&o)) *v = in_stage(*v, s);
        done_.push_back(std::move(node));
      }
      for (Result& r : stage.results)
        if (r.value != no_value) r.value = in_stage(r.value, s);
      stage.nodes = std::move(done_);
    }
  }

 private:
  // Of a value that is computed again: its node, if it was not yet.
  const HeldValues::Maker* waiting(ValueId v) const {
    if (index_of(v) >= values_.size() || again_(v) != v || values_.is_free(v, stage_))
      return nullptr;
    const auto& m = values_.maker(v);
    return m->stage <= stage_ && choice_.again[m->stage][m->node] ? &*m : nullptr;
  }

  // What stands for a value from this place of the stage on. Operands first, without recursion.
  ValueId in_stage(ValueId v, size_t stage) {
    std::vector<ValueId> open;
    if (waiting(v)) open.push_back(v);
    while (!open.empty()) {
      const HeldValues::Maker* m = waiting(open.back());
      if (!m) {  // by another way
        open.pop_back();
        continue;
      }
      const size_t before = open.size();
      for (const Operand& o : graph_.stages[m->stage].nodes[m->node].operands)
        if (const ValueId x = value_in(o); x != no_value && waiting(x)) open.push_back(x);
      if (open.size() > before) continue;
      Node node = graph_.stages[m->stage].nodes[m->node];
      again_.apply(node);
      for (ValueId& y : node.results) {
        const ValueId made = graph_.add_value(graph_[y].type, {}, stage);
        again_.replace(y, made);
        y = made;
      }
      done_.push_back(std::move(node));
    }
    return again_(v);
  }

  Graph& graph_;
  const HeldValues& values_;
  const size_t stage_;
  const Choice& choice_;
  Substitute again_;
  std::vector<Node> done_;  // of the stage that is rebuilt
};

}  // namespace

namespace {

// What is held at most after a stage, and after which.
struct Peak {
  int64_t held = 0;
  size_t stage = 0;
  bool changed = false;  // the graph
};

// Keeps the budget after every stage where that can be done.
Peak keep(Graph& graph, const MemoryBudget& budget) {
  Peak peak;
  for (size_t s = 0; s + 1 < graph.stages.size(); ++s) {
    const HeldValues values(graph, budget);
    int64_t held = values.sum(values.held_after(s));
    if (held > budget.bytes) {
      const Choice choice = Chooser(graph, values, s).within(budget.bytes);
      held = choice.held;
      Rewriter(graph, values, s, choice).run();
      peak.changed = true;
    }
    if (held > peak.held) peak = {held, s, peak.changed};
  }
  return peak;
}

// The least budget that is found to work. What is held longer after one stage may be more after the
// next, so what the peak was need not be enough.
Peak enough(const Graph& graph, MemoryBudget budget, Peak peak) {
  for (;;) {
    budget.bytes = peak.held;
    Graph kept = graph;
    const Peak next = keep(kept, budget);
    if (next.held <= budget.bytes) return peak;
    peak = next;
  }
}

}  // namespace

void rematerialize(Graph& graph, const MemoryBudget& budget) {
  Graph kept = graph;
  Peak peak = keep(kept, budget);
  if (peak.held > budget.bytes) {
    peak = enough(graph, budget, peak);
    throw Error(
        "a memory budget of {} bytes is too small: after stage {} at least {} bytes have to be "
        "held, with all computed again that can be; give as many, or run without a budget",
        budget.bytes, peak.stage, peak.held);
  }
  if (!peak.changed) return;
  graph = std::move(kept);
  eliminate_common_subexpressions(graph);
  eliminate_dead_code(graph);
  compact(graph);
}

}  // namespace gradus::ir
