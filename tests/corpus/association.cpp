#include "tests/corpus/association.h"

#include <algorithm>
#include <map>

#include "ops/opaque.h"

namespace gradus::corpus {

namespace {

class Association {
 public:
  Association(const ir::Graph& derived, std::string_view function, const ir::Graph& plain)
      : derived_(derived), plain_(plain), function_(function) {
    for (size_t s = 0; s < derived.stages.size(); ++s) {
      for (const ir::Node& node : derived.stages[s].nodes)
        for (const ir::Operand& o : node.operands)
          if (ir::ValueId v = value_in(o); v != ir::no_value) uses_[v].push_back({s, false});
      for (const ir::Result& r : derived.stages[s].results)
        if (r.value != ir::no_value) uses_[r.value].push_back({s, true});
    }
  }

  size_t stages_alike() const {
    // A function's results are its nodes'.
    size_t alike = 1;
    while (alike < derived_.stages.size() && holds_before(alike)) ++alike;
    return alike;
  }

 private:
  struct Use {
    size_t stage;
    bool returned;
  };

  bool is_ours(const ir::Node& node) const {
    if (!node.op->traits.opaque) return false;
    if (node.op->traits.acts)
      return ops::attributes_as<ops::CppOp::Attr>(node.attributes).name == function_;
    const auto& signature = derived_[value_in(node.operands.back())].type.signature;
    return signature && signature->function == function_;
  }

  std::vector<Use> uses_before(ir::ValueId v, size_t last) const {
    std::vector<Use> list;
    if (auto it = uses_.find(v); it != uses_.end())
      std::ranges::copy_if(it->second, std::back_inserter(list),
                           [&](const Use& u) { return u.stage < last; });
    return list;
  }

  bool holds_before(size_t last) const {
    for (size_t s = 0; s <= last; ++s) {
      size_t ours = 0;
      for (const ir::Node& node : derived_.stages[s].nodes) {
        if (!is_ours(node)) continue;
        if (++ours > 1) return false;
        if (s < last && !(operands_hold(node, last) && results_hold(node, s, last))) return false;
      }
    }
    return true;
  }

  bool operands_hold(const ir::Node& node, size_t last) const {
    for (const ir::Operand& o : node.operands) {
      ir::ValueId v = value_in(o);
      if (v == ir::no_value || !derived_[v].type.is_floating()) continue;
      if (uses_before(v, last).size() > 1) return false;
    }
    return true;
  }

  bool results_hold(const ir::Node& node, size_t stage, size_t last) const {
    size_t contributions = 0, used = 0;
    bool all_returned = true;
    for (ir::ValueId v : node.results) {
      if (!derived_[v].type.is_floating()) continue;
      std::vector<Use> uses = uses_before(v, last);
      used += !uses.empty();
      contributions += uses.size();
      for (const Use& u : uses) all_returned &= u.returned;
    }
    // Results of the function itself are values of their own.
    if (node.op->traits.acts) return true;
    return used <= 1 || contributions <= 2 || (all_returned && returned_in_order(node, stage));
  }

  // Results of the stage that are one value without the function stand in the eval's order.
  bool returned_in_order(const ir::Node& node, size_t stage) const {
    std::map<ir::ValueId, size_t> last_place;
    const auto &results = derived_.stages[stage].results, &without = plain_.stages[stage].results;
    for (size_t r = 0; r < results.size(); ++r) {
      auto it = std::ranges::find(node.results, results[r].value);
      if (it == node.results.end() || without[r].value == ir::no_value) continue;
      auto place = static_cast<size_t>(it - node.results.begin());
      auto [known, fresh] = last_place.emplace(without[r].value, place);
      if (!fresh && known->second > place) return false;
      known->second = place;
    }
    return true;
  }

  const ir::Graph &derived_, &plain_;
  std::string_view function_;
  std::map<ir::ValueId, std::vector<Use>> uses_;
};

}  // namespace

size_t stages_alike(const ir::Graph& derived, std::string_view function, const ir::Graph& plain) {
  return Association(derived, function, plain).stages_alike();
}

}  // namespace gradus::corpus
