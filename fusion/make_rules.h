// An operator's struct -> its rules. Included by the files that instantiate them.
#pragma once

#include <tuple>
#include <vector>

#include "fusion/lane.h"
#include "fusion/rules.h"
#include "ops/apply_scalar.h"

namespace gradus::fusion {

template <class Op, class T>
Emitted* emit_rule(ScalarEmitter& at, Emitted* const* operands,
                   const ir::AttributeRecord* attributes) {
  using S = scalar::Lane<T>;
  return ops::apply_scalar<Op, S>(
             [&](size_t i) {
               return S{&at, operands[i]};
             },
             [&](size_t i) {
               return scalar::Truth{&at, operands[i]};
             },
             attributes)
      .value;
}

// By Compute, as PointwiseEntry has the loops.
template <class Op>
constexpr RuleByCompute rules_of() {
  RuleByCompute rules{emit_rule<Op, double>, emit_rule<Op, float>};
  if constexpr (!Op::computes_floating) {
    rules[2] = emit_rule<Op, int64_t>;
    rules[3] = emit_rule<Op, uint64_t>;
  }
  return rules;
}

// The table of the families' lists.
template <class... List>
RuleTable fold_rules() {
  static const std::vector<OperatorRules> table = [] {
    std::vector<OperatorRules> t;
    ops::for_each_pointwise<List...>([&]<class Op>(const Op*) {
      t.push_back({Op::name, rules_of<Op>()});
    });
    return t;
  }();
  return table;
}

}  // namespace gradus::fusion
