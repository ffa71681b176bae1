// An operator's struct -> its rules. Included by the files that instantiate them.
#pragma once

#include <tuple>
#include <vector>

#include "fusion/cpu/lane.h"
#include "fusion/cpu/rules.h"
#include "ops/pointwise.h"

namespace gradus::fusion::cpu {

template <class Op, class T, size_t... I>
llvm::Value* emit_rule(Emitter& at, llvm::Value* const* operands,
                       const ir::AttributeRecord* attributes, std::index_sequence<I...>) {
  using S = scalar::Lane<T>;
  auto operand = [&](auto index) {
    constexpr size_t i = decltype(index)::value;
    if constexpr (Op::roles[i] == ops::Role::condition)
      return scalar::Truth{&at, operands[i]};
    else
      return S{&at, operands[i]};
  };
  if constexpr (requires { typename Op::Attr; }) {
    const auto& a = static_cast<const ops::Record<typename Op::Attr>*>(attributes)->value;
    return Op::template scalar<S>(operand(std::integral_constant<size_t, I>{})..., a).value;
  } else {
    return Op::template scalar<S>(operand(std::integral_constant<size_t, I>{})...).value;
  }
}

template <class Op, class T>
llvm::Value* emit_rule(Emitter& at, llvm::Value* const* operands,
                       const ir::AttributeRecord* attributes) {
  return emit_rule<Op, T>(at, operands, attributes, std::make_index_sequence<Op::arity>());
}

// By Compute, as PointwiseEntry has the loops.
template <class Op>
constexpr std::array<Rule, 3> rules_of() {
  std::array<Rule, 3> rules{emit_rule<Op, double>, emit_rule<Op, float>, nullptr};
  if constexpr (!Op::computes_floating) rules[2] = emit_rule<Op, int64_t>;
  return rules;
}

template <class... Op>
void append_rules(std::vector<OperatorRules>& table, const std::tuple<Op...>*) {
  auto add = [&]<class O>(const O*) {
    if constexpr (ops::is_pointwise<O>) table.push_back({O::name, rules_of<O>()});
  };
  (add(static_cast<const Op*>(nullptr)), ...);
}

// The table of the families' lists.
template <class... List>
RuleTable fold_rules() {
  static const std::vector<OperatorRules> table = [] {
    std::vector<OperatorRules> t;
    (append_rules(t, static_cast<const List*>(nullptr)), ...);
    return t;
  }();
  return table;
}

}  // namespace gradus::fusion::cpu
