// The interface of autograd to accelerators: streams of work for which the host does not wait, and
// the evaluation of operators.
#pragma once

#include <memory>
#include <vector>

#include "gradus/value.h"
#include "gradus/variable.h"

#pragma GCC visibility push(default)

namespace gradus::autograd {

// The number of a stream of a device. 0 is the default stream.
using Stream = uint64_t;

// The streams and operators of one kind of device. Must be thread-safe. The current stream is a
// property of a thread and a device.
class DeviceStreams {
 public:
  virtual ~DeviceStreams() = default;
  virtual int devices() const = 0;
  virtual Stream current(Device device) = 0;
  virtual void set_current(Device device, Stream stream) = 0;
  // Makes later work of stream `to` wait for the work that stream `from` has been given. The host
  // does not wait.
  virtual void wait(Device device, Stream from, Device to_device, Stream to) = 0;
  // Keeps the memory of the tensor until `stream` has finished the work that it has been given.
  virtual void record_use(const Tensor& tensor, Stream stream) = 0;
  // Runs an operator on tensors of a device of this kind, on its current stream. Throws Error for
  // operands that the type rule or the kernel rejects.
  virtual SmallVector<Tensor, 2> evaluate(const ir::Operator& op, const ir::Attributes& attributes,
                                          std::span<const ops::EagerOperand> operands) = 0;
  // Copies a tensor to or from a device of this kind, on the current stream of the device. A copy
  // between two devices waits for earlier work of the source's stream, and later work of that
  // stream waits for the copy. A copy to the CPU is complete on return.
  virtual Tensor copy_to(const Tensor& tensor, Device device) = 0;
};

// Registers a kind of device, once for the process. Throws Error for `cpu` and for a registered
// kind. device_streams returns null for a kind that is not registered, and for `cpu`.
void register_device_streams(DeviceKind kind, std::shared_ptr<DeviceStreams> streams);
DeviceStreams* device_streams(DeviceKind kind);

// Returns the variable on another device; the variable itself if it is there. Differentiable.
// Throws Error for a kind of device that is not registered.
Variable move_to(const Variable& v, Device device);

// The current streams of this thread, for another thread that works for it.
using Streams = std::vector<std::pair<Device, Stream>>;
Streams current_streams();

// Sets the current streams of this thread until the end of the scope.
class StreamsGuard {
 public:
  explicit StreamsGuard(const Streams& streams);
  ~StreamsGuard();
  StreamsGuard(const StreamsGuard&) = delete;

 private:
  Streams saved_;
};

// Sets the current stream of this thread until the end of the scope.
class StreamGuard {
 public:
  StreamGuard(Device device, Stream stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;

 private:
  Device device_;
  DeviceStreams* streams_;
  Stream saved_ = 0;
};

}  // namespace gradus::autograd

#pragma GCC visibility pop
