// What autograd has to know of an accelerator: streams of work that the host does not wait for, and
// how its operators run.
#pragma once

#include <memory>
#include <vector>

#include "gradus/value.h"
#include "gradus/variable.h"

#pragma GCC visibility push(default)

namespace gradus::autograd {

// A stream's number on its device; 0 is the default one.
using Stream = uint64_t;

// One kind of accelerator. Thread-safe; streams are current per thread and device.
class DeviceStreams {
 public:
  virtual ~DeviceStreams() = default;
  virtual int devices() const = 0;
  virtual Stream current(Device device) = 0;
  virtual void set_current(Device device, Stream stream) = 0;
  // All that `from` has been given so far is done before what `to` is given from now on. The host
  // does not wait.
  virtual void wait(Device device, Stream from, Device to_device, Stream to) = 0;
  // The tensor's memory is in use by `stream` until what that has been given so far is done.
  virtual void record_use(const Tensor& tensor, Stream stream) = 0;
  // Runs an operator on tensors of one of these devices, on its current stream; throws Error as
  // ops::evaluate does.
  virtual SmallVector<Tensor, 2> evaluate(const ir::Operator& op, const ir::Attributes& attributes,
                                          std::span<const ops::EagerOperand> operands) = 0;
  // A copy of a tensor, which lies on one of these devices or is to, made on the current stream of
  // that device; between two devices after what the tensor's was given so far, and before what that
  // is given from now on. A copy on the CPU is
  // there when this returns.
  virtual Tensor copy_to(const Tensor& tensor, Device device) = 0;
};

// Each kind once for the process; null for a kind that nobody registered (no accelerator: cpu).
void register_device_streams(DeviceKind kind, std::shared_ptr<DeviceStreams> streams);
DeviceStreams* device_streams(DeviceKind kind);

// The same values on another device; differentiable. Throws Error for a kind that nobody
// registered.
Variable move_to(const Variable& v, Device device);

// The current streams of this thread, for another one that works in its place.
using Streams = std::vector<std::pair<Device, Stream>>;
Streams current_streams();

// Makes these the current streams of this thread until the end of the scope.
class StreamsGuard {
 public:
  explicit StreamsGuard(const Streams& streams);
  ~StreamsGuard();
  StreamsGuard(const StreamsGuard&) = delete;

 private:
  Streams saved_;
};

// Makes a stream the current one of this thread until the end of the scope.
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
