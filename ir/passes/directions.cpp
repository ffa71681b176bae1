// Derivatives along directions, from two sweeps of `backpropagate`.
#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <unordered_set>

#include "gradus/passes.h"
#include "ir/passes/stage_builder.h"

namespace gradus::ir {

namespace {

using Values = StageBuilder::Values;

ops::Value moved_to_front(const ops::Value& v, int dim) {
  if (dim == 0) return v;
  ops::Ints dims{dim};
  for (int d = 0; d < v.rank(); ++d)
    if (d != dim) dims.push_back(d);
  return ops::permute(v, dims);
}

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
    b.count_loops();
    if (options.points) begin_points(*options.points);
  }

  const std::string& name(ValueId v) { return b.graph()[v].name; }

  // The one floating result, which is 0-d.
  ValueId one_result(std::string_view what) {
    if (results.size() != 1 || b.type(results[0].value).rank() != 0) {
      std::string list;
      for (const Result& r : results)
        list +=
            fmt::format("{}{} {}", list.empty() ? "" : ", ", r.name, to_string(b.type(r.value)));
      throw Error("{} takes a program with one floating result that is 0-d; '{}' has {}", what,
                  b.graph().name, list.empty() ? "none" : list);
    }
    return results[0].value;
  }

  // Its gradient.
  Values gradient(std::string_view what) {
    ValueId y = one_result(what);
    Root root{y, b.ones(b.type(y))};
    return b.sweep({&root, 1}, xs);
  }

  Values tangent_inputs() {
    Values ts;
    for (ValueId x : xs) ts.push_back(b.input("t_" + name(x), Type(b.type(x))));
    return ts;
  }

  // The derivatives of ys along all directions of x at once, as [x.., y..]. With points their
  // dimension is in front, here and below.
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
  // [n, ..] -> [front.., ..], or [n, points, ..] -> [points, front.., ..]
  Values with_sizes_in_front(Values values, const Dims& front) {
    for (ValueId& v : values) {
      if (v == no_value) continue;
      const ValueId all = b.spread(v, 1);
      Dims dims = front;
      dims.append(b.type(all).dims.begin() + 1, b.type(all).dims.end());
      v = b.emit([&](GraphWorld& w) {
        const ops::Value y = ops::reshape(w.value(all), dims);
        return b.points() ? moved_to_front(y, static_cast<int>(front.size())) : y;
      });
    }
    return values;
  }

  void begin_points(const Points& points) {
    std::unordered_set<std::string_view> left(points.inputs.begin(), points.inputs.end());
    Values inputs;
    for (ValueId v : b.stage().inputs)
      if (left.erase(b.graph()[v].name)) inputs.push_back(v);
    if (!left.empty()) throw Error("there is no input '{}' to batch", *left.begin());
    b.begin_points(inputs, points.size);
  }
};

// Of the values of a stage, node by node: their derivatives along all directions of x, and the sums
// of their second derivatives along each. Of y = f(u) with the derivatives u_k and the sum s, these
// are f'(u) u_k and f'(u) s + the sum over k of f''(u)[u_k, u_k]. So the second derivatives take
// one direction and not n (the forward Laplacian: Li et al., Nature Machine Intelligence 6, 209,
// 2024).
class Jets {
 public:
  Jets(StageBuilder& b, ValueId x) : b_(b), directions_(numel(b.type(x).dims)) {
    const Type type = b.type(x);
    jets_[x] = {b.basis(type), no_value};
  }

