// What operators emit: their scalar templates over lanes, folded from the families' lists.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "fusion/scalar_emitter.h"
#include "gradus/operator.h"

namespace gradus::fusion {

// Emits one operator's scalar rule. Operands are values of what is computed in (i64 or u64 for
// integers)
// or, for conditions, truth values.
using Rule = Emitted* (*)(ScalarEmitter& at, Emitted* const* operands,
                          const ir::AttributeRecord* attributes);

// Null where there is none.
using RuleByCompute = std::array<Rule, compute_count>;

struct OperatorRules {
  std::string_view name;
  RuleByCompute rules;
};

// The rule of a pointwise operator. Null if none of its family is listed in rules.cpp.
Rule rule_of(const ir::Operator& op, Compute compute);
// The rule of x^(half / 2), one of ops::cheap_half_powers; floating compute types.
Rule half_power_rule(int half, Compute compute);

// A table for each file that instantiates rules.
using RuleTable = std::span<const OperatorRules>;
RuleTable arithmetic_rules();  // arithmetic, rounding, comparison, bitwise
RuleTable elementary_rules();
RuleTable special_rules();
RuleTable activation_rules();

}  // namespace gradus::fusion
