#include "ops/sinc.h"

#include "gradus/scalar/math.h"
#include "ops/families.h"

namespace gradus::ops {

Value sinc_derivative_of(int64_t n, const Value& x) { return emit<SincDerivative>({x}, {.n = n}); }

void SincDerivative::infer(InferCall& call, const Attr& a) {
  if (a.n < 0 || a.n > 30) call.fail("attribute 'n' is {}, it must lie between 0 and 30", a.n);
  PointwiseEntry<SincDerivative>::infer(call);
}

Family sinc_family() { return fold<SincOperators>(); }

}  // namespace gradus::ops
