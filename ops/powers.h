// Powers by a number: the few exponents that are cheaper than any, as ATen has them.
#pragma once

#include <array>

#include "gradus/pointwise.h"
#include "work/nest.h"

namespace gradus::ops {

// y = x^(half / 2) by multiplying, dividing and rooting. Whoever runs `pow` by a number that is one
// of these takes this rule for floating x, whether by loops or compiled: the number decides,
// whatever the elements are.
template <int half>
struct HalfPower : Unary<Result::floating> {
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    if constexpr (half == 6) return x * x * x;
    if constexpr (half == 4) return x * x;
    if constexpr (half == 1) return sqrt(x);
    if constexpr (half == -1) return 1.0 / sqrt(x);
    if constexpr (half == -2) return 1.0 / x;
    if constexpr (half == -4) return 1.0 / (x * x);
  }
};
inline constexpr std::array cheap_half_powers{6, 4, 1, -1, -2, -4};

// The one of cheap_half_powers that this exponent is; 0 if it is none.
constexpr int cheap_half_power(double exponent) {
  for (int half : cheap_half_powers)
    if (exponent * 2 == half) return half;
  return 0;
}
// The loops of any power: operator `pow`'s.
const PointwiseInfo& general_power_info();
// The loops of the rule for one of cheap_half_powers.
const PointwiseInfo& half_power_info(int half);

// If the step is a power by a number that has a cheaper rule, which of cheap_half_powers; else 0.
// Every way to run a nest takes that rule then.
int half_power_of(const work::Nest& nest, const work::Step& step);

// Binds result 0 as operand 0 to the power of operand 1, which is written as a number.
// `general` is what computes any power. Operand 0 is of the result's dtype, a floating one.
void bind_power(BindCall& call, const PointwiseInfo& general);

}  // namespace gradus::ops
