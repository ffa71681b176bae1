#include <unordered_set>

#include "ir/passes/passes.h"
#include "ir/passes/rewrite.h"

namespace gradus::ir {

namespace {

size_t mix(size_t h, size_t x) { return (h ^ x) * 0x9e3779b97f4a7c15u + (h >> 29); }

// A node by what it computes.
struct Key {
  const Node* node;
  std::string attributes;  // empty for defaults
  size_t hash;

  explicit Key(const Node& n) : node(&n), hash(std::hash<const void*>()(n.op)) {
    for (const NamedLiteral& a : n.op->write(n.attributes))
      attributes += a.name + "=" + to_string(a.value) + ";";
    hash = mix(hash, std::hash<std::string>()(attributes));
    for (const Operand& o : n.operands) hash = mix(hash, hash_of(o));
  }
  static size_t hash_of(const Operand& o) {
    size_t kind = o.index() << 40;
    if (auto* v = std::get_if<ValueId>(&o)) return kind + index_of(*v);
    if (auto* n = std::get_if<Number>(&o))
      return kind + static_cast<size_t>(n->integer) + std::bit_cast<uint64_t>(n->floating);
    if (auto* d = std::get_if<Dim>(&o)) return kind + std::hash<std::string>()(d->to_string());
    return kind;
  }
  bool operator==(const Key& o) const {
    return node->op == o.node->op && node->operands == o.node->operands &&
           attributes == o.attributes;
  }
};
struct KeyHash {
  size_t operator()(const Key& k) const { return k.hash; }
};

}  // namespace

void eliminate_common_subexpressions(Graph& graph, size_t first_stage) {
  Substitute substitute(graph);
  for (size_t s = 0; s < graph.stages.size(); ++s) {
    Stage& stage = graph.stages[s];
    std::vector<Node> done;
    done.reserve(stage.nodes.size());  // keys point into it
    std::unordered_set<Key, KeyHash> seen;
    for (Node& node : stage.nodes) {
      substitute.apply(node);
      done.push_back(std::move(node));
      if (s < first_stage || done.back().op->traits.structural) continue;
      auto [it, fresh] = seen.emplace(done.back());
      if (fresh) continue;
      for (size_t i = 0; i < done.back().results.size(); ++i) {
        ValueId by = it->node->results[i];
        substitute.replace(done.back().results[i], by);
        hand_name_over(graph, done.back().results[i], by);
      }
      done.pop_back();
    }
    seen.clear();
    stage.nodes = std::move(done);
    substitute.apply(stage.results);
  }
}

}  // namespace gradus::ir
