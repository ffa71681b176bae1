#include "fusion/rules.h"

#include <unordered_map>

#include "gradus/error.h"
#include "gradus/registry.h"

namespace gradus::fusion {

Rule rule_of(const ir::Operator& op, Compute compute) {
  static const auto table = [] {
    std::unordered_map<const ir::Operator*, RuleByCompute> t;
    for (RuleTable part :
         {arithmetic_rules(), elementary_rules(), special_rules(), activation_rules()})
      for (const OperatorRules& r : part) {
        const ir::Operator* record = ops::find(r.name);
        GRADUS_CHECK(record && record->pointwise);
        t.emplace(record, r.rules);
      }
    return t;
  }();
  auto found = table.find(&op);
  return found == table.end() ? nullptr : found->second[static_cast<size_t>(compute)];
}

}  // namespace gradus::fusion