  // Through the first node of the stage, after which stand only nodes of other jets through it.
  void pass() {
    // The node reads other values in the meantime: derivatives with respect to them are its own,
    // also where one of its operands depends on another.
    Substitute back(b_.graph());
    Values us, ps, ts;
    for (size_t i = 0; i < node().operands.size(); ++i) {
      const ValueId u = value_in(node().operands[i]);
      if (!jets_.contains(u)) continue;
      auto at = std::find(us.begin(), us.end(), u);
      if (at == us.end()) {
        const Type type = b_.type(u);
        us.push_back(u);
        ps.push_back(b_.zeros(type));
        ts.push_back(b_.zeros(type));
        back.replace(ps.back(), u);
        b_.set_as(ps.back(), u);
        at = us.end() - 1;
      }
      node().operands[i] = ps[static_cast<size_t>(at - us.begin())];
    }
    if (us.empty()) return;

    Values ys;
    for (ValueId y : node().results)
      if (b_.type(y).is_floating()) ys.push_back(y);
    const size_t mark = b_.mark();
    Values found = b_.push(ys, ps, ts);
    const Values second = b_.push(found, ps, ts);
    found.insert(found.end(), second.begin(), second.end());
    std::unordered_map<ValueId, ValueId> by;
    for (size_t i = 0; i < us.size(); ++i) {
      const ValueId along = jets_[us[i]].first;
      by[b_.has_points(along) ? b_.along_points(ts[i]) : ts[i]] = along;
    }
    found = b_.batch(mark, std::move(by), directions_, std::move(found));
    const Values sums = along_sums(ys, us, ps);
    for (size_t i = 0; i < ys.size(); ++i) {
      if (found[i] == no_value) continue;
      const ValueId curved = found[ys.size() + i];
      jets_[ys[i]] = {found[i], sum(curved == no_value ? no_value : total(curved), sums[i])};
    }
    for (Node& n : b_.stage().nodes) back.apply(n);
  }

  // The sum of the second derivatives of y.
  ValueId second(ValueId y) const {
    auto it = jets_.find(y);
    return it == jets_.end() ? no_value : it->second.second;
  }

 private:
  struct Jet {
    ValueId first = no_value;   // [n, ..]
    ValueId second = no_value;  // of the type of the value; none where it is zero
  };

  Node& node() { return b_.stage().nodes.front(); }

  // The derivatives of ys along the sums of their operands us, for which ps stand.
  Values along_sums(const Values& ys, const Values& us, const Values& ps) {
    Values curved, sums;
    for (size_t i = 0; i < us.size(); ++i) {
      const ValueId s = jets_[us[i]].second;
      if (s == no_value) continue;
      curved.push_back(ps[i]);
      sums.push_back(b_.of_one_point(s, b_.type(us[i])));
    }
    if (curved.empty()) return Values(ys.size(), no_value);
    return b_.at_points(b_.push(ys, curved, sums));
  }

  ValueId total(ValueId v) {
    return b_.emit([&](GraphWorld& w) { return ops::sum(w.value(v), {0}, false); });
  }
  ValueId sum(ValueId a, ValueId b) {
    if (a == no_value || b == no_value) return a == no_value ? b : a;
    return b_.emit([&](GraphWorld& w) { return w.value(a) + w.value(b); });
  }

  StageBuilder& b_;
  Dim directions_;
  std::unordered_map<ValueId, Jet> jets_;
};

// [x.., y..] -> [y.., x..], behind the dimension of the points
ValueId turned(StageBuilder& b, ValueId v, int x_rank) {
  if (v == no_value) return v;
  const int first = b.points() ? 1 : 0, rank = b.type(v).rank() - first;
  if (x_rank == 0 || x_rank == rank) return v;
  ops::Ints dims;
  for (int d = 0; d < first; ++d) dims.push_back(d);
  for (int d = 0; d < rank; ++d) dims.push_back(first + (d + x_rank) % rank);
  return b.emit([&](GraphWorld& w) { return ops::permute(w.value(v), dims); });
}

// A derivative along given tangents has no dimension of directions: many points are its batch.
Graph at_points(const Graph& one, const DirectionOptions& options) {
  if (!options.points) return one;
  std::vector<std::string> inputs = options.points->inputs;
  const size_t given = inputs.size();
  for (ValueId v : one.stages[0].inputs)
    for (size_t i = 0; i < given; ++i)
      if (one[v].name == "t_" + inputs[i]) inputs.push_back(one[v].name);
  return batch(one, inputs, options.points->size);
}

// Results stand in row-major order: whoever runs the program gives memory for them.
ValueId in_order(StageBuilder& b, ValueId v) {
  if (v == no_value) return v;
  return b.emit([&](GraphWorld& w) { return ops::contiguous(w.value(v)); });
}

