#include "ops/opaque.h"

#include "ops/families.h"

namespace gradus::ops {

void refuse_opaque(ir::InferCall& call) { call.fail("opaque functions are not in this build"); }

Family opaque_family() { return fold<OpaqueOperators>(); }

}  // namespace gradus::ops
