// Devices on which programs and the autograd engine run.
#pragma once

#include <cstdint>
#include <string>

#include "gradus/device_streams.h"
#include "gradus/kernels.h"

#pragma GCC visibility push(default)

namespace gradus {

// Makes the context's new states run on the device, except states with FusionMode::off. For all
// contexts, operators on variables whose tensors are on the device, and the nodes of the autograd
// engine, then also run there, on the current streams of their threads. May be called several
// times, also for other devices. Throws Error for a kind other than cuda, and ResourceError for a
// device that cannot be used; the message says what is missing and what to do.
void use_device(Context& context, Device device, const KernelOptions& options = {});

// Returns a stream other than the default one. The library has few streams and returns them in
// turns. autograd::StreamGuard makes a stream current. Throws Error for a device that is not in
// use.
autograd::Stream new_stream(Device device);

// For tensors that another library makes or reads (gradus/dlpack.h). native_stream returns this
// thread's current stream as a handle of that library (CUDA: the CUstream as a number). The library
// can then wait for the stream. let_wait makes a stream of that library wait for the work that was
// submitted to this thread's current stream. Both throw Error for a device that is not in use.
uintptr_t native_stream(Device device);
void let_wait(Device device, uintptr_t native);

// Whether use_device was called for the device.
bool is_used(Device device);

// Returns a copy of the tensor in memory of the context, with the same strides, or the tensor
// itself if it is on the CPU. Waits for the work of this thread's current stream. Throws Error for
// a device that is not in use.
Tensor to_host(const Tensor& tensor, Context& context);

// Makes the context's new states be planned for the device, without the libraries of matrix
// products and convolutions. The device need not exist. State::prepare, State::groups and
// State::host_instructions then report memory, kernels, and instructions without device code.
// Running such a state throws ResourceError. Throws Error for a kind other than cuda.
void plan_for_device(Context& context, Device device);

// Returns a description of the CUDA installation: the driver, its devices, and NVIDIA's libraries,
// which it loads. If a part is missing, the text says what to do. Thread-safe.
std::string describe_devices();

}  // namespace gradus

#pragma GCC visibility pop
