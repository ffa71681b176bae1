// Derivatives along directions, from two sweeps of `backpropagate`.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "gradus/batching.h"
#include "gradus/passes.h"
#include "gradus/rewrite.h"
#include "gradus/rules.h"
#include "ir/passes/backpropagate.h"

namespace gradus::ir {

namespace {

using Values = std::vector<ValueId>;

// Appends to the last stage of a graph.
class StageBuilder {
 public:
  explicit StageBuilder(Graph graph) : graph_(std::move(graph)), at_(graph_.stages.size() - 1) {
    expand_grad(graph_);
    decompose(graph_, true);
    for (const Value& v : graph_.values)
      if (!v.name.empty()) taken_.insert(v.name);
    for (const Result& r : stage().results) result_names_.insert(r.name);
  }

  Graph finish() {
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
    std::vector<std::span<Node>> runs;
    for (Stage& s : graph_.stages) runs.push_back(s.nodes);
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
    wanted = take_apart(first, std::move(wanted));
    std::vector<Node> nodes(stage().nodes.begin() + static_cast<ptrdiff_t>(first),
                            stage().nodes.end());
    std::vector<Node> emitted;
    GraphWorld world(graph_, at_, emitted);
    for (const Node& node : nodes) batch_node(world, node, by, size);
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
    return append(std::move(emitted), std::move(wanted));
  }

 private:
  Values append(std::vector<Node> emitted, Values values) {
    Substitute substitute(graph_);
    emitted = decompose_nodes(graph_, at_, std::move(emitted), substitute, true);
    for (Node& n : emitted) stage().nodes.push_back(std::move(n));
    for (ValueId& v : values) v = substitute(v);
    return values;
  }

  // Leaves only primitives from `first` on.
  Values take_apart(size_t first, Values values) {
    auto& nodes = stage().nodes;
    std::vector<Node> tail(std::make_move_iterator(nodes.begin() + static_cast<ptrdiff_t>(first)),
                           std::make_move_iterator(nodes.end()));
    nodes.resize(first);
    Substitute substitute(graph_);
    tail = decompose_nodes(graph_, at_, std::move(tail), substitute, false);
    for (Node& n : tail) nodes.push_back(std::move(n));
    for (ValueId& v : values) v = substitute(v);
    return values;
  }

  void batch_node(GraphWorld& world, const Node& node, std::unordered_map<ValueId, ValueId>& by,
                  const Dim& size) {
    SmallVector<ops::Value, 4> operands;
    SmallVector<bool, 4> batched;
    for (const Operand& o : node.operands) {
      auto it = by.find(value_in(o));
      batched.push_back(it != by.end());
      operands.push_back(it != by.end() ? world.value(it->second) : world.value(o));
    }
    if (std::none_of(batched.begin(), batched.end(), [](bool b) { return b; })) return;
    SmallVector<Type, 2> results;
    for (ValueId y : node.results) results.push_back(type(y));
    world.set_place(node.where);
    try {
      auto ys =
          ops::emit_batched({*node.op, node.attributes, world, operands, batched, results, size});
      for (size_t i = 0; i < node.results.size(); ++i)
        by[node.results[i]] = GraphWorld::id_of(ys[i]);
    } catch (const Error& e) {
      if (e.where().known()) throw;
      throw graph_.error_at(node.where, e.bare());
    }
  }

