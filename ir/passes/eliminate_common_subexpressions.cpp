#include <bit>

#include "ir/passes/passes.h"
#include "ir/passes/rewrite.h"

namespace gradus::ir {

namespace {

// The low bits choose the place in the table: the high ones come down to them.
size_t mix(size_t h, size_t x) {
  h = (h ^ x) * 0x9e3779b97f4a7c15u;
  return h ^ (h >> 29);
}

std::string attributes_text(const Node& n) {
  std::string text;  // empty for defaults
  for (const NamedLiteral& a : n.op->write(n.attributes))
    text += a.name + "=" + to_string(a.value) + ";";
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

// The nodes of a stage by what they compute; attributes are not kept as text, stages are long.
class Seen {
 public:
  explicit Seen(const std::vector<Node>& nodes) : nodes_(nodes), slots_(64) {}

  // An earlier node like the last one, or null, and then the last one is among them.
  const Node* find_or_add_last() {
    size_t hash = hash_of(nodes_.back());
    size_t i = hash;
    for (; slots_[i & (slots_.size() - 1)].node != none; ++i) {
      const Slot& slot = slots_[i & (slots_.size() - 1)];
      if (slot.hash == hash && same_computation(nodes_[slot.node], nodes_.back()))
        return &nodes_[slot.node];
    }
    slots_[i & (slots_.size() - 1)] = {hash, nodes_.size() - 1};
    if (2 * ++size_ > slots_.size()) grow();
    return nullptr;
  }

 private:
  static constexpr size_t none = SIZE_MAX;
  struct Slot {
    size_t hash = 0, node = none;
  };
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& s : old) {
      if (s.node == none) continue;
      size_t i = s.hash;
      while (slots_[i & (slots_.size() - 1)].node != none) ++i;
      slots_[i & (slots_.size() - 1)] = s;
    }
  }

  const std::vector<Node>& nodes_;
  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t size_ = 0;
};

}  // namespace

void eliminate_common_subexpressions(Graph& graph, size_t first_stage) {
  Substitute substitute(graph);
  for (size_t s = 0; s < graph.stages.size(); ++s) {
    Stage& stage = graph.stages[s];
    std::vector<Node> done;
    done.reserve(stage.nodes.size());
    Seen seen(done);
    for (Node& node : stage.nodes) {
      substitute.apply(node);
      done.push_back(std::move(node));
      const OperatorTraits& traits = done.back().op->traits;
      if (s < first_stage || traits.structural || traits.opaque) continue;
      const Node* same = seen.find_or_add_last();
      if (!same) continue;
      for (size_t i = 0; i < done.back().results.size(); ++i) {
        ValueId by = same->results[i];
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