// Whether most values of a point are so few elements that rows of them do not fill a vector. With
// longer ones, what is the same for all directions of a point stays in the nearest cache if the
// directions of one point follow each other: the Laplacian of a network with 128 units at 256
// points took 1.15 times as long with the directions in front.
bool has_short_values(const Graph& graph) {
  constexpr int64_t few = 4;
  size_t all = 0, shorts = 0;
  for (const Node& node : graph.stages[0].nodes)
    for (ValueId y : node.results) {
      const Type& type = graph[y].type;
      if (!type.is_floating()) continue;
      ++all;
      const Dim n = numel(type.dims);
      shorts += n.is_constant() && n.value() <= few;
    }
  return 2 * shorts > all;
}

// Whether a program at many points is to be the batch of that at one.
bool is_batch(const Graph& graph, const DirectionOptions& options) {
  if (!options.points || graph.stages.size() != 1) return false;
  return !options.points->directions_first.value_or(has_short_values(graph));
}

// Whether there are surely fewer elements in a than in b.
bool fewer(const Dim& a, const Dim& b) {
  Dim more = b - a - 1;
  return more.known_nonnegative();
}

}  // namespace

Graph jvp(const Graph& graph, const DirectionOptions& options) {
  Request r(graph, {options.wrt}, "jvp");
  Values ys;
  for (const Result& y : r.results) ys.push_back(y.value);
  Values ts = r.tangent_inputs();
  Values tangents = r.b.push(ys, r.xs, ts);
  for (size_t i = 0; i < ys.size(); ++i) r.b.result("t_" + r.results[i].name, tangents[i]);
  return at_points(r.b.finish(), options);
}

Graph hvp(const Graph& graph, const DirectionOptions& options) {
  Request r(graph, {options.wrt}, "hvp");
  Values ts = r.tangent_inputs();
  Values gradient = r.gradient("hvp");
  Values products = r.b.push(gradient, r.xs, ts);
  for (size_t i = 0; i < r.xs.size(); ++i) r.b.result("hvp_" + r.name(r.xs[i]), products[i]);
  return at_points(r.b.finish(), options);
}

Graph laplacian(const Graph& graph, const DirectionOptions& options) {
  if (is_batch(graph, options)) return at_points(laplacian(graph, {options.wrt}), options);
  Request r(graph, options, "laplacian");
  const ValueId y = r.one_result("laplacian");
  std::vector<Node> given = r.b.take_nodes();
  std::vector<Jets> jets;
  for (ValueId x : r.xs) jets.emplace_back(r.b, x);
  for (Node& node : given) {
    std::vector<Node> before = r.b.take_nodes();
    r.b.stage().nodes.push_back(std::move(node));
    for (Jets& j : jets) j.pass();
    r.b.at_points({});
    before.insert(before.end(), std::make_move_iterator(r.b.stage().nodes.begin()),
                  std::make_move_iterator(r.b.stage().nodes.end()));
    r.b.stage().nodes = std::move(before);
  }
  for (size_t i = 0; i < r.xs.size(); ++i)
    r.b.result("laplacian_" + r.name(r.xs[i]), jets[i].second(y));
  return r.b.finish();
}

Graph jacobian(const Graph& graph, const DirectionOptions& options) {
  if (is_batch(graph, options)) return at_points(jacobian(graph, {options.wrt}), options);
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
      r.b.result(fmt::format("jacobian_{}_{}", y.name, r.name(r.xs[i])), in_order(r.b, blocks[i]));
  }
  return r.b.finish();
}

Graph hessian(const Graph& graph, const DirectionOptions& options) {
  if (is_batch(graph, options)) return at_points(hessian(graph, {options.wrt}), options);
  Request r(graph, options, "hessian");
  Values gradient = r.gradient("hessian");
  for (ValueId x : r.xs) {
    Values blocks = r.along(x, gradient);
    for (size_t i = 0; i < r.xs.size(); ++i)
      r.b.result(fmt::format("hessian_{}_{}", r.name(x), r.name(r.xs[i])),
                 in_order(r.b, blocks[i]));
  }
  return r.b.finish();
}

}  // namespace gradus::ir
