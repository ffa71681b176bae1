// Appends to the last stage of a graph.
#pragma once

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gradus/batching.h"
#include "gradus/passes.h"
#include "gradus/rewrite.h"
#include "gradus/rules.h"
#include "ir/passes/backpropagate.h"
#include "ir/passes/count_trips.h"
#include "ir/passes/loops.h"
#include "ops/structural.h"

namespace gradus::ir {

class StageBuilder {
 public:
  using Values = std::vector<ValueId>;
  explicit StageBuilder(Graph graph) : graph_(std::move(graph)), at_(graph_.stages.size() - 1) {
    expand_grad(graph_);
    decompose(graph_, true);
    for (const Value& v : graph_.values)
      if (!v.name.empty()) taken_.insert(v.name);
    for (const Result& r : stage().results) result_names_.insert(r.name);
  }

  // Before sweeps: they put no nodes among those that `mark` counts then.
  void count_loops() { count_trips(graph_); }

  Graph finish() {
    if (points_) finish_points();
    eliminate_dead_code(graph_);
    compact(graph_);
    return std::move(graph_);
  }

  Graph& graph() { return graph_; }
  Stage& stage() { return graph_.stages[at_]; }
  const Type& type(ValueId v) const { return graph_[v].type; }
  size_t mark() { return stage().nodes.size(); }

  ValueId input(const std::string& name, Type type) {
    if (!taken_.insert(name).second)
      throw Error("an input named %{} is needed, but that name is taken; rename the value", name);
    ValueId v = graph_.add_value(std::move(type), name, at_);
    stage().inputs.push_back(v);
    return v;
  }
  // An input of that name with another type; the old value loses its name.
  ValueId replace_input(ValueId old, Type type) {
    ValueId v = graph_.add_value(std::move(type), std::exchange(graph_[old].name, {}), at_);
    stage().inputs.push_back(v);
    return v;
  }
  // A result; with points, of all points.
  void result(std::string name, ValueId value) {
    if (!result_names_.insert(name).second)
      throw Error("a result named {} is needed, but that name is taken; rename the result", name);
    if (value != no_value && graph_[value].name.empty() && taken_.insert(name).second)
      graph_[value].name = name;
    stage().results.push_back({std::move(name), value});
  }

  // Appends what `make` emits and returns the value it gives.
  template <class F>
  ValueId emit(F make) {
    std::vector<Node> emitted;
    GraphWorld world(graph_, at_, emitted);
    ValueId v = GraphWorld::id_of(make(world));
    return append(std::move(emitted), {v})[0];
  }

  // The gradients of the roots with respect to xs.
  Values sweep(std::span<const Root> roots, std::span<const ValueId> xs) {
    std::vector<Node> emitted;
    GraphWorld world(graph_, at_, emitted);
    std::vector<std::vector<Node>*> runs;
    for (Stage& s : graph_.stages) runs.push_back(&s.nodes);
    Values gradients = backpropagate(graph_, world, runs, roots, xs);
    return append(std::move(emitted), std::move(gradients));
  }

  // The derivatives of ys along the direction that moves each x by its t. The backward pass is
  // linear in its cotangents: its own derivative with respect to them is the forward pass. What it
  // computes from the cotangents, zeros here, is used by nobody and goes away.
  Values push(std::span<const ValueId> ys, std::span<const ValueId> xs,
              std::span<const ValueId> ts) {
    std::vector<Root> roots;
    Values cotangents;
    for (ValueId y : ys) {
      ValueId ct = y == no_value ? no_value : zeros(type(y));
      cotangents.push_back(ct);
      if (ct != no_value) roots.push_back({y, ct});
    }
    Values gradients = sweep(roots, xs);
    std::vector<Root> again;
    for (size_t i = 0; i < xs.size(); ++i)
      if (gradients[i] != no_value) again.push_back({gradients[i], ts[i]});
    Values given;
    for (ValueId ct : cotangents)
      if (ct != no_value) given.push_back(ct);
    Values found = sweep(again, given), tangents;
    for (size_t i = 0, k = 0; i < cotangents.size(); ++i)
      tangents.push_back(cotangents[i] == no_value ? no_value : found[k++]);
    return tangents;
  }

  ValueId zeros(const Type& type) {
    return emit([&](GraphWorld& w) { return ops::zeros_of(w, type); });
  }
  ValueId ones(const Type& type) {
    return emit([&](GraphWorld& w) { return ops::full(w, type.dims, 1, type.dtype); });
  }
  // The directions of all elements: [n, ..], n the number of elements.
  ValueId basis(const Type& type) {
    return emit([&](GraphWorld& w) {
      Dim n = numel(type.dims);
      ops::Value one = ops::eye(w, n, type.dtype);
      Dims dims{n};
      dims.append(type.dims.begin(), type.dims.end());
      return ops::reshape(one, dims);
    });
  }

