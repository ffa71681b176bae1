// Floating numbers that Python computes from sizes, as exact fractions.
#pragma once

#include "gradus/type.h"

namespace gradus::pt2 {

// over / under, where `under` is never negative. Sums and products of sizes and of numbers with few
// binary digits are exact in Python, too.
struct Fraction {
  ir::Dim over = 0, under = 1;
  // Python has the floating number next to it, which compares and rounds to an integer as the
  // fraction does, and is not computed with further.
  bool rounded = false;
};

bool is_integer(const Fraction& x);
ir::Dim integer_of(const Fraction& x);  // throws Error for a fraction
// Throws Error for a number with more than some twenty binary digits behind its point, such as 0.7.
Fraction dyadic(double x);

// Throw Error for an operand that is rounded.
Fraction sum_of(const Fraction& x, const Fraction& y);
Fraction product_of(const Fraction& x, const Fraction& y);
// Also for a divisor that is 0 or may be negative.
Fraction quotient_of(const Fraction& x, const Fraction& y);
Fraction negative(const Fraction& x);

ir::Dim floor(const Fraction& x);
ir::Dim ceil(const Fraction& x);
ir::Dim trunc(const Fraction& x);

ir::Dim negative(const ir::Dim& d);
ir::Dim magnitude(const ir::Dim& d);

}  // namespace gradus::pt2
