// Convolutions that oneDNN computes: f32 and bf16, from a size on.
#pragma once

#include "ops/device_form.h"
#include "ops/onednn.h"

namespace gradus::ops {

// Binds result 0 of a convolution or one of its gradients; false where the library has nothing for
// it, and then nothing is bound. A batch is worked on in parts that depend on the sizes alone;
// parts of dw are added up in order, in f32.
bool bind_library_convolution(ir::BindCall& call, onednn::Direction direction, const ConvAxes& axes,
                              int64_t groups);

// See ops/device_form.h: nothing where the kernel is none of these.
std::optional<DeviceForm> form_of_library_convolution(ir::KernelFunction run,
                                                      const void* parameters);

}  // namespace gradus::ops
