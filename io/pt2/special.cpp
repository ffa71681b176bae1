#include "io/pt2/special.h"

#include <cmath>
#include <numbers>

#include "io/pt2/operands.h"

namespace gradus::pt2 {

using namespace ops;

// At (0, 0) the derivative is 0: there a constant stands for it.
Value atan2_as_aten(const Value& x, const Value& y) {
  Value origin = logical_and(eq(x, num(0.0)), eq(y, num(0.0)));
  Value there = detach(binary("atan2", x, y));
  Value away = binary("atan2", where(origin, num(0.0), x), where(origin, num(1.0), y));
  return where(origin, there, away);
}

void atan2_rule(Call& c) { c.give(atan2_as_aten(in_result_dtype(c), in_result_dtype(c, "other"))); }

void logaddexp2_rule(Call& c) {
  Value x = in_result_dtype(c) * std::numbers::ln2;
  Value y = in_result_dtype(c, "other") * std::numbers::ln2;
  c.give(binary("logaddexp", x, y) / std::numbers::ln2);
}

// x log(1 + y); 0 where x is 0 and the logarithm is none.
void xlog1py_rule(Call& c) {
  Value x = in_result_dtype(c), y = in_result_dtype(c, "other");
  if (x.is_number()) x = number_tensor(c, x, c.result().dtype);
  if (y.is_number()) y = number_tensor(c, y, c.result().dtype);
  Value nothing = logical_and(eq(x, num(0.0)), le(y, num(-1.0)));
  Value product = x * unary("log1p", where(nothing, num(0.0), y));
  c.give(where(nothing, num(0.0), product));
}

namespace {

// Whether a number has a sign, as -0 has. The sign of NaN is not seen.
Value has_sign(const Value& x) {
  Value below = lt(x, num(0.0));
  if (!is_floating(x.dtype())) return below;
  Value negative_zero = lt(unary("reciprocal", x), num(0.0));
  return logical_or(below, logical_and(eq(x, num(0.0)), negative_zero));
}

}  // namespace

// |x| has derivative 0 at 0, as the function has.
void copysign_rule(Call& c) {
  Value x = in_result_dtype(c), y = in_result_dtype(c, "other");
  Value size = unary("abs", x);
  if (!y.is_number()) return c.give(where(has_sign(y), -size, size));
  if (!y.constant()) c.fail("its argument 'other' is a size that has a name, and no number");
  c.give(std::signbit(*y.constant()) ? -size : size);
}

void signbit_rule(Call& c) { c.give(has_sign(c.x())); }

// 0 below 0, 1 above, and what is given at 0.
void heaviside_rule(Call& c) {
  Value x = in_result_dtype(c), at_zero = in_result_dtype(c, "values");
  Value step = cast(gt(x, num(0.0)), c.result().dtype);
  c.give(where(eq(x, num(0.0)), at_zero, step));
}

void ndtri_rule(Call& c) {
  Value x = in_result_dtype(c);
  c.give(unary("erfinv", x * 2.0 - 1.0) * std::numbers::sqrt2);
}

// -x log(x). At 0 it is 0, and rises without bound there as the root does.
void entropy_rule(Call& c) {
  Value x = in_result_dtype(c);
  Value is_zero = eq(x, num(0.0)), root = unary("sqrt", where(is_zero, x, num(1.0)));
  Value away = where(is_zero, num(1.0), x);
  Value y = where(is_zero, root, -binary("xlogy", away, away));
  c.give(where(lt(x, num(0.0)), num(-INFINITY), y));
}

void polygamma_rule(Call& c) {
  Value x = in_result_dtype(c);
  c.give(emit("polygamma", {x}, {{"n", c.integer("n")}}));
}

// log of pi^(p (p - 1) / 4) Gamma(x) Gamma(x - 1/2) ... Gamma(x - (p - 1) / 2)
void multivariate_gamma_rule(Call& c) {
  const int64_t p = c.integer("p");
  if (p < 1 || p > 1000) c.fail("its p is {}; it must be from 1 to 1000", p);
  Value x = in_result_dtype(c);
  Value y = unary("lgamma", x);
  for (int64_t i = 1; i < p; ++i) y = y + unary("lgamma", x - static_cast<double>(i) / 2);
  c.give(y + static_cast<double>(p * (p - 1)) / 4 * std::log(std::numbers::pi));
}

// sin(pi x) / (pi x). Near 0 by its series, whose derivatives are right there, too.
void sinc_rule(Call& c) {
  Value x = in_result_dtype(c) * std::numbers::pi;
  Value near = lt(unary("abs", x), num(0.25));
  Value away = where(near, num(1.0), x), quotient = unary("sin", away) / away;
  Value square = where(near, unary("square", x), num(0.0));
  // 1 - x^2/3! + x^4/5! - ..., by Horner's rule; the next term is below 1e-18 at 1/4.
  Value series = ones_like(square);
  for (int n = 13; n > 1; n -= 2) series = 1.0 - square * series / static_cast<double>(n * (n - 1));
  c.give(where(near, series, quotient));
}

// log(x / (1 - x)); what eps cuts off has derivative 0, on the bounds it has not.
void logit_rule(Call& c) {
  Value x = in_result_dtype(c);
  if (c.given("eps")) {
    const double eps = c.number("eps");
    x = emit("clamp", {x}, {{"min", eps}, {"max", 1 - eps}});
  }
  Value above = unary("log", x), below = unary("log1p", -x);
  c.give(above - below);
}

}  // namespace gradus::pt2
