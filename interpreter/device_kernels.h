// Devices that stages run on by kernels of whoever brings them.
#pragma once

#include <memory>

#include "fusion/kernels.h"
#include "gradus/devices.h"

namespace gradus {

// As use_device of gradus/devices.h, by these kernels, whose backend() is not null.
void use_device(Context& context, std::shared_ptr<fusion::Kernels> kernels);

}  // namespace gradus
