// Ensembles of decision trees: all trees are walked at once, one level after the other.
#include <algorithm>
#include <limits>
#include <map>

#include "io/onnx/learned.h"
#include "io/onnx/model.h"

namespace gradus::onnx {

using namespace ops;

namespace {

// A table of so many numbers would be larger than any model's.
constexpr size_t most_leaf_numbers = size_t{1} << 24;
constexpr int64_t deepest_tree = 10'000;

enum class Test : int64_t { le, lt, ge, gt, eq, ne, member };

// Nodes of all trees, by place. A leaf leads to itself.
struct Forest {
  Ints feature, yes, no, test, follows_missing;
  std::vector<double> split;
  Ints roots;

  size_t size() const { return feature.size(); }
  int64_t add(int64_t of, Test how, double at, bool missing) {
    feature.push_back(of);
    test.push_back(static_cast<int64_t>(how));
    split.push_back(at);
    follows_missing.push_back(missing);
    yes.push_back(static_cast<int64_t>(size()) - 1);
    no.push_back(yes.back());
    return yes.back();
  }
  bool has(Test how) const {
    return std::ranges::find(test, static_cast<int64_t>(how)) != test.end();
  }
  bool is_leaf(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    return yes[at] == i && no[at] == i;
  }
};

// How many steps lead from the roots to the farthest leaf.
int64_t levels_of(Call& c, const Forest& f) {
  Ints now = f.roots;
  int64_t levels = 0;
  size_t seen = 0;
  for (; !now.empty(); ++levels) {
    // Two branches lead on from each node, once in a tree.
    seen += now.size();
    if (levels > deepest_tree || seen > 2 * f.size() + f.roots.size())
      c.fail("its nodes are no trees, or are deeper than {}", deepest_tree);
    Ints next;
    for (int64_t i : now) {
      if (f.is_leaf(i)) continue;
      next.push_back(f.yes[static_cast<size_t>(i)]);
      next.push_back(f.no[static_cast<size_t>(i)]);
    }
    std::ranges::sort(next);
    next.erase(std::unique(next.begin(), next.end()), next.end());
    now = std::move(next);
  }
  return std::max<int64_t>(levels - 1, 0);
}

Value compared(Test how, const Value& x, const Value& split) {
  switch (how) {
    case Test::le:
      return le(x, split);
    case Test::lt:
      return lt(x, split);
    case Test::ge:
      return ge(x, split);
    case Test::gt:
      return gt(x, split);
    case Test::eq:
      return eq(x, split);
    default:
      return ne(x, split);
  }
}

// The places of the leaves that samples [N, F] come to, [N, trees].
Value leaves_of(Call& c, const Value& x, const Forest& f) {
  auto features = x.dims()[1].constant();
  for (int64_t i : f.feature)
    if (i < 0 || (features && i >= *features)) c.fail("there is no feature {}", i);
  const auto trees = static_cast<int64_t>(f.roots.size());
  Value at = expand(reshape(c.constant(tensor_with(f.roots)), {1, trees}), {x.dims()[0], trees});
  auto of = [&](const Ints& list) { return c.constant(tensor_with(list)); };
  Value feature = of(f.feature), yes = of(f.yes), no = of(f.no), test = of(f.test);
  Value missing = of(f.follows_missing), split = c.constant(tensor_with(x.dtype(), f.split));
  // Of comparisons with NaN all but one are false.
  const bool nan =
      f.has(Test::ne) || std::ranges::find(f.follows_missing, 1) != f.follows_missing.end();
  const int64_t levels = levels_of(c, f);
  for (int64_t level = 0; level < levels; ++level) {
    auto here = [&](const Value& list) {
      return emit_all(c.world(), "index", std::vector{list, at})[0];
    };
    Value number = gather(x, here(feature), 1), bound = here(split), truth, kind;
    for (Test how : {Test::le, Test::lt, Test::ge, Test::gt, Test::eq, Test::ne}) {
      if (!f.has(how)) continue;
      Value is = compared(how, number, bound);
      if (truth.defined() && !kind.defined()) kind = here(test);
      truth = truth.defined() ? where(eq(kind, num(static_cast<int64_t>(how))), is, truth) : is;
    }
    if (nan) truth = where(unary("isnan", number), ne(here(missing), num(int64_t{0})), truth);
    at = where(truth, here(yes), here(no));
  }
  return at;
}

enum class Together { average, sum, least, greatest };

// What leaves vote for: a row of numbers for each node.
struct Votes {
  std::vector<double> table;
  int64_t targets;
  Together how;
  Votes(Call& c, const Forest& f, int64_t targets_, Together how_) : targets(targets_), how(how_) {
    const size_t nodes = std::max<size_t>(f.size(), 1);
    if (targets < 1 || static_cast<uint64_t>(targets) > most_leaf_numbers / nodes)
      c.unsupported("trees with {} targets", targets);
    const size_t n = nodes * static_cast<size_t>(targets);
    constexpr double most = std::numeric_limits<float>::max();
    table.assign(n, how == Together::least ? most : how == Together::greatest ? -most : 0);
  }
  void add(Call& c, int64_t leaf, int64_t target, double weight) {
    if (target < 0 || target >= targets) c.fail("there is no target {}", target);
    double& v = table[static_cast<size_t>(leaf * targets + target)];
    v = how == Together::least      ? std::min(v, weight)
        : how == Together::greatest ? std::max(v, weight)
                                    : v + weight;
  }
};

// Scores [N, targets].
Value votes_together(Call& c, const Value& x, const Forest& f, const Votes& v) {
  Value table = model_table(c, x.dtype(), {static_cast<int64_t>(f.size()), v.targets}, v.table);
  Value votes = emit_all(c.world(), "index", std::vector{table, leaves_of(c, x, f)})[0];
  LiteralList trees{{"dim", Literal::list(Ints{1})}};
  if (v.how == Together::least) return emit("amin", {votes}, trees);
  if (v.how == Together::greatest) return emit("amax", {votes}, trees);
  return emit(v.how == Together::sum ? "sum" : "mean", {votes}, trees);
}

// Numbers of single precision, or, by the name with "_as_tensor", of double.
std::vector<double> numbers_or_tensor(Call& c, const std::string& name) {
  return c.has(name + "_as_tensor") ? c.tensor(name + "_as_tensor").to_doubles() : c.numbers(name);
}

// A list as long as there are nodes; zeros, where it may be left out.
Ints list_for(Call& c, const char* name, size_t n, bool optional = false) {
  Ints list = c.integers(name).value_or(Ints{});
  if (optional && list.empty()) list.assign(n, 0);
  if (list.size() != n) c.fail("attribute '{}' has {} entries for {} nodes", name, list.size(), n);
  return list;
}

Test test_named(Call& c, const std::string& mode) {
  constexpr std::string_view names[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                        "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};
  auto it = std::ranges::find(names, mode);
  if (it == std::end(names)) c.fail("there is no mode '{}'", mode);
  return static_cast<Test>(it - std::begin(names));
}

// Trees of versions 1 to 3: nodes, leaves too, have names that are numbers of tree and node.
struct NamedForest {
  Forest forest;
  std::map<std::pair<int64_t, int64_t>, int64_t> places;

  explicit NamedForest(Call& c) {
    const std::vector<std::string> modes = c.texts("nodes_modes");
    const size_t n = modes.size();
    const Ints trees = list_for(c, "nodes_treeids", n), nodes = list_for(c, "nodes_nodeids", n);
    const Ints yes = list_for(c, "nodes_truenodeids", n), no = list_for(c, "nodes_falsenodeids", n);
    const Ints features = list_for(c, "nodes_featureids", n);
    const Ints missing = list_for(c, "nodes_missing_value_tracks_true", n, true);
    const std::vector<double> splits = numbers_or_tensor(c, "nodes_values");
    if (splits.size() != n) c.fail("it has {} values for {} nodes", splits.size(), n);
    std::map<int64_t, int64_t> roots;
    for (size_t i = 0; i < n; ++i) {
      const bool leaf = modes[i] == "LEAF";
      const int64_t at =
          forest.add(leaf ? 0 : features[i], leaf ? Test::le : test_named(c, modes[i]),
                     leaf ? 0 : splits[i], !leaf && missing[i] != 0);
      if (!places.emplace(std::pair(trees[i], nodes[i]), at).second)
        c.fail("node {} of tree {} is there twice", nodes[i], trees[i]);
      roots.try_emplace(trees[i], at);
    }
    for (size_t i = 0; i < n; ++i) {
      if (modes[i] == "LEAF") continue;
      forest.yes[i] = place_of(c, trees[i], yes[i]);
      forest.no[i] = place_of(c, trees[i], no[i]);
    }
    for (auto [tree, root] : roots) forest.roots.push_back(root);
    unify_tests();
  }
  int64_t place_of(Call& c, int64_t tree, int64_t node) const {
    auto it = places.find({tree, node});
    if (it == places.end()) c.fail("there is no node {} of tree {}", node, tree);
    return it->second;
  }
  // What a leaf compares has no say: it does as the others do.
  void unify_tests() {
    int64_t some = static_cast<int64_t>(Test::le);
    for (size_t i = 0; i < forest.size(); ++i)
      if (!forest.is_leaf(static_cast<int64_t>(i))) some = forest.test[i];
    for (size_t i = 0; i < forest.size(); ++i)
      if (forest.is_leaf(static_cast<int64_t>(i))) forest.test[i] = some;
  }
  // The votes that lists with this prefix have.
  Votes votes(Call& c, const std::string& prefix, int64_t targets, Together how) const {
    Votes v(c, forest, targets, how);
    const std::vector<double> weights = numbers_or_tensor(c, prefix + "_weights");
    const size_t n = weights.size();
    const Ints trees = list_for(c, (prefix + "_treeids").c_str(), n);
    const Ints nodes = list_for(c, (prefix + "_nodeids").c_str(), n);
    const Ints ids = list_for(c, (prefix + "_ids").c_str(), n);
    for (size_t i = 0; i < n; ++i) v.add(c, place_of(c, trees[i], nodes[i]), ids[i], weights[i]);
    return v;
  }
};

Value with_base(Call& c, const Value& scores, int64_t targets) {
  const std::vector<double> base = numbers_or_tensor(c, "base_values");
  if (base.empty()) return scores;
  if (base.size() == 1) return scores + base[0];
  return scores + model_table(c, scores.dtype(), {targets}, base);
}

void tree_regressor(Call& c) {
  Value x = sample_rows(c);
  const std::string how = c.attribute("aggregate_function", "SUM");
  constexpr std::string_view names[] = {"AVERAGE", "SUM", "MIN", "MAX"};
  auto it = std::ranges::find(names, how);
  if (it == std::end(names)) c.fail("there is no aggregate_function '{}'", how);
  const int64_t targets = c.attribute("n_targets", int64_t{1});
  NamedForest named(c);
  Votes votes = named.votes(c, "target", targets, static_cast<Together>(it - std::begin(names)));
  Value y = with_base(c, votes_together(c, x, named.forest, votes), targets);
  c.give(cast(transformed_scores(c, y, c.attribute("post_transform", "NONE")), DType::f32));
}

// Where votes are for one class of two, the other one's score is what is left to 1, or the
// negative, if a transform follows.
Value two_classes(Call& c, const Value& scores, int64_t voted, const std::string& how) {
  for (double w : numbers_or_tensor(c, "class_weights"))
    if (w < 0 && how == "NONE")
      c.unsupported("TreeEnsembleClassifier with votes against the one class that has any");
  Value one = slice(scores, 1, voted, voted + 1);
  return cat(std::vector{how == "NONE" ? 1.0 - one : -one, one}, 1);
}

void tree_classifier(Call& c) {
  Value x = sample_rows(c);
  if (!c.texts("classlabels_strings").empty()) c.unsupported("dtype string");
  const auto labels =
      static_cast<int64_t>(c.integers("classlabels_int64s").value_or(Ints{}).size());
  if (labels < 2) c.unsupported("TreeEnsembleClassifier of {} classes", labels);
  NamedForest named(c);
  Value y = votes_together(c, x, named.forest, named.votes(c, "class", labels, Together::sum));
  const std::string how = c.attribute("post_transform", "NONE");
  const Ints ids = c.integers("class_ids").value_or(Ints{});
  const bool one = !ids.empty() && std::ranges::all_of(ids, [&](int64_t i) { return i == ids[0]; });
  y = with_base(c, y, labels);
  if (one && labels == 2) y = two_classes(c, y, ids[0], how);
  y = transformed_scores(c, y, how);
  c.give(best_labels(c, y, "classlabels_int64s", "classlabels_strings"));
  c.give(cast(y, DType::f32));
}

// Sets of numbers in a row, NaN behind each.
std::vector<std::vector<double>> member_sets(Call& c) {
  std::vector<std::vector<double>> sets;
  if (!c.has("membership_values")) return sets;
  std::vector<double> now;
  for (double v : c.tensor("membership_values").to_doubles()) {
    if (v == v) {
      now.push_back(v);
      continue;
    }
    sets.push_back(std::move(now));
    now.clear();
  }
  return sets;
}

// Trees of version 5: nodes by place, leaves apart. A set is a chain of nodes, one for each member.
Forest forest_by_place(Call& c, size_t leaves) {
  const Ints features = c.integers("nodes_featureids").value_or(Ints{});
  const size_t n = features.size();
  const std::vector<double> modes = c.tensor("nodes_modes").to_doubles();
  const std::vector<double> splits = c.tensor("nodes_splits").to_doubles();
  if (modes.size() != n || splits.size() != n) c.fail("modes and splits are not as many as nodes");
  const Ints yes = list_for(c, "nodes_truenodeids", n), no = list_for(c, "nodes_falsenodeids", n);
  const Ints yes_leaf = list_for(c, "nodes_trueleafs", n),
             no_leaf = list_for(c, "nodes_falseleafs", n);
  const Ints missing = list_for(c, "nodes_missing_value_tracks_true", n, true);
  const auto sets = member_sets(c);
  size_t next_set = 0;
  Forest f;
  std::vector<size_t> first, last;  // of each node's chain
  // Leaves come first.
  for (size_t i = 0; i < leaves; ++i) f.add(0, Test::le, 0, false);
  for (size_t i = 0; i < n; ++i) {
    std::vector<double> at{splits[i]};
    if (!(modes[i] >= 0 && modes[i] <= 6)) c.fail("there is no mode {}", modes[i]);
    Test how = static_cast<Test>(static_cast<int64_t>(modes[i]));
    if (how == Test::member) {
      if (next_set == sets.size() || sets[next_set].empty()) c.fail("a node's set has no members");
      at = sets[next_set++];
      how = Test::eq;
    }
    first.push_back(f.size());
    for (double v : at) f.add(features[i], how, v, missing[i] != 0);
    last.push_back(f.size() - 1);
  }
  auto place = [&](int64_t id, bool leaf) {
    const size_t most = leaf ? leaves : n;
    if (id < 0 || id >= static_cast<int64_t>(most)) c.fail("there is no node or leaf {}", id);
    return leaf ? id : static_cast<int64_t>(first[static_cast<size_t>(id)]);
  };
  for (size_t i = 0; i < n; ++i)
    for (size_t k = first[i]; k <= last[i]; ++k) {
      f.yes[k] = place(yes[i], yes_leaf[i] != 0);
      f.no[k] = k < last[i] ? static_cast<int64_t>(k) + 1 : place(no[i], no_leaf[i] != 0);
    }
  for (int64_t root : c.integers("tree_roots").value_or(Ints{}))
    f.roots.push_back(place(root, false));
  for (size_t i = 0; i < leaves && leaves < f.size(); ++i) f.test[i] = f.test[leaves];
  return f;
}

void tree_ensemble(Call& c) {
  Value x = sample_rows(c);
  const Ints ids = c.integers("leaf_targetids").value_or(Ints{});
  const std::vector<double> weights = c.tensor("leaf_weights").to_doubles();
  if (weights.size() != ids.size())
    c.fail("leaves have {} weights and {} targets", weights.size(), ids.size());
  const int64_t how = c.attribute("aggregate_function", int64_t{1});
  if (how < 0 || how > 3) c.fail("there is no aggregate_function {}", how);
  Forest f = forest_by_place(c, ids.size());
  Votes votes(c, f, c.attribute("n_targets", int64_t{1}), static_cast<Together>(how));
  for (size_t i = 0; i < ids.size(); ++i) votes.add(c, static_cast<int64_t>(i), ids[i], weights[i]);
  Value y = votes_together(c, x, f, votes);
  constexpr const char* transforms[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
  const int64_t transform = c.attribute("post_transform", int64_t{0});
  if (transform < 0 || transform > 4) c.fail("there is no post_transform {}", transform);
  c.give(cast(transformed_scores(c, y, transforms[transform]), x.dtype()));
}

constexpr RuleEntry tree_table[] = {
    {"ai.onnx.ml.TreeEnsembleRegressor", 1, tree_regressor},
    {"ai.onnx.ml.TreeEnsembleClassifier", 1, tree_classifier},
    {"ai.onnx.ml.TreeEnsemble", 5, tree_ensemble},
};

}  // namespace

constinit const Rules tree_rules = tree_table;

}  // namespace gradus::onnx
