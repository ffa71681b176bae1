// Adding up gradients.
#pragma once

#include "gradus/variable.h"

namespace gradus::autograd {

// The sum of two variables of one type, as `add` (operators.h) gives it. Unrecorded, a small sum
// takes the place of `a`'s values where nobody else can see them.
Variable add_up(Variable&& a, const Variable& b);

}  // namespace gradus::autograd
