#include <bit>
#include <unordered_set>

#include "gradus/passes.h"
#include "gradus/rewrite.h"
#include "ops/collectives.h"
#include "ops/structural.h"

namespace gradus::ir {

namespace {

size_t mix(size_t h, size_t x) {
  h = (h ^ x) * 0x9e3779b97f4a7c15u;
  return h ^ (h >> 29);
}

std::string attributes_text(const Node& n) {
  std::string text;  // empty for defaults
  for (const NamedLiteral& a : n.op->write(n.attributes))
    text += a.name + "=" + to_string(a.value) + ";";
  for (const ops::GraphName* named : ops::graphs_in(n))
    text += fmt::format("{};", static_cast<const void*>(named->graph.get()));
  return text;
}

size_t hash_of(const Operand& o) {
  size_t kind = o.index() << 40;
  if (auto* v = std::get_if<ValueId>(&o)) return kind + index_of(*v);
  if (auto* n = std::get_if<Number>(&o))
    return kind + static_cast<size_t>(n->integer) + std::bit_cast<uint64_t>(n->floating);
  if (auto* d = std::get_if<Dim>(&o)) return kind + std::hash<std::string>()(d->to_string());
  return kind;
}

size_t hash_of(const Node& n) {
  size_t h = std::hash<const void*>()(n.op);
  h = mix(h, std::hash<std::string>()(attributes_text(n)));
  for (const Operand& o : n.operands) h = mix(h, hash_of(o));
  return h;
}

bool same_computation(const Node& a, const Node& b) {
  return a.op == b.op && a.operands == b.operands &&
         (a.attributes == b.attributes || attributes_text(a) == attributes_text(b));
}

}  // namespace

void eliminate_common_subexpressions(Graph& graph, size_t first_stage) {
  Substitute substitute(graph);
  for (size_t s = 0; s < graph.stages.size(); ++s) {
    Stage& stage = graph.stages[s];
    std::vector<Node> done;
    done.reserve(stage.nodes.size());
    // By what they compute; attributes are not kept as text, stages are long.
    auto hash = [&](size_t i) { return hash_of(done[i]); };
    auto same = [&](size_t i, size_t k) { return same_computation(done[i], done[k]); };
    std::unordered_set<size_t, decltype(hash), decltype(same)> seen(stage.nodes.size(), hash, same);
    for (Node& node : stage.nodes) {
      substitute.apply(node);
      done.push_back(std::move(node));
      const OperatorTraits& traits = done.back().op->traits;
      if (s < first_stage || traits.structural || traits.opaque) continue;
      if (ops::is_message(done.back())) continue;
      auto [earlier, added] = seen.insert(done.size() - 1);
      if (added) continue;
      for (size_t i = 0; i < done.back().results.size(); ++i) {
        ValueId by = done[*earlier].results[i];
        substitute.replace(done.back().results[i], by);
        hand_name_over(graph, done.back().results[i], by);
      }
      done.pop_back();
    }
    stage.nodes = std::move(done);
    substitute.apply(stage.results);
  }
}

}  // namespace gradus::ir