  // Emits the nodes from `first` on again, with the values of `by` in the place of others: with one
  // dimension more, `size`, in front. `wanted` are values that they compute; the result is those
  // with the dimension.
  Values batch(size_t first, std::unordered_map<ValueId, ValueId> by, const Dim& size,
               Values wanted) {
    wanted = at_points(take_apart(first, std::move(wanted)));
    std::vector<Node> nodes(stage().nodes.begin() + static_cast<ptrdiff_t>(first),
                            stage().nodes.end());
    std::vector<Node> emitted;
    GraphWorld world(graph_, at_, emitted);
    for (const Node& node : nodes)
      if (!is_at_points(node)) batch_node(world, node, by, size);
    for (ValueId& v : wanted) {
      if (v == no_value) continue;
      if (auto it = by.find(v); it != by.end()) {
        v = it->second;
      } else {
        Dims dims{size};
        dims.append(type(v).dims.begin(), type(v).dims.end());
        v = GraphWorld::id_of(ops::expand(world.value(v), dims));
      }
    }
    wanted = append(std::move(emitted), std::move(wanted));
    if (points_) points_->done = stage().nodes.size();
    return wanted;
  }

  // The stage is of one point, and the program is to be that of many, at which these inputs differ.
  // Sweeps go on over the nodes of one point. What `batch`, `at_points` and `finish` give is of all
  // points, with their dimension in front, or behind that of `batch`; what is the same at each
  // point has none. The nodes of one point are dead in the end.
  void begin_points(std::span<const ValueId> inputs, const Dim& size) {
    points_.emplace();
    points_->size = size;
    points_->given_results = stage().results.size();
    for (ValueId v : inputs) set_at_points(v, graph_.add_value(with_points(type(v)), {}, at_));
  }
  const Dim* points() const { return points_ ? &points_->size : nullptr; }
  // Of a value of all points: whether it has the dimension.
  bool has_points(ValueId v) const { return points_ && points_->values.contains(v); }
  // The values of all points of values of one.
  Values at_points(Values values) {
    if (!points_) return values;
    map_to_points();
    for (ValueId& v : values)
      if (auto it = points_->by.find(v); it != points_->by.end()) v = it->second;
    return values;
  }
  // Lets `v`, of one point, stand for `value`, of all; or for what stands for `value` there.
  void set_at_points(ValueId v, ValueId value) {
    points_->by[v] = value;
    points_->values.insert(value);
  }
  void set_as(ValueId v, ValueId other) {
    if (!points_) return;
    if (auto it = points_->by.find(other); it != points_->by.end()) points_->by[v] = it->second;
  }
  // To be read by sweeps in the place of `value`, which is of all points.
  ValueId of_one_point(ValueId value, const Type& type) {
    if (!has_points(value)) return value;
    const ValueId v = zeros(type);
    set_at_points(v, value);
    return v;
  }
  // What `batch` gives a direction to, in the place of `t`, where that differs between points.
  ValueId along_points(ValueId t) {
    const ValueId v = zeros(with_points(type(t)));
    set_at_points(t, v);
    return v;
  }
  // With the dimension of the points, `at` others in front of it, where it has none.
  ValueId spread(ValueId v, int at) {
    if (!points_ || v == no_value || has_points(v)) return v;
    Dims ones = type(v).dims, all = ones;
    ones.insert(ones.begin() + at, Dim(1));
    all.insert(all.begin() + at, points_->size);
    v = emit([&](GraphWorld& w) { return ops::expand(ops::reshape(w.value(v), ones), all); });
    points_->values.insert(v);
    return v;
  }
  // The nodes of the stage, taken out; what stands there afterwards begins anew.
  std::vector<Node> take_nodes() {
    if (points_) points_->done = 0;
    return std::exchange(stage().nodes, {});
  }

 private:
  struct ManyPoints {
    Dim size;
    std::unordered_map<ValueId, ValueId> by;  // of one point: of all
    std::unordered_set<ValueId> values;       // of all points that have the dimension
    size_t done = 0;                          // nodes of the stage that have been looked at
    size_t given_results = 0;
  };

  Type with_points(Type type) const {
    type.dims.insert(type.dims.begin(), points_->size);
    return type;
  }
  // Whether there is a node for all points in its place.
  bool is_at_points(const Node& node) const {
    return points_ && !node.results.empty() && points_->by.contains(node.results[0]);
  }

