// Devices that programs and the autograd engine run on: the one call that a user makes.
#pragma once

#include <cstdint>
#include <string>

#include "gradus/device_streams.h"
#include "gradus/kernels.h"

#pragma GCC visibility push(default)

namespace gradus {

// From now on the context's new states run on the device (those with FusionMode::off excepted), and
// whatever the context, operators on variables whose tensors lie there, and the autograd engine's
// nodes, do, on the current streams of their threads. May be called again, also for another device.
// Throws Error for a kind other than cuda, ResourceError where the device cannot be used: it says
// what is missing, and what to do.
void use_device(Context& context, Device device, const KernelOptions& options = {});

// A stream beside the default one; there are few, which are handed out in turns. It is made current
// by autograd::StreamGuard. Throws Error for a device that nobody uses.
autograd::Stream new_stream(Device device);

// For tensors that another library has made or is to read (gradus/dlpack.h): this thread's current
// stream as that library names it (CUDA: the CUstream, as a number), so that it has it wait; and
// one of the library's, which then waits for what ours has been given so far. Throw Error for a
// device that nobody uses.
uintptr_t native_stream(Device device);
void let_wait(Device device, uintptr_t native);

// Whether somebody uses it.
bool is_used(Device device);

// The tensor's values in memory of the context's, with the same strides; the tensor itself where it
// lies on the CPU. Waits for what this thread's current stream was given. Throws Error for a device
// that nobody uses.
Tensor to_host(const Tensor& tensor, Context& context);

// From now on the context's new states are planned for the device, which need not be there, as they
// would be without the libraries of products and convolutions: State::prepare says what they take,
// State::groups which kernels there are, and State::host_instructions what there is no code for.
// Running one throws ResourceError. Throws Error for a kind other than cuda.
void plan_for_device(Context& context, Device device);

// What this machine has of CUDA, for people: the driver, its devices, and NVIDIA's libraries; and
// where something is missing, what to do. Loads all of them. Thread-safe.
std::string describe_devices();

}  // namespace gradus

#pragma GCC visibility pop
