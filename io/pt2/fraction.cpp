#include "io/pt2/fraction.h"

#include <cmath>

#include "gradus/error.h"

namespace gradus::pt2 {

namespace {

bool is_power_of_two(const ir::Dim& d) {
  return d.is_constant() && d.value() > 0 && (d.value() & (d.value() - 1)) == 0;
}

void need_exact(const Fraction& x) {
  if (x.rounded) throw Error("a quotient is rounded in Python, which is not supported");
}

}  // namespace

ir::Dim negative(const ir::Dim& d) { return ir::Dim(-1) * d; }
ir::Dim magnitude(const ir::Dim& d) { return max(d, negative(d)); }

bool is_integer(const Fraction& x) { return x.under == ir::Dim(1); }
ir::Dim integer_of(const Fraction& x) {
  if (!is_integer(x)) throw Error("a fraction is not supported here");
  return x.over;
}

Fraction dyadic(double x) {
  constexpr double most = int64_t{1} << 53, finest = 1 << 20;
  if (!(std::abs(x) <= most)) throw Error("{} is too large", x);
  if (x * finest != std::floor(x * finest))
    throw Error("{} is rounded in Python, which is not supported", x);
  int64_t under = 1;
  while (x * static_cast<double>(under) != std::floor(x * static_cast<double>(under))) under *= 2;
  return {static_cast<int64_t>(x * static_cast<double>(under)), under};
}

Fraction sum_of(const Fraction& x, const Fraction& y) {
  need_exact(x);
  need_exact(y);
  if (x.under == y.under) return {x.over + y.over, x.under};
  return {x.over * y.under + y.over * x.under, x.under * y.under};
}

Fraction product_of(const Fraction& x, const Fraction& y) {
  need_exact(x);
  need_exact(y);
  return {x.over * y.over, x.under * y.under};
}

Fraction quotient_of(const Fraction& x, const Fraction& y) {
  need_exact(x);
  need_exact(y);
  Fraction z{x.over * y.under, x.under * y.over};
  if (z.under.is_constant() && z.under.value() < 0) z = {negative(z.over), negative(z.under)};
  if (z.under == ir::Dim(0) || !z.under.known_nonnegative())
    throw Error("a divisor that is 0 or may be negative is not supported");
  z.rounded = !is_power_of_two(z.under);
  return z;
}

Fraction negative(const Fraction& x) { return {negative(x.over), x.under, x.rounded}; }

ir::Dim floor(const Fraction& x) { return is_integer(x) ? x.over : floor_div(x.over, x.under); }
ir::Dim ceil(const Fraction& x) { return negative(floor({negative(x.over), x.under})); }
ir::Dim trunc(const Fraction& x) {
  if (is_integer(x)) return x.over;
  if (x.over.known_nonnegative()) return floor(x);
  return max(0, floor(x)) + min(0, ceil(x));
}

}  // namespace gradus::pt2
