#include "ir/passes/backpropagate.h"

#include <algorithm>
#include <unordered_map>

#include "gradus/registry.h"
#include "ir/passes/count_trips.h"
#include "ir/passes/loops.h"
#include "ops/collectives.h"
#include "ops/opaque.h"
#include "ops/reverse.h"

namespace gradus::ir {

namespace {

class Sweep {
 public:
  Sweep(Graph& graph, GraphWorld& world) : graph_(graph), world_(world) {}

  std::vector<ValueId> run(std::span<const std::span<Node>> runs, std::span<const Root> roots,
                           std::span<const ValueId> wrt) {
    find_makers(runs);
    mark_dependent(runs, wrt);
    cotangents_.assign(graph_.values.size(), no_value);
    for (const Root& r : roots)
      if (dependent(r.value)) accumulate(r.value, world_.value(r.cotangent));
    for (size_t r = runs.size(); r-- > 0;)
      for (size_t n = runs[r].size(); n-- > 0;) visit(runs[r][n]);
    std::vector<ValueId> gradients;
    for (ValueId x : wrt) {
      add_parts(x);
      gradients.push_back(cotangents_[index_of(x)]);
    }
    return gradients;
  }

  // Whether the sweep has added more than one contribution to it.
  bool is_sum(ValueId v) const { return index_of(v) < sums_.size() && sums_[index_of(v)]; }

  std::vector<bool> find_dependent(std::span<const std::span<Node>> runs,
                                   std::span<const ValueId> wrt) {
    find_makers(runs);
    mark_dependent(runs, wrt);
    return std::move(dependent_);
  }

 private:
  bool dependent(ValueId v) const {
    return index_of(v) < dependent_.size() && dependent_[index_of(v)];
  }

  bool has_handle(const Node& node) const {
    return node.op->traits.opaque && !node.results.empty() &&
           !graph_[node.results.back()].type.is_tensor();
  }

  void find_makers(std::span<const std::span<Node>> runs) {
    for (auto nodes : runs)
      for (const Node& node : nodes)
        if (has_handle(node)) makers_.emplace(node.results.back(), &node);
  }

  // What a node's derivative rule takes for an operand.
  struct Input {
    Operand operand;
    bool differentiable;
  };
  using Inputs = SmallVector<Input, 4>;

  bool wanted(const Input& x) const { return x.differentiable && dependent(value_in(x.operand)); }
  bool any_wanted(const Inputs& in) const {
    return std::ranges::any_of(in, [&](const Input& x) { return wanted(x); });
  }

  // A handle stands for the differentiable inputs of the node that left it; where that one has a
  // handle among its operands, for those of another, and so on.
  Inputs inputs_of(const Node& node) const {
    Inputs in;
    add_operands(node, in);
    for (const Node* n = maker_of_handle(node); n; n = maker_of_handle(*n)) {
      Inputs more;
      add_operands(*n, more);
      for (const Input& x : more)
        if (x.differentiable || !n->op->traits.acts) in.push_back(x);
    }
    return in;
  }

  void add_operands(const Node& node, Inputs& in) const {
    for (size_t i = 0; i < node.operands.size(); ++i) {
      ValueId v = value_in(node.operands[i]);
      if (v != no_value && !graph_[v].type.is_tensor()) continue;
      bool differentiable = v != no_value && graph_[v].type.is_floating();
      if (node.op->traits.acts && differentiable)
        differentiable = ops::requires_grad(node.attributes, i, graph_[v].type);
      in.push_back({node.operands[i], differentiable});
    }
  }

  // Null where no operand is a handle.
  const Node* maker_of_handle(const Node& node) const {
    if (!node.op->traits.opaque || node.operands.empty()) return nullptr;
    auto maker = makers_.find(value_in(node.operands.back()));
    return maker == makers_.end() ? nullptr : maker->second;
  }

