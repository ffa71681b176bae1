// Derivatives along directions, from two sweeps of `backpropagate`.
#include <unordered_set>

#include "gradus/passes.h"
#include "ir/passes/stage_builder.h"

namespace gradus::ir {

namespace {

using Values = StageBuilder::Values;

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

}  // namespace gradus::ir
