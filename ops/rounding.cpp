#include "ops/rounding.h"

#include "gradus/scalar/math.h"
#include "ops/declared.h"
#include "ops/families.h"

namespace gradus::ops {

Error zero_divisor_error(const Operator& op) {
  return Error("{}: operand 'y' has a zero, by which integers cannot be divided", op.name);
}

void Fmod::vjp(VjpCall& d) {
  d.give(0, [&] { return d.dy(); });
  d.give(1, [&] {
    Value quotient = emit<Trunc>(d.x(0) / d.x(1));
    return -(d.dy() * quotient);
  });
}

void Remainder::vjp(VjpCall& d) {
  d.give(0, [&] { return d.dy(); });
  d.give(1, [&] {
    Value quotient = emit<FloorDivide>(d.x(0), d.x(1));
    return -(d.dy() * quotient);
  });
}

Family rounding_family() { return fold<RoundingOperators>(); }

}  // namespace gradus::ops