  // Which values depend on an x through differentiable rules.
  void mark_dependent(std::span<const std::span<Node>> runs, std::span<const ValueId> wrt) {
    dependent_.assign(graph_.values.size(), false);
    for (ValueId x : wrt) dependent_[index_of(x)] = true;
    for (auto nodes : runs)
      for (const Node& node : nodes) {
        if (node.op->traits.zero_gradient) continue;
        if (!depends(node)) continue;
        const std::vector<bool> through =
            node.op->traits.loop ? dependent_results(graph_, node, dependent_operands(node))
                                 : std::vector<bool>(node.results.size(), true);
        for (size_t k = 0; k < node.results.size(); ++k)
          if (through[k] && graph_[node.results[k]].type.is_floating())
            dependent_[index_of(node.results[k])] = true;
      }
  }

  SmallVector<bool, 4> dependent_operands(const Node& node) const {
    SmallVector<bool, 4> flags;
    for (const Operand& o : node.operands)
      flags.push_back(value_in(o) != no_value && dependent(value_in(o)));
    return flags;
  }

  bool depends(const Node& node) const {
    if (node.op->traits.opaque) return any_wanted(inputs_of(node));
    return std::ranges::any_of(node.operands, [&](const Operand& o) {
      return value_in(o) != no_value && dependent(value_in(o));
    });
  }

  void visit(Node& node) {
    bool reached = false;
    if (!parts_.empty())
      for (ValueId y : node.results) add_parts(y);
    for (ValueId y : node.results) reached |= cotangents_[index_of(y)] != no_value && dependent(y);
    if (!reached || node.op->traits.zero_gradient) return;
    Inputs in = inputs_of(node);
    if (!any_wanted(in)) return;  // a result that is itself an x
    if (node.op->traits.loop) return apply_loop(node);
    if (!node.op->vjp)
      throw graph_.error_at(node.where,
                            fmt::format("operator '{}' has no derivative; detach its operand, or "
                                        "leave out what depends on it",
                                        node.op->name));
    if (node.op->traits.opaque && !has_handle(node)) add_handle(node);
    apply_rule(node, in);
  }

  ops::Value cotangent(ValueId v) const {
    const ValueId ct = cotangents_[index_of(v)];
    return ct == no_value ? ops::Value() : world_.value(ct);
  }

  void apply_loop(Node& node) {
    const SmallVector<bool, 4> wanted = dependent_operands(node);
    std::vector<ops::Value> results, sums(node.operands.size());
    for (ValueId y : node.results)
      results.push_back(graph_[y].type.is_floating() ? cotangent(y) : ops::Value());
    // What stands there twice gives two terms.
    for (size_t i = 0; i < sums.size(); ++i)
      if (std::ranges::count(node.operands, node.operands[i]) == 1 && wanted[i])
        sums[i] = cotangent(value_in(node.operands[i]));
    const auto found = differentiate_loop(graph_, world_, node, {wanted, results, sums});
    cotangents_.resize(graph_.values.size(), no_value);
    for (size_t i = 0; i < found.size(); ++i) {
      if (!found[i].value.defined()) continue;
      const ValueId x = value_in(node.operands[i]);
      if (found[i].is_sum) cotangents_[index_of(x)] = no_value;
      accumulate(x, ops::fit(found[i].value, graph_[x].type));
    }
  }

  void add_handle(Node& node) {
    auto types = ops::infer(graph_, node, nullptr, node.results.size() + 1);
    GRADUS_CHECK(types.size() == node.results.size() + 1);
    size_t stage = graph_[node.results[0]].stage;
    node.results.push_back(graph_.add_value(std::move(types.back()), {}, stage));
    cotangents_.resize(graph_.values.size(), no_value);
  }

