// A device that need not be there: plans are made for it, and nothing runs on it.
#pragma once

#include <memory>

#include "devices/cuda/device.h"
#include "gradus/context.h"

namespace gradus::fusion::cuda {

// cuda:`number` without memory or code. Addresses are numbers that nobody has; copies there are
// forgotten; launches and copies from there throw ResourceError. Sources are written, and nothing
// is compiled of them (see Compiler): NVRTC is not asked for either.
std::shared_ptr<Device> planned_device(int number);

// From now on the context's new states are planned for cuda:`number`, as they would be without
// cuBLASLt: State::prepare says what they take, State::groups which kernels there are, and
// State::host_instructions what there is no code for. Running one throws ResourceError.
void plan_for_device(Context& context, int number);

}  // namespace gradus::fusion::cuda