  Graph graph_;
  size_t at_;
  std::unordered_set<std::string> taken_, result_names_;
};

// A program of one stage, its inputs and results.
class Request {
 public:
  Request(const Graph& graph, const DirectionOptions& options, std::string_view what)
      : b(check(graph, what)) {
    std::unordered_set<std::string_view> left;
    std::vector<std::string_view> floating;
    if (options.wrt) left.insert(options.wrt->begin(), options.wrt->end());
    for (ValueId v : b.stage().inputs) {
      const Value& x = b.graph()[v];
      if (x.type.is_floating()) floating.push_back(x.name);
      bool asked = !options.wrt || left.erase(x.name);
      if (asked && options.wrt && !x.type.is_floating())
        throw Error("input '{}' is {}; only floating inputs can be differentiated with respect to",
                    x.name, to_string(x.type));
      if (asked && x.type.is_floating()) xs.push_back(v);
    }
    if (!left.empty())
      throw Error("there is no input '{}' to differentiate with respect to; {}", *left.begin(),
                  floating.empty()
                      ? "it has no floating inputs"
                      : fmt::format("its floating inputs are: {}", fmt::join(floating, ", ")));
    for (const Result& r : b.stage().results)
      if (r.value != no_value && b.type(r.value).is_floating()) results.push_back(r);
  }

  const std::string& name(ValueId v) { return b.graph()[v].name; }

  // The gradient of the one 0-d result.
  Values gradient(std::string_view what) {
    if (results.size() != 1 || b.type(results[0].value).rank() != 0) {
      std::string list;
      for (const Result& r : results)
        list +=
            fmt::format("{}{} {}", list.empty() ? "" : ", ", r.name, to_string(b.type(r.value)));
      throw Error("{} takes a program with one floating result that is 0-d; '{}' has {}", what,
                  b.graph().name, list.empty() ? "none" : list);
    }
    ValueId y = results[0].value;
    Root root{y, b.ones(b.type(y))};
    return b.sweep({&root, 1}, xs);
  }

  Values tangent_inputs() {
    Values ts;
    for (ValueId x : xs) ts.push_back(b.input("t_" + name(x), Type(b.type(x))));
    return ts;
  }

  // The derivatives of ys along all directions of x at once, as [x.., y..].
  Values along(ValueId x, std::span<const ValueId> ys) {
    const Type type = b.type(x);
    ValueId t = b.zeros(type);
    const size_t first = b.mark();
    Values found = b.push(ys, {&x, 1}, {&t, 1});
    Values columns = b.batch(first, {{t, b.basis(type)}}, numel(type.dims), std::move(found));
    return with_sizes_in_front(std::move(columns), type.dims);
  }

  // The derivatives of y with respect to each x, as [y.., x..].
  Values across(ValueId y) {
    const Type type = b.type(y);
    Root root{y, b.zeros(type)};
    const size_t first = b.mark();
    Values gradients = b.sweep({&root, 1}, xs);
    Values rows =
        b.batch(first, {{root.cotangent, b.basis(type)}}, numel(type.dims), std::move(gradients));
    return with_sizes_in_front(std::move(rows), type.dims);
  }

  StageBuilder b;
  Values xs;
  std::vector<Result> results;  // floating ones

