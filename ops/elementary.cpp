#include "ops/elementary.h"

#include "gradus/scalar/math.h"
#include "ops/declared.h"
#include "ops/families.h"

namespace gradus::ops {

Value rsqrt_one_minus_square(const Value& x) { return emit<Rsqrt>(emit<OneMinusSquare>(x)); }

// dx = dy / sqrt(x^2 - 1). Zero minus either zero is +0, whose root's inverse is +inf.
Value Acosh::dx(VjpCall& d) {
  Value below = 0.0 - emit<OneMinusSquare>(d.x());
  return d.dy() * emit<Rsqrt>(below);
}

Value Atanh::dx(VjpCall& d) {  // dx = dy / (1 - x^2)
  return d.dy() / emit<OneMinusSquare>(d.x());
}

Family elementary_family() { return fold<ElementaryOperators>(); }

}  // namespace gradus::ops
