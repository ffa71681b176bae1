#include "ir/passes/join_parts.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "gradus/rewrite.h"
#include "gradus/rules.h"
#include "ir/passes/graph_world.h"
#include "ops/padded.h"

namespace gradus::ir {

namespace {

constexpr size_t least_parts = 3;  // two and their sum are one kernel mostly

using ops::PaddedPart;

// A term of a sum; a part of zeros, or anything else.
struct Term {
  ValueId value;
  std::optional<PaddedPart> part;
};

class Joiner {
 public:
  explicit Joiner(Graph& graph)
      : graph_(graph),
        substitute_(graph),
        makers_(graph.values.size()),
        uses_(graph.values.size()),
        inner_(graph.values.size()) {
    for (const Stage& s : graph.stages) {
      for (const Node& node : s.nodes)
        for (const Operand& o : node.operands) use(value_in(o));
      for (const Result& r : s.results) use(r.value);
    }
  }

  // Near-linear in the program: a value's readers stand in its stage or in later ones.
  void run() {
    for (; stage_ < graph_.stages.size(); ++stage_) run_stage();
    for (Stage& s : graph_.stages) substitute_.apply(s.results);
  }

 private:
  void run_stage() {
    std::vector<Node> old = std::move(graph_.stages[stage_].nodes);
    for (Node& node : old) {
      substitute_.apply(node);
      for (ValueId y : node.results) makers_[index_of(y)] = &node;
    }
    bool any = false;
    for (const Node& node : old)
      if (sums(node)) {
        const ValueId left = value_in(node.operands[0]);
        if (const Node* before = maker(left); before && sums(*before) && uses_[index_of(left)] == 1)
          inner_[index_of(left)] = any = true;
      }
    std::vector<Node> nodes;
    if (any) find_turned(old);
    if (any) nodes = join_sums(old);  // else no sum has so many terms
    for (const Node& node : old)
      for (ValueId y : node.results) makers_[index_of(y)] = nullptr;
    graph_.stages[stage_].nodes = std::move(any ? nodes : old);
  }

  std::vector<Node> join_sums(const std::vector<Node>& old) {
    std::vector<Node> nodes;
    for (const Node& node : old) {
      std::optional<ValueId> by;
      const Node* turned = nullptr;
      if (sums(node) && !inner_[index_of(node.results[0])]) by = join(node, nodes, turned);
      if (by) {
        const ValueId instead = turned ? turned->results[0] : node.results[0];
        substitute_.replace(instead, *by);
        hand_name_over(graph_, instead, *by);
        if (turned) gone_.insert(turned);
        continue;
      }
      if (!gone_.contains(&node)) nodes.push_back(node);
    }
    gone_.clear();
    turned_.clear();
    for (Node& node : nodes) substitute_.apply(node);
    return nodes;
  }

  // Sums of which a permute is the only reader.
  void find_turned(const std::vector<Node>& nodes) {
    for (const Node& node : nodes) {
      if (!ops::permuted_order(graph_, node)) continue;
      const ValueId of = value_in(node.operands[0]);
      const Node* made = maker(of);
      if (made && sums(*made) && uses_[index_of(of)] == 1) turned_[of] = &node;
    }
  }

  void use(ValueId v) {
    if (v != no_value) ++uses_[index_of(v)];
  }
  const Node* maker(ValueId v) const {
    return index_of(v) < makers_.size() ? makers_[index_of(v)] : nullptr;
  }
  bool sums(const Node& node) const { return ops::adds_up(graph_, node); }

  Term term(ValueId v) const {
    const Node* made = maker(v);
    return {v, made ? ops::padded_part(graph_, *made) : std::nullopt};
  }

  // ((a + b) + c) + d, as far as nobody else reads what is between.
  std::vector<Term> terms_of(const Node& sum) const {
    std::vector<Term> terms{term(value_in(sum.operands[1]))};
    ValueId left = value_in(sum.operands[0]);
    for (const Node* n = maker(left); n && sums(*n) && uses_[index_of(left)] == 1;
         n = maker(left)) {
      terms.push_back(term(value_in(n->operands[1])));
      left = value_in(n->operands[0]);
    }
    terms.push_back(term(left));
    std::ranges::reverse(terms);
    return terms;
  }

  // How many terms from `first` on are parts beside each other.
  static size_t count_parts(const std::vector<Term>& terms, size_t first) {
    size_t end = first;
    auto beside = [&](const PaddedPart& a, const PaddedPart& b) {
      return a.dim == b.dim && (a.end <= b.begin || b.end <= a.begin);
    };
    for (; end < terms.size() && terms[end].part; ++end)
      for (size_t i = first; i < end; ++i)
        if (!beside(*terms[i].part, *terms[end].part)) return end - first;
    return end - first;
  }

  // `turned` is the permute of the sum, if what is joined has that order already.
  std::optional<ValueId> join(const Node& sum, std::vector<Node>& nodes, const Node*& turned) {
    const std::vector<Term> terms = terms_of(sum);
    std::vector<size_t> counts(terms.size(), 0);
    bool any = false;
    for (size_t i = 0; i < terms.size();) {
      const size_t n = count_parts(terms, i);
      counts[i] = n >= least_parts ? n : 1;
      any = any || counts[i] > 1;
      i += counts[i];
    }
    if (!any) return {};
    GraphWorld world(graph_, stage_, nodes);
    world.set_place(sum.where);
    ops::Value total;
    if (const auto it = turned_.find(sum.results[0]);
        it != turned_.end() && counts[0] == terms.size())
      turned = it->second;
    const auto order = turned ? ops::permuted_order(graph_, *turned) : std::nullopt;
    for (size_t i = 0; i < terms.size(); i += counts[i]) {
      ops::Value next =
          counts[i] > 1 ? joined(world, {terms.data() + i, counts[i]}, order ? &*order : nullptr)
                        : world.value(terms[i].value);
      total = total.defined() ? ops::operator+(total, next) : next;
    }
    return GraphWorld::id_of(total);
  }

  ops::Value joined(GraphWorld& world, std::span<const Term> terms, const ops::Ints* order) const {
    std::vector<PaddedPart> places;
    for (const Term& t : terms) places.push_back(*t.part);
    // An empty part stands before the one that begins there.
    std::ranges::sort(places, {}, [](const PaddedPart& p) { return std::pair(p.begin, p.end); });
    std::vector<ops::Value> parts;
    for (const PaddedPart& p : places) {
      const Node* made = maker(p.part);
      const bool reshapes = made && ops::is_reshape(*made);
      const ops::Value of = reshapes ? world.value(made->operands[0]) : ops::Value();
      parts.push_back(ops::without_minus_zero(world.value(p.part), reshapes ? &of : nullptr));
    }
    return ops::joined(world, parts, places, order);
  }

  Graph& graph_;
  size_t stage_ = 0;
  Substitute substitute_;
  // By value, of those that there are before.
  std::vector<const Node*> makers_;  // in the stage at hand
  std::vector<size_t> uses_;
  std::vector<bool> inner_;  // of a longer sum, which takes its terms
  // In the stage at hand: permutes by the sums that they read, and those that are gone.
  std::unordered_map<ValueId, const Node*> turned_;
  std::unordered_set<const Node*> gone_;
};

}  // namespace

void join_parts(Graph& graph) { Joiner(graph).run(); }

}  // namespace gradus::ir
