// What is known of a node's input: what a gradient that arrives there has to be.
#pragma once

#include "tensor/tensor.h"

#pragma GCC visibility push(default)

namespace gradus::autograd {

// This thread's current stream of a device; 0 where it has none.
uint64_t current_stream(Device device);

// The dtype, shape and device of a function's result, and the device's stream it was made on; or
// the mark of an undefined result, to which only undefined gradients come; or nothing any more.
struct InputMetadata {
  enum class Kind : uint8_t { undefined, known, cleared };
  Kind kind = Kind::undefined;
  DType dtype = DType::f32;
  Device device;
  Sizes shape;
  uint64_t stream = 0;  // of an accelerator's tensor: see device_streams.h

  InputMetadata() = default;
  explicit InputMetadata(const Tensor& t) {
    if (!t.defined()) return;
    kind = Kind::known;
    dtype = t.dtype();
    device = t.device();
    shape = t.layout().shape;
    if (device.kind != DeviceKind::cpu) stream = current_stream(device);
  }
};

}  // namespace gradus::autograd

#pragma GCC visibility pop
