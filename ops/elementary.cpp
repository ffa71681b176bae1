#include "ops/elementary.h"

#include "ops/families.h"
#include "ops/scalar/math.h"

namespace gradus::ops {

Value rsqrt_one_minus_square(const Value& x) {
  Value below = 1.0 - x;
  Value above = x + 1.0;
  return unary("rsqrt", below * above);
}

Value gaussian(const Value& x) { return unary("exp", -unary("square", x)); }

Value polygamma_of(int64_t n, const Value& x) { return emit("polygamma", {x}, {{"n", n, {}}}); }

// dx = dy / sqrt((x - 1) (x + 1)): no cancellation near x = 1. The sum with zero makes a product of
// -0 (x = -1) one of +0, whose root's inverse is +inf as that of x^2 - 1 is.
void Acosh::vjp(VjpCall& d) {
  d.give(0, [&] {
    Value below = d.x() - 1.0;
    Value above = d.x() + 1.0;
    return d.dy() * unary("rsqrt", emit("addcmul", {num(0.0), below, above}));
  });
}

void Atanh::vjp(VjpCall& d) {  // dx = dy / (1 - x^2)
  d.give(0, [&] {
    Value below = 1.0 - d.x();
    Value above = d.x() + 1.0;
    return d.dy() / (below * above);
  });
}

void Erfinv::vjp(VjpCall& d) {  // dx = dy sqrt(pi) / 2 e^(y^2)
  d.give(0,
         [&] { return d.dy() * (unary("exp", unary("square", d.y())) * (1 / two_over_sqrt_pi)); });
}

void Polygamma::infer(InferCall& call) {
  int64_t n = attributes_as<Attr>(call.attributes).n;
  if (n < 0 || n > 30) call.fail("attribute 'n' is {}, it must lie between 0 and 30", n);
  PointwiseEntry<Polygamma>::infer(call);
}

void Logaddexp::vjp(VjpCall& d) {  // dx = dy / (1 + e^(y - x))
  d.give(0, [&] { return d.dy() * unary("sigmoid", d.x(0) - d.x(1)); });
  d.give(1, [&] { return d.dy() * unary("sigmoid", d.x(1) - d.x(0)); });
}

void Xlogy::vjp(VjpCall& d) {
  const Value &x = d.x(0), &y = d.x(1);
  // log(y) where x is not 0; a number among the operands need not be y.
  d.give(0, [&] { return d.dy() * binary("xlogy", ne(x, num(0.0)), y); });
  d.give(1, [&] { return d.dy() * (x / y); });
}

Family elementary_family() { return fold<ElementaryOperators>(); }

}  // namespace gradus::ops