 private:
  static Graph check(const Graph& graph, std::string_view what) {
    if (graph.stages.size() != 1)
      throw Error("{} takes a program of one stage; '{}' has {}", what, graph.name,
                  graph.stages.size());
    return graph;
  }
  // [n, ..] -> [front.., ..]
  Values with_sizes_in_front(Values values, const Dims& front) {
    for (ValueId& v : values) {
      if (v == no_value) continue;
      Dims dims = front;
      dims.append(b.type(v).dims.begin() + 1, b.type(v).dims.end());
      v = b.emit([&](GraphWorld& w) { return ops::reshape(w.value(v), dims); });
    }
    return values;
  }
};

// [x.., y..] -> [y.., x..]
ValueId turned(StageBuilder& b, ValueId v, int x_rank) {
  if (v == no_value) return v;
  const int rank = b.type(v).rank();
  ops::Ints dims;
  for (int d = 0; d < rank; ++d) dims.push_back((d + x_rank) % rank);
  if (x_rank == 0 || x_rank == rank) return v;
  return b.emit([&](GraphWorld& w) { return ops::permute(w.value(v), dims); });
}

// Whether there are surely fewer elements in a than in b.
bool fewer(const Dim& a, const Dim& b) {
  Dim more = b - a - 1;
  return more.known_nonnegative();
}

}  // namespace

Graph jvp(const Graph& graph, const DirectionOptions& options) {
  Request r(graph, options, "jvp");
  Values ys;
  for (const Result& y : r.results) ys.push_back(y.value);
  Values ts = r.tangent_inputs();
  Values tangents = r.b.push(ys, r.xs, ts);
  for (size_t i = 0; i < ys.size(); ++i) r.b.result("t_" + r.results[i].name, tangents[i]);
  return r.b.finish();
}

Graph hvp(const Graph& graph, const DirectionOptions& options) {
  Request r(graph, options, "hvp");
  Values ts = r.tangent_inputs();
  Values gradient = r.gradient("hvp");
  Values products = r.b.push(gradient, r.xs, ts);
  for (size_t i = 0; i < r.xs.size(); ++i) r.b.result("hvp_" + r.name(r.xs[i]), products[i]);
  return r.b.finish();
}

Graph laplacian(const Graph& graph, const DirectionOptions& options) {
  Request r(graph, options, "laplacian");
  Values gradient = r.gradient("laplacian");
  for (size_t i = 0; i < r.xs.size(); ++i) {
    ValueId sum = no_value;
    if (gradient[i] != no_value) {
      ValueId second = r.along(r.xs[i], {&gradient[i], 1})[0];
      Dim n = numel(r.b.type(r.xs[i]).dims);
      if (second != no_value)
        sum = r.b.emit([&](GraphWorld& w) {
          ops::Value square = ops::reshape(w.value(second), {n, n});
          return ops::sum_all(ops::diagonal(square));
        });
    }
    r.b.result("laplacian_" + r.name(r.xs[i]), sum);
  }
  return r.b.finish();
}

Graph jacobian(const Graph& graph, const DirectionOptions& options) {
  Request r(graph, options, "jacobian");
  Dim columns = 0;
  for (ValueId x : r.xs) columns = columns + numel(r.b.type(x).dims);
  for (const Result& y : std::vector<Result>(r.results)) {
    Values blocks;
    if (fewer(columns, numel(r.b.type(y.value).dims)))
      for (ValueId x : r.xs)
        blocks.push_back(turned(r.b, r.along(x, {&y.value, 1})[0], r.b.type(x).rank()));
    else
      blocks = r.across(y.value);
    for (size_t i = 0; i < r.xs.size(); ++i)
      r.b.result(fmt::format("jacobian_{}_{}", y.name, r.name(r.xs[i])), blocks[i]);
  }
  return r.b.finish();
}

Graph hessian(const Graph& graph, const DirectionOptions& options) {
  Request r(graph, options, "hessian");
  Values gradient = r.gradient("hessian");
  for (ValueId x : r.xs) {
    Values blocks = r.along(x, gradient);
    for (size_t i = 0; i < r.xs.size(); ++i)
      r.b.result(fmt::format("hessian_{}_{}", r.name(x), r.name(r.xs[i])), blocks[i]);
  }
  return r.b.finish();
}

Graph batch_cotangents(const Graph& graph, const Dim& size) {
  if (graph.stages.size() < 2)
    throw Error("'{}' has one stage; there are cotangents in the stages that `differentiate` adds",
                graph.name);
  StageBuilder b(graph);
  std::unordered_map<ValueId, ValueId> by;
  std::vector<ValueId> inputs = std::exchange(b.stage().inputs, {});
  for (ValueId v : inputs) {
    Dims dims{size};
    dims.append(b.type(v).dims.begin(), b.type(v).dims.end());
    Type type(b.type(v).dtype, std::move(dims), b.type(v).device);
    by.emplace(v, b.replace_input(v, std::move(type)));
  }
  Values wanted;
  for (const Result& r : b.stage().results) wanted.push_back(r.value);
  wanted = b.batch(0, std::move(by), size, std::move(wanted));
  for (size_t i = 0; i < wanted.size(); ++i) b.stage().results[i].value = wanted[i];
  return b.finish();
}

}  // namespace gradus::ir
