// Code for calls of ranks on a device: by NCCL, where the group has it.
#pragma once

#include "devices/cuda/launches.h"

namespace gradus::fusion::cuda {

// Code that adds the call to the work of the current stream. `copies` put operand 0 in order, into
// scratch memory of so many bytes; without copies it lies in order.
devices::DeviceCode make_collective(std::shared_ptr<CudaBackend> backend, const work::Collective& w,
                                    std::vector<Launch> copies, size_t scratch_bytes);

}  // namespace gradus::fusion::cuda
