// What every backend does, of the CPU and of the tests' own.
#include "tests/loopback/backend.h"

#include <gtest/gtest.h>

namespace gradus::loopback {
namespace {

using devices::Backend;

std::vector<std::shared_ptr<Backend>> backends() {
  return {devices::cpu(), std::make_shared<LoopbackBackend>(0, 7)};
}

Tensor some_values() {
  const std::vector<double> values{1, -2, 3.5, 4, 5, -6.25};
  return Tensor::from(DType::f64, std::vector<int64_t>{2, 3}, values);
}

void expect_equal(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.layout(), b.layout());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.storage()->bytes()), 0);
}

TEST(Backends, CopyToTheirMemoryAndBack) {
  for (const auto& backend : backends()) {
    const Tensor x = some_values(), there = devices::to_device(backend, x);
    EXPECT_EQ(there.device(), backend->device());
    Tensor back = Tensor::empty(DType::f64, x.shape());
    backend->to_host(back.mutable_data(), there.data(), back.storage()->bytes());
    expect_equal(back, x);
  }
}

TEST(Backends, AlignMemory) {
  for (const auto& backend : backends())
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{1000}}) {
      std::byte* memory = backend->allocate(bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 256, 0u);
      backend->release(memory);
    }
}

TEST(Backends, TakeOnesOtherMemory) {
  const Tensor x = some_values();
  const auto loopback = std::make_shared<LoopbackBackend>(0, 7);
  const Tensor there = devices::to_device(loopback, x);
  expect_equal(devices::to_device(devices::cpu(), *loopback, there), x);
}

TEST(Backends, MakeCodeForWork) {
  work::Range range;
  range.dtype = DType::i64, range.count = 5, range.start = 3, range.step = -2;
  const Tensor expected =
      Tensor::from(DType::i64, std::vector<int64_t>{5}, std::vector<double>{3, 1, -1, -3, -5});
  for (const auto& backend : backends()) {
    devices::DeviceCode code;
    while (!code.kernel.run)
      code = backend->make(range, 1, true);  // the tests' gives some by chance
    EXPECT_TRUE(code.later.empty());
    const Tensor y = devices::device_tensor(backend, expected.layout());
    std::byte* args[] = {y.storage()->data()};
    Context context;
    work::KernelScope scope{context.workers(), nullptr};
    code.kernel.run(code.kernel.parameters.get(), args, scope);
    const Backend::Stream other = 2;  // which is told to wait
    backend->wait(other, backend->mark(backend->stream()));
    backend->synchronize(other);
    Tensor back = Tensor::empty(DType::i64, expected.shape());
    backend->to_host(back.mutable_data(), y.data(), back.storage()->bytes());
    expect_equal(back, expected);
  }
}

TEST(Backends, RunStatesOfContextsThatNameNone) {
  Context context;
  EXPECT_EQ(fusion::kernels_of(context)->backend(), devices::cpu());
}

}  // namespace
}  // namespace gradus::loopback
