// Two simulated devices that the autograd engine runs on, and derivatives by it here and there.
#pragma once

#include "devices/cuda/kernels.h"
#include "gradus/apply.h"
#include "gradus/engine.h"
#include "gradus/inputs.h"
#include "interpreter/device_kernels.h"
#include "tests/cuda/corpus.h"
#include "tests/cuda/late_device.h"

namespace gradus::fusion::test {

constexpr Device cuda0{DeviceKind::cuda, 0}, cuda1{DeviceKind::cuda, 1};

// cuda:0 and cuda:1 of this process, which do as late as they may what they are asked for: used by
// contexts of their own since they were first asked for.
struct EngineDevices {
  std::vector<std::shared_ptr<LateDevice>> devices;
  std::vector<std::shared_ptr<Context>> contexts;

  static EngineDevices& get() {
    static EngineDevices& both = *new EngineDevices;  // engines' threads may ask at the end
    return both;
  }

 private:
  EngineDevices() {
    for (int i = 0; i < 2; ++i) {
      devices.push_back(std::make_shared<LateDevice>(i));
      contexts.push_back(std::make_shared<Context>());
      use_device(*contexts.back(),
                 std::make_shared<cuda::CudaKernels>(
                     devices.back(), KernelOptions{.folder = kernel_folder()}, nullptr));
    }
  }
};

inline Tensor there(const Tensor& t, Device device) {
  return autograd::move_to(autograd::Variable(t), device).data();
}
inline Tensor here(const Tensor& t) {
  return t.defined() ? autograd::move_to(autograd::Variable(t), Device()).data() : t;
}
inline Tensor random(DType dtype, const Sizes& shape, std::string_view name, uint64_t seed) {
  return random_tensor(dtype, shape, name, seed, *Context::default_context());
}

using Function = std::function<autograd::Variables(std::span<const autograd::Variable>)>;

// The results of `f`, then of its derivatives up to an order with random cotangents, all of them
// here; undefined where there are none. Everything is done on the device; every tensor that is made
// has to lie there.
std::vector<Tensor> derivatives(const Function& f, std::span<const Tensor> inputs, int order,
                                Device device, uint64_t seed = 7);

// What differs in a bit between two such lists; empty if nothing does. NaN is NaN.
std::string difference(std::span<const Tensor> a, std::span<const Tensor> b);

}  // namespace gradus::fusion::test
