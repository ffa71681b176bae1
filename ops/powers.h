// Powers by a number: the few exponents that are cheaper than any, as ATen has them.
#pragma once

#include <array>

#include "ops/pointwise.h"

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

// Binds result 0 as operand 0 to the power of operand 1, which is written as a number.
// `general` is what computes any power. Operand 0 is of the result's dtype, a floating one.
void bind_power(ir::BindCall& call, const PointwiseInfo& general);

}  // namespace gradus::ops
