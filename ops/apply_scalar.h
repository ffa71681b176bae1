// A pointwise operator's scalar rule, run in a world where operands are told by their numbers.
#pragma once

#include <array>
#include <utility>

#include "gradus/pointwise.h"

namespace gradus::ops {

// `value(i)` is operand i as an S, `truth(i)` as an S::Bool, which conditions are.
template <class Op, class S, class Value, class Truth>
auto apply_scalar(Value value, Truth truth, const ir::AttributeRecord* attributes) {
  auto operand = [&](auto index) {
    constexpr size_t i = decltype(index)::value;
    if constexpr (Op::roles[i] == Role::condition)
      return truth(i);
    else
      return value(i);
  };
  return [&]<size_t... I>(std::index_sequence<I...>) {
    if constexpr (requires { typename Op::Attr; }) {
      const auto& a = static_cast<const Record<typename Op::Attr>*>(attributes)->value;
      return Op::template scalar<S>(operand(std::integral_constant<size_t, I>{})..., a);
    } else {
      return Op::template scalar<S>(operand(std::integral_constant<size_t, I>{})...);
    }
  }
  (std::make_index_sequence<Op::arity>());
}

// Calls `each` with a null pointer to every pointwise operator of families' lists.
template <class... List, class F>
void for_each_pointwise(F each) {
  auto one = [&]<class Op>(const Op* op) {
    if constexpr (is_pointwise<Op>) each(op);
  };
  auto all = [&]<class... Op>(const std::tuple<Op...>*) {
    (one(static_cast<const Op*>(nullptr)), ...);
  };
  (all(static_cast<const List*>(nullptr)), ...);
}

}  // namespace gradus::ops
