// An accelerator for tests: two devices of kind `other` whose memory is the host's and whose
// streams are threads that wait a little, at random, before each piece of work. Work that is not
// ordered by an event therefore meets memory that is not written yet, or is poisoned with NaN after
// its tensor died: a missing synchronisation shows as a wrong number.
#pragma once

#include "autograd/device_streams.h"

namespace gradus::autograd::testing {

class Loopback final : public DeviceStreams {
 public:
  static constexpr int count = 2;
  static Device device(int i) { return {DeviceKind::other, static_cast<uint16_t>(i)}; }
  // The one of this process, registered on first use; its seed is GRADUS_TEST_SEED or random, and
  // printed.
  static Loopback& get();
  ~Loopback() override;

  int devices() const override { return count; }
  Stream current(Device device) override;
  void set_current(Device device, Stream stream) override;
  void wait(Device device, Stream from, Device to_device, Stream to) override;
  void record_use(const Tensor& tensor, Stream stream) override;
  SmallVector<Tensor, 2> evaluate(const ir::Operator& op, const ir::Attributes& attributes,
                                  std::span<const ops::EagerOperand> operands) override;
  Tensor copy_to(const Tensor& tensor, Device device) override;

  // A stream of its own.
  Stream new_stream(Device device);
  // Queues work on the current stream.
  void enqueue(Device device, std::function<void()> work);
  // The host waits for everything that was queued on any stream.
  void drain();

 private:
  Loopback();
  struct Queue;
  struct Block;
  struct Operand;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A leaf on a device; and a variable's values, read on the current stream.
Variable device_leaf(int device, std::initializer_list<double> values, bool requires_grad = true);
std::vector<double> device_values(const Variable& v);

}  // namespace gradus::autograd::testing
