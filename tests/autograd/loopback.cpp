#include "tests/autograd/loopback.h"

#include <cstdio>
#include <cstdlib>

#include "interpreter/device_kernels.h"

namespace gradus::autograd::testing {

namespace {

using Backends = std::vector<std::shared_ptr<loopback::LoopbackBackend>>;

// They live as long as the process: engines' threads may ask at its end.
Backends& backends() {
  static Backends& all = []() -> Backends& {
    const char* given = std::getenv("GRADUS_TEST_SEED");
    const uint64_t seed = given ? std::strtoull(given, nullptr, 10) : std::random_device()();
    std::printf("loopback: GRADUS_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
    auto& fresh = *new Backends;
    for (uint16_t i = 0; i < Loopback::count; ++i) {
      fresh.push_back(std::make_shared<loopback::LoopbackBackend>(i, seed));
      use_device(*std::make_shared<Context>(),
                 std::make_shared<loopback::LoopbackKernels>(fresh.back()));
    }
    return fresh;
  }();
  return all;
}

}  // namespace

DeviceStreams& Loopback::get() {
  backends();
  return *device_streams(DeviceKind::other);
}

void Loopback::drain() {
  for (const auto& backend : backends()) backend->drain();
}

Variable device_leaf(int device, std::initializer_list<double> values, bool requires_grad) {
  Tensor host = Tensor::from(DType::f64, Sizes{static_cast<int64_t>(values.size())},
                             std::vector<double>(values));
  return Variable(Loopback::get().copy_to(host, Loopback::device(device)), requires_grad);
}
std::vector<double> device_values(const Variable& v) {
  return Loopback::get().copy_to(v.data(), Device()).to_doubles();
}

}  // namespace gradus::autograd::testing