  // Emits the nodes that have not been looked at for all points, where they differ.
  void map_to_points() {
    ManyPoints& p = *points_;
    const std::vector<Node> given(stage().nodes.begin() + static_cast<ptrdiff_t>(p.done),
                                  stage().nodes.end());
    std::unordered_set<ValueId> there;
    for (const Node& n : given) there.insert(n.results.begin(), n.results.end());
    Substitute parts(graph_);
    std::vector<Node> emitted;
    GraphWorld world(graph_, at_, emitted);
    std::vector<ValueId> mapped;
    for (const Node& node : decompose_nodes(graph_, at_, given, parts, Kept::batched)) {
      if (batch_node(world, node, p.by, p.size))
        mapped.insert(mapped.end(), node.results.begin(), node.results.end());
      else if (!node.results.empty() && !there.contains(node.results[0]))
        emitted.push_back(node);  // a part of a composition
    }
    Substitute whole(graph_);
    for (Node& n : decompose_nodes(graph_, at_, std::move(emitted), whole, Kept::batched))
      add(std::move(n));
    for (ValueId v : mapped) set_at_points(v, whole(p.by.at(v)));
    for (ValueId v : there)
      if (parts(v) != v) set_as(v, parts(v));  // a composition: what it is made of
    p.done = stage().nodes.size();
  }

  void finish_points() {
    Values of_one;
    for (size_t i = 0; i < points_->given_results; ++i) of_one.push_back(stage().results[i].value);
    of_one = at_points(std::move(of_one));
    for (size_t i = 0; i < of_one.size(); ++i) stage().results[i].value = of_one[i];
    for (size_t i = 0; i < stage().results.size(); ++i) {
      const ValueId v = spread(stage().results[i].value, 0);
      stage().results[i].value = v;
    }
    for (ValueId& v : stage().inputs) {
      const auto it = points_->by.find(v);
      if (it == points_->by.end()) continue;
      graph_[it->second].name = std::exchange(graph_[v].name, {});
      v = it->second;
    }
  }

  // What is computed from values of all points has their dimension.
  void add(Node node) {
    const bool all = std::any_of(node.operands.begin(), node.operands.end(),
                                 [&](const Operand& o) { return has_points(value_in(o)); });
    if (all) points_->values.insert(node.results.begin(), node.results.end());
    stage().nodes.push_back(std::move(node));
  }

  Values append(std::vector<Node> emitted, Values values) {
    Substitute substitute(graph_);
    emitted = decompose_nodes(graph_, at_, std::move(emitted), substitute, Kept::differentiable);
    for (Node& n : emitted) add(std::move(n));
    for (ValueId& v : values) v = substitute(v);
    return values;
  }

  // Leaves only what has a batch rule from `first` on. A composition with a derivative of its own
  // stays whole: a later sweep takes that derivative, and not the one of the parts.
  Values take_apart(size_t first, Values values) {
    auto& nodes = stage().nodes;
    std::vector<Node> tail(std::make_move_iterator(nodes.begin() + static_cast<ptrdiff_t>(first)),
                           std::make_move_iterator(nodes.end()));
    nodes.resize(first);
    Substitute substitute(graph_);
    tail = decompose_nodes(graph_, at_, std::move(tail), substitute, Kept::batched);
    for (Node& n : tail) add(std::move(n));
    for (ValueId& v : values) v = substitute(v);
    return values;
  }

  // False where no operand has the dimension, and nothing is emitted.
  bool batch_node(GraphWorld& world, const Node& node, std::unordered_map<ValueId, ValueId>& by,
                  const Dim& size) {
    SmallVector<ops::Value, 4> operands;
    SmallVector<bool, 4> batched;
    for (const Operand& o : node.operands) {
      auto it = by.find(value_in(o));
      batched.push_back(it != by.end());
      operands.push_back(it != by.end() ? world.value(it->second) : world.value(o));
    }
    if (std::none_of(batched.begin(), batched.end(), [](bool b) { return b; })) return false;
    SmallVector<Type, 2> results;
    for (ValueId y : node.results) results.push_back(type(y));
    world.set_place(node.where);
    try {
      const ops::BatchedCall call{*node.op, node.attributes, world, operands,
                                  batched,  results,         size};
      const bool by_graphs = node.op->traits.loop || ops::is_call(node);
      auto ys = by_graphs ? batch_graphs(node, call) : ops::emit_batched(call);
      for (size_t i = 0; i < node.results.size(); ++i)
        by[node.results[i]] = GraphWorld::id_of(ys[i]);
      return true;
    } catch (const Error& e) {
      if (e.where().known()) throw;
      throw graph_.error_at(node.where, e.bare());
    }
  }

  Graph graph_;
  size_t at_;
  std::optional<ManyPoints> points_;
  std::unordered_set<std::string> taken_, result_names_;
};

}  // namespace gradus::ir
