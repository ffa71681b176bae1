#include "ops/elementary.h"

#include "ops/families.h"
#include "ops/scalar/math.h"

namespace gradus::ops {

Value rsqrt_one_minus_square(const Value& x) {
  Value below = 1.0 - x;
  Value above = x + 1.0;
  return emit<Rsqrt>(below * above);
}

// dx = dy / sqrt((x - 1) (x + 1)): no cancellation near x = 1. The sum with zero makes a product of
// -0 (x = -1) one of +0, whose root's inverse is +inf as that of x^2 - 1 is.
void Acosh::vjp(VjpCall& d) {
  d.give(0, [&] {
    Value below = d.x() - 1.0;
    Value above = d.x() + 1.0;
    return d.dy() * emit<Rsqrt>(emit<Addcmul>({num(0.0), below, above}));
  });
}

void Atanh::vjp(VjpCall& d) {  // dx = dy / (1 - x^2)
  d.give(0, [&] {
    Value below = 1.0 - d.x();
    Value above = d.x() + 1.0;
    return d.dy() / (below * above);
  });
}

Family elementary_family() { return fold<ElementaryOperators>(); }

}  // namespace gradus::ops
