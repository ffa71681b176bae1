// Tensors of a device handed to other libraries and taken from them: whose streams wait for whose,
// and who keeps memory for how long.
#include "gradus/dlpack.h"

#include "gradus/apply.h"
#include "gradus/state.h"
#include "gradus/text.h"
#include "tests/autograd/support.h"
#include "tests/cuda/engine.h"
#include "tests/cuda/needs.h"

namespace gradus::fusion::test {
namespace {

using autograd::StreamGuard;
using autograd::Variable;
using autograd::testing::op;

// Streams of another library, of which ours have no number.
constexpr cuda::StreamNumber theirs = 900;
constexpr uintptr_t native_of_theirs = InterpretedDevice::first_native + theirs;

class CudaDLPack : public testing::Test {
 public:
  void SetUp() override {
    GRADUS_NEEDS_NVRTC();
    device_ = EngineDevices::get().devices[0];
  }
  Variable leaf(const std::vector<double>& values) {
    return Variable(
        there(Tensor::from(DType::f64, Sizes{static_cast<int64_t>(values.size())}, values), cuda0));
  }
  // What the other library sees on its stream.
  std::vector<double> read_theirs(const DLTensor& t) {
    std::vector<double> values(static_cast<size_t>(t.shape[0]));
    device_->copy_to_host(values.data(), reinterpret_cast<cuda::Address>(t.data),
                          values.size() * sizeof(double), theirs);
    return values;
  }
  std::shared_ptr<LateDevice> device_;
};

// The other library's memory on the device, written by its stream.
struct Theirs {
  Theirs(LateDevice& on, std::vector<double> values) : device(on) {
    shape[0] = static_cast<int64_t>(values.size());
    address = device.allocate(values.size() * sizeof(double));
    device.copy_to_device(address, values.data(), values.size() * sizeof(double), theirs);
    managed.version = {1, 0};
    managed.dl_tensor = {
        reinterpret_cast<void*>(address), {kDLCUDA, 0}, 1, {kDLFloat, 64, 1}, shape, nullptr, 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* self) {
      auto* t = static_cast<Theirs*>(self->manager_ctx);
      t->device.free(t->address);
      t->freed = true;
    };
  }
  LateDevice& device;
  cuda::Address address;
  int64_t shape[1];
  DLManagedTensorVersioned managed{};
  bool freed = false;
};

TEST_F(CudaDLPack, TheirStreamWaitsForOurs) {
  for (const bool waits : {true, false}) {
    StreamGuard guard(cuda0, new_stream(cuda0));
    DLManagedTensorVersioned* out = nullptr;
    {
      const Variable y = op("mul", {leaf({1, 2, 3}), ir::Number::of(2.0)});
      out = to_dlpack(y.data(), true);
    }
    EXPECT_EQ(out->dl_tensor.device.device_type, kDLCUDA);
    EXPECT_EQ(out->dl_tensor.device.device_id, 0);
    if (waits) let_wait(cuda0, native_of_theirs);
    // Memory that is used again has other values before, and fresh memory none.
    bool wrong = false;
    try {
      wrong = read_theirs(out->dl_tensor) != std::vector<double>{2, 4, 6};
    } catch (const std::exception&) {
      wrong = true;
    }
    EXPECT_EQ(wrong, !waits);
    device_->synchronize(static_cast<cuda::StreamNumber>(
        autograd::device_streams(DeviceKind::cuda)->current(cuda0)));
    out->deleter(out);
  }
}

TEST_F(CudaDLPack, OursWaitsForTheirs) {
  StreamGuard guard(cuda0, new_stream(cuda0));
  Theirs t(*device_, {1, 2, 5});
  // As a producer does with the stream that its __dlpack__ is given.
  device_->let_wait(native_stream(cuda0), theirs);
  Tensor x = from_dlpack(&t.managed);
  EXPECT_EQ(x.device(), cuda0);
  EXPECT_EQ(reinterpret_cast<cuda::Address>(x.data()), t.address);
  const Variable leaf(x, true);
  const Variable y = op("mul", {leaf, leaf});
  const Variable d = autograd::grad(std::array{op("sum", {y})}, std::array{leaf})[0];
  EXPECT_EQ(here(d.data()).to_doubles(), (std::vector<double>{2, 4, 10}));
  EXPECT_FALSE(t.freed);
}

// Work of ours is late; it has read the memory before that is theirs again.
TEST_F(CudaDLPack, TheirMemoryGoesWhenOurStreamsAreDone) {
  StreamGuard guard(cuda0, new_stream(cuda0));
  Theirs t(*device_, {1, 2, 5});
  device_->let_wait(native_stream(cuda0), theirs);
  Variable y = op("exp", {Variable(from_dlpack(&t.managed))});
  EXPECT_TRUE(t.freed);
  const Variable expected = op("exp", {leaf({1, 2, 5})});
  EXPECT_TRUE(bitwise_equal(here(y.data()), here(expected.data())));
}

// What came in goes out again, and a program takes it as its input.
TEST_F(CudaDLPack, ProgramsReadTheirMemory) {
  const auto& context = EngineDevices::get().contexts[0];
  Theirs t(*device_, {0, 1, 2});
  device_->let_wait(native_stream(cuda0), theirs);
  {
    State s(Code::compile(
                ir::parse("graph g { stage 0 (%x: f64[N]@cuda:0) { %y = neg(%x) return %y } }")
                    .program()),
            context, {.fusion = FusionMode::first});
    device_->synchronize(theirs);
    const size_t copies = device_->copies_in;
    const Tensor y = s.run(std::vector{from_dlpack(&t.managed)})[0];
    EXPECT_EQ(y.device(), cuda0);
    device_->synchronize(0);
    EXPECT_EQ(device_->copies_in, copies);
    Tensor back = from_dlpack(to_dlpack(y));
    EXPECT_EQ(back.data(), y.data());
    EXPECT_EQ(here(back).to_doubles(), (std::vector<double>{0, -1, -2}));
  }
  EXPECT_TRUE(t.freed);
}

}  // namespace
}  // namespace gradus::fusion::test
