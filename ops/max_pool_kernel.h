// The greatest element of each window, and where it is.
#pragma once

#include "ir/operator.h"
#include "ops/device_form.h"

namespace gradus::ops {

// Of operand 0 into results 0 and 1. Fails where a window holds nothing but padding.
void bind_max_pool(ir::BindCall& call, const DeviceMaxPool& windows);

}  // namespace gradus::ops
