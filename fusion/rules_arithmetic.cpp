#include "fusion/make_rules.h"
#include "gradus/scalar/math.h"
#include "ops/arithmetic.h"
#include "ops/bitwise.h"
#include "ops/comparison.h"
#include "ops/powers.h"
#include "ops/rounding.h"

namespace gradus::fusion {

RuleTable arithmetic_rules() {
  return fold_rules<ops::ArithmeticOperators, ops::RoundingOperators, ops::ComparisonOperators,
                    ops::BitwiseOperators>();
}

Rule half_power_rule(int half, Compute compute) {
  Rule rule = nullptr;
  [&]<size_t... I>(std::index_sequence<I...>) {
    ((ops::cheap_half_powers[I] == half
          ? static_cast<void>(
                rule = rules_of<ops::HalfPower<ops::cheap_half_powers[I]>>()[static_cast<size_t>(
                    compute)])
          : static_cast<void>(0)),
     ...);
  }
  (std::make_index_sequence<ops::cheap_half_powers.size()>());
  return rule;
}

}  // namespace gradus::fusion
