#include "ops/special.h"

#include "gradus/scalar/math.h"
#include "ops/declared.h"
#include "ops/families.h"

namespace gradus::ops {

Value gaussian(const Value& x) { return emit<Exp>(-emit<Square>(x)); }

Value polygamma_of(int64_t n, const Value& x) { return emit<Polygamma>({x}, {.n = n}); }

Value Erfinv::dx(VjpCall& d) {  // dx = dy sqrt(pi) / 2 e^(y^2)
  return d.dy() * (emit<Exp>(emit<Square>(d.y())) * (1 / two_over_sqrt_pi));
}

void Polygamma::infer(InferCall& call, const Attr& a) {
  int64_t n = a.n;
  if (n < 0 || n > 30) call.fail("attribute 'n' is {}, it must lie between 0 and 30", n);
  PointwiseEntry<Polygamma>::infer(call);
}

void Logaddexp::vjp(VjpCall& d) {  // dx = dy / (1 + e^(y - x))
  d.give(0, [&] { return d.dy() * emit<Sigmoid>(d.x(0) - d.x(1)); });
  d.give(1, [&] { return d.dy() * emit<Sigmoid>(d.x(1) - d.x(0)); });
}

void Xlogy::vjp(VjpCall& d) {
  const Value &x = d.x(0), &y = d.x(1);
  // log(y), also where x is 0; but 0 where z is 0 though there is no logarithm.
  d.give(0, [&] {
    Value of = y.is_tensor() ? y : ones_like(x) * y;
    Value defined = logical_not(le(of, num(0.0)));
    Value meant = logical_or(ne(x, num(0.0)), defined);
    return d.dy() * emit<Xlogy>(meant, of);
  });
  d.give(1, [&] { return d.dy() * (x / y); });
}

Family special_family() { return fold<SpecialOperators>(); }

}  // namespace gradus::ops