  void apply_rule(const Node& node, const Inputs& in) {
    ops::PullBack at;
    for (const Input& x : in) at.operand(world_.value(x.operand), wanted(x));
    for (ValueId v : node.results) {
      ValueId ct = graph_[v].type.is_floating() ? cotangents_[index_of(v)] : no_value;
      at.result(world_.value(v), ct == no_value ? ops::Value() : world_.value(ct));
    }
    world_.set_place(node.where);
    // The rule may append to the nodes that `node` lies in: keep what it needs.
    const Operator& op = *node.op;
    Attributes attributes = node.attributes;
    SourceLocation where = node.where;
    try {
      const ops::VjpCall call = at.call(world_, op, attributes);
      for (size_t i = 0; i < call.gradients.size(); ++i)
        if (const ops::Value& g = call.gradients[i]; g.defined())
          accumulate(value_in(in[i].operand), ops::fit_here(g, call.x_type(i)));
    } catch (const Error& e) {
      if (e.where().known()) throw;
      std::string_view why = e.bare();  // which may begin with the operator's name
      if (const std::string own = fmt::format("{}: ", op.name); why.starts_with(own))
        why.remove_prefix(own.size());
      throw graph_.error_at(where, fmt::format("derivative of '{}': {}", op.name, why));
    }
  }

  // Parts of a sum over ranks are added up here first, so that ranks exchange them once.
  void accumulate(ValueId target, const ops::Value& contribution) {
    const Type& type = graph_[target].type;
    if (same_sharing(type, contribution.type)) return add(target, contribution);
    if (type.placement) return add(target, share(contribution, target));
    auto [parts, is_first] = parts_.emplace(target, no_value);
    if (!is_first && !same_sharing(graph_[parts->second].type, contribution.type))
      return add(target, share(contribution, target));
    add_to(parts->second, contribution);
  }

  void add_parts(ValueId target) {
    const auto parts = parts_.find(target);
    if (parts == parts_.end()) return;
    const ops::Value sum = share(world_.value(parts->second), target);
    parts_.erase(parts);
    add(target, sum);
  }

  ops::Value share(const ops::Value& gradient, ValueId target) const {
    return ops::share_as(gradient, graph_[target].type);
  }

  void add(ValueId target, const ops::Value& contribution) {
    ValueId& slot = cotangents_[index_of(target)];
    if (slot != no_value) {
      sums_.resize(cotangents_.size());
      sums_[index_of(target)] = true;
    }
    add_to(slot, contribution);
  }

  void add_to(ValueId& slot, const ops::Value& contribution) {
    if (slot == no_value) {
      slot = GraphWorld::id_of(contribution);
      return;
    }
    ops::Value sum = world_.value(slot);
    ops::accumulate(sum, contribution);
    slot = GraphWorld::id_of(sum);
  }

  Graph& graph_;
  GraphWorld& world_;
  std::unordered_map<ValueId, const Node*> makers_;  // of handles
  std::vector<bool> dependent_;
  std::unordered_map<ValueId, ValueId> parts_;  // of gradients, that ranks are going to add up
  std::vector<ValueId> cotangents_;             // of the values that were there before the sweep
  std::vector<bool> sums_;                      // which of them have more than one term
};

}  // namespace

std::vector<ValueId> backpropagate(Graph& graph, GraphWorld& world,
                                   std::span<std::vector<Node>* const> runs,
                                   std::span<const Root> roots, std::span<const ValueId> wrt,
                                   std::vector<bool>* sums) {
  count_trips(graph, runs, roots, wrt);
  const std::vector<std::span<Node>> nodes = spans_of(runs);
  Sweep sweep(graph, world);
  std::vector<ValueId> gradients = sweep.run(nodes, roots, wrt);
  if (sums) {
    sums->clear();
    for (ValueId x : wrt) sums->push_back(sweep.is_sum(x));
  }
  return gradients;
}

std::vector<bool> find_dependent(Graph& graph, std::span<const std::span<Node>> runs,
                                 std::span<const ValueId> wrt) {
  std::vector<Node> none;
  GraphWorld world(graph, 0, none);
  return Sweep(graph, world).find_dependent(runs, wrt);
}

}  // namespace gradus::ir
