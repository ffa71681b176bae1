// Variables on the loopback devices (tests/loopback/backend.h), which the engine runs on.
#pragma once

#include "gradus/device_streams.h"
#include "tests/loopback/backend.h"

namespace gradus::autograd::testing {

class Loopback {
 public:
  static constexpr int count = loopback::LoopbackBackend::devices;
  static Device device(int i) { return {DeviceKind::other, static_cast<uint16_t>(i)}; }
  // The devices of this process, used since they were first asked for; their seed is
  // GRADUS_TEST_SEED or random, and printed.
  static DeviceStreams& get();
  // The host waits for everything that was queued on any stream.
  static void drain();
};

// A leaf on a device; and a variable's values, read on the current stream.
Variable device_leaf(int device, std::initializer_list<double> values, bool requires_grad = true);
std::vector<double> device_values(const Variable& v);

}  // namespace gradus::autograd::testing
