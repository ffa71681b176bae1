// Loops on a device that are too many launches to be recorded with their stage.
#include <chrono>
#include <thread>

#include "devices/cuda/kernels.h"
#include "devices/cuda/planned_device.h"
#include "gradus/inputs.h"
#include "gradus/passes.h"
#include "gradus/state.h"
#include "gradus/text.h"
#include "tests/cuda/corpus.h"
#include "tests/cuda/late_device.h"
#include "tests/cuda/needs.h"

namespace gradus::fusion::test {
namespace {

// Two launches a step.
constexpr const char* two_carries = R"(
graph cell {
  stage 0 (%h: f32[H], %c: f32[H], %x: f32[H], %m: f32[H], %w: f32[H, H]) {
    %a = mv(%w, %h)
    %s = add(%a, %x)
    %n = tanh(%s)
    %d = mul(%n, %m)
    %e = sub(%c, %d)
    %k = tanh(%e)
    return %n, %k, %d, %s
  }
}
graph g {
  stage 0 (%h0: f32[H], %c0: f32[H], %xs: f32[T, H], %ms: f32[T, H], %w: f32[H, H]) {
    %h, %c, %ds, %ss = scan(%h0, %c0, %xs, %ms, %w)
      {body = "cell", carries = 2, sequences = 2, reverse = false}
    return %h, %c, %ds, %ss
  }
})";

std::string replaced(std::string text, const std::string& old, const std::string& by) {
  for (size_t at = 0; (at = text.find(old, at)) != std::string::npos; at += by.size())
    text.replace(at, old.size(), by);
  return text;
}

std::string reversed(const std::string& text) {
  return replaced(text, "reverse = false", "reverse = true");
}

Tensor drawn(const Sizes& shape, const std::string& name, uint64_t seed = 1,
             DType dtype = DType::f32) {
  return random_tensor(dtype, shape, name, seed, *Context::default_context());
}

std::vector<Tensor> for_two_carries(int64_t steps, uint64_t seed = 1, DType dtype = DType::f32) {
  return {drawn(Sizes{2}, "h", seed, dtype), drawn(Sizes{2}, "c", seed, dtype),
          drawn(Sizes{steps, 2}, "x", seed, dtype), drawn(Sizes{steps, 2}, "m", seed, dtype),
          drawn(Sizes{2, 2}, "w", seed, dtype)};
}

std::string error_of(State& s, std::span<const Tensor> inputs, const RunOptions& options = {}) {
  try {
    s.run(inputs, options);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

template <class OnDevice>
class LongLoops : public testing::Test {
 public:
  void SetUp() override {
    GRADUS_NEEDS_NVRTC();
    if constexpr (std::is_same_v<OnDevice, LateDevice>)
      device_ = std::make_shared<LateDevice>(0);
    else
      device_ = std::make_shared<InterpretedDevice>();
    context_ = std::make_shared<Context>(ContextOptions{});
    auto kernels = std::make_shared<cuda::CudaKernels>(
        device_, KernelOptions{.folder = GRADUS_CUDA_TEST_KERNELS}, nullptr);
    backend_ = kernels->backend();
    context_->replace_part<Kernels>(std::move(kernels));
  }

  State state(const std::string& text) { return state(ir::parse(text).program()); }
  State state(const ir::Graph& graph) {
    return State(Code::compile(graph), context_, {.fusion = FusionMode::first});
  }
  static State on_cpu(const State& s) {
    return State(s.code(), Context::default_context(), {.fusion = FusionMode::off});
  }

  struct Counts {
    size_t launches, recordings, replays;
  };
  Counts counts() const { return {device_->launches, device_->recordings, device_->replays}; }
  Counts since(const Counts& before) const {
    return {device_->launches - before.launches, device_->recordings - before.recordings,
            device_->replays - before.replays};
  }

  // All stages, as on the CPU; results are the next one's inputs. What the device was asked for.
  Counts expect_same(State& s, std::vector<Tensor> inputs, const RunOptions& options = {}) {
    State cpu = on_cpu(s);
    const Counts before = counts();
    s.restart();
    for (size_t stage = 0; stage < s.code()->stages(); ++stage) {
      const auto expected = cpu.run(inputs), found = s.run(inputs, options);
      EXPECT_EQ(found.size(), expected.size());
      for (size_t r = 0; r < found.size(); ++r)
        EXPECT_TRUE(bitwise_equal(found[r], expected[r])) << "stage " << stage << " result " << r;
      inputs = expected;
    }
    return since(before);
  }

  std::shared_ptr<OnDevice> device_;
  std::shared_ptr<Context> context_;
  std::shared_ptr<devices::Backend> backend_;
};

using CudaLongLoops = LongLoops<InterpretedDevice>;
using CudaLateLongLoops = LongLoops<LateDevice>;

// Just above what a stage records, odd and even, with steps left over and without.
// SPEC L9
TEST_F(CudaLongLoops, AreFewLaunches) {
  State s = state(two_carries), backwards = state(reversed(two_carries));
  for (int64_t steps : {2048, 2049, 2050, 2171})
    for (State* one : {&s, &backwards}) {
      if (steps % 2 != (one == &s)) continue;
      const Counts asked = expect_same(*one, for_two_carries(steps));
      EXPECT_EQ(asked.recordings, 1u) << steps;
      EXPECT_GE(asked.replays, 4u) << steps;
      EXPECT_LE(asked.replays, 8u) << steps;
      EXPECT_LE(asked.launches, 100u) << steps;
    }
}

// Just below.
TEST_F(CudaLongLoops, AreLaunchedWithTheirStageIfTheyAreShorter) {
  State s = state(two_carries);
  for (size_t run = 0; run < 3; ++run) {
    const Counts asked = expect_same(s, for_two_carries(2046));
    EXPECT_EQ(asked.recordings, run == 1 ? 1u : 0u);
    EXPECT_EQ(asked.replays, run > 0 ? 1u : 0u);
  }
}

TEST_F(CudaLongLoops, OfDoubles) {
  State s = state(replaced(reversed(two_carries), "f32", "f64"));
  const Counts asked = expect_same(s, for_two_carries(2053, 1, DType::f64));
  EXPECT_EQ(asked.recordings, 1u);
  EXPECT_LE(asked.launches, 100u);
}

// A run records for its own memory.
TEST_F(CudaLongLoops, RunAgainOnOtherMemory) {
  State s = state(two_carries);
  State cpu = on_cpu(s);
  std::vector<std::vector<Tensor>> kept;
  for (uint64_t run = 0; run < 3; ++run) {
    const auto inputs = for_two_carries(2060, run);
    std::vector<Tensor> there;
    for (const Tensor& t : inputs) there.push_back(to_device(backend_, t));
    s.restart();
    cpu.restart();
    RunOptions stay;
    stay.results_on_device = true;
    const auto found = s.run(there, stay), expected = cpu.run(inputs);
    for (size_t r = 0; r < found.size(); ++r)
      EXPECT_TRUE(bitwise_equal(to_host(*backend_, found[r], *context_), expected[r])) << r;
    kept.push_back(there);
    kept.push_back(found);
  }
  EXPECT_EQ(device_->recordings, 3u);
}

// One launch a step, and no slices.
TEST_F(CudaLongLoops, WithoutSequences) {
  const std::string text = R"(
graph turn {
  stage 0 (%x: f32[2], %y: f32[2]) {
    %a = mul(%y, 0.1)
    %s = sub(%x, %a)
    %b = mul(%x, 0.1)
    %t = add(%y, %b)
    return %s, %t
  }
}
graph g {
  stage 0 (%x0: f32[2], %y0: f32[2]) {
    %x, %y = scan(%x0, %y0) {body = "turn", carries = 2, length = N}
    return %x, %y
  }
})";
  for (int64_t steps : {4097, 5000}) {
    State s = state(replaced(text, "length = N", fmt::format("length = {}", steps)));
    const Counts asked = expect_same(s, {drawn(Sizes{2}, "x"), drawn(Sizes{2}, "y")});
    EXPECT_EQ(asked.recordings, 1u);
    EXPECT_LE(asked.launches, 600u);
  }
}

// The same slice for all steps, slices that repeat an element, results that are no kernel's.
TEST_F(CudaLongLoops, TakeSlicesThatRepeat) {
  State s = state(R"(
graph cell {
  stage 0 (%h: f32[H], %x: f32[H], %y: f32[H], %z: f32[H], %w: f32[H, H]) {
    %a = mv(%w, %h)
    %b = mul(%x, %y)
    %c = add(%a, %b)
    %n = tanh(%c)
    return %n, %z, %h
  }
}
graph g {
  stage 0 (%h0: f32[H], %x: f32[H], %y: f32[T, 1], %zs: f32[T, H], %w: f32[H, H]) {
    %xs = expand(%x) {shape = [T, H]}
    %ys = expand(%y) {shape = [T, H]}
    %h, %copies, %before = scan(%h0, %xs, %ys, %zs, %w) {body = "cell", carries = 1, sequences = 3}
    return %h, %copies, %before
  }
})");
  const Counts asked =
      expect_same(s, {drawn(Sizes{3}, "h"), drawn(Sizes{3}, "x"), drawn(Sizes{1500, 1}, "y"),
                      drawn(Sizes{1500, 3}, "z"), drawn(Sizes{3, 3}, "w")});
  EXPECT_EQ(asked.recordings, 1u);
  EXPECT_LE(asked.launches, 150u);
}

// Slices with gaps are copied without.
TEST_F(CudaLongLoops, TakeSlicesWithGaps) {
  State s = state(R"(
graph cell {
  stage 0 (%h: f32[B, H], %x: f32[B, H], %w: f32[H, H]) {
    %a = matmul(%h, %w)
    %s = add(%a, %x)
    %n = tanh(%s)
    return %n, %s
  }
}
graph g {
  stage 0 (%h0: f32[B, H], %batch: f32[B, T, H], %w: f32[H, H]) {
    %xs = permute(%batch) {dims = [1, 0, 2]}
    %h, %ss = scan(%h0, %xs, %w) {body = "cell", carries = 1, sequences = 1, reverse = true}
    return %h, %ss
  }
})");
  const std::vector inputs{drawn(Sizes{3, 2}, "h"), drawn(Sizes{3, 2099, 2}, "x"),
                           drawn(Sizes{2, 2}, "w")};
  const Counts asked = expect_same(s, inputs);
  EXPECT_EQ(asked.recordings, 1u);
  EXPECT_LE(asked.launches, 200u);
}

// The backward loop is a loop.
TEST_F(CudaLongLoops, HaveDerivatives) {
  State s = state(ir::differentiate(ir::parse(two_carries).program(), {.order = 1}));
  const Counts asked = expect_same(s, for_two_carries(2070));
  EXPECT_EQ(asked.recordings, 2u);
  EXPECT_LE(asked.launches, 500u);
}

constexpr const char* nested = R"(
graph inner {
  stage 0 (%h: f32[H], %w: f32[H, H], %x: f32[H]) {
    %a = mv(%w, %h)
    %s = add(%a, %x)
    %n = tanh(%s)
    return %n
  }
}
graph outer {
  stage 0 (%h: f32[H], %x: f32[H], %w: f32[H, H]) {
    %n = scan(%h, %w, %x) {body = "inner", carries = 1, length = N}
    %y = mul(%n, %x)
    return %n, %y
  }
}
graph g {
  stage 0 (%h0: f32[H], %xs: f32[T, H], %w: f32[H, H]) {
    %h, %ys = scan(%h0, %xs, %w) {body = "outer", carries = 1, sequences = 1}
    return %h, %ys
  }
})";

// Of steps that are loops, the outer one has chunks while several of its steps can be recorded, and
// else the inner one.
TEST_F(CudaLongLoops, OfLoops) {
  auto run = [&](int64_t outer, int64_t inner) {
    State s = state(replaced(nested, "length = N", fmt::format("length = {}", inner)));
    return expect_same(
        s, {drawn(Sizes{2}, "h"), drawn(Sizes{outer, 2}, "x"), drawn(Sizes{2, 2}, "w")});
  };
  Counts asked = run(23, 100);
  EXPECT_EQ(asked.recordings, 1u);
  EXPECT_LE(asked.launches, 700u);
  asked = run(5, 500);
  EXPECT_EQ(asked.recordings, 1u);
  EXPECT_EQ(asked.replays, 2u);
  asked = run(2, 2050);
  EXPECT_EQ(asked.recordings, 2u);
  EXPECT_LE(asked.launches, 500u);
}

// What a step finds wrong is looked at after it.
TEST_F(CudaLongLoops, WhoseStepsMayFailAreAskedForOneByOne) {
  State s = state(R"(
graph pick {
  stage 0 (%h: f32[4], %i: i64[1]) {
    %y = index_select(%h, %i) {dim = 0}
    %t = add(%h, %y)
    %n = tanh(%t)
    return %n, %y
  }
}
graph g {
  stage 0 (%h0: f32[4], %is: i64[T, 1]) {
    %h, %ys = scan(%h0, %is) {body = "pick", carries = 1, sequences = 1}
    return %h, %ys
  }
})");
  std::vector<double> indices(2100);
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<double>(i % 4);
  auto inputs = [&] {
    return std::vector{drawn(Sizes{4}, "h"), Tensor::from(DType::i64, Sizes{2100, 1}, indices)};
  };
  EXPECT_EQ(expect_same(s, inputs()).recordings, 0u);
  indices[1234] = 4;
  State cpu = on_cpu(s);
  s.restart();
  const std::string expected = error_of(cpu, inputs());
  EXPECT_NE(expected.find("step 1234 of 'pick'"), std::string::npos) << expected;
  EXPECT_EQ(error_of(s, inputs()), expected);
}

// So is a step in which data decide.
TEST_F(CudaLongLoops, WhoseStepsAskTheHostAreAskedForOneByOne) {
  State s = state(R"(
graph small {
  stage 0 (%h: f32[2]) {
    %s = sum(%h)
    %p = lt(%s, 1.0)
    return %p
  }
}
graph grow {
  stage 0 (%h: f32[2]) {
    %n = add(%h, 0.75)
    return %n
  }
}
graph step {
  stage 0 (%h: f32[2], %x: f32[2]) {
    %g = while(%h) {condition = "small", body = "grow", carries = 1, max_trips = 9}
    %n = mul(%g, %x)
    %t = tanh(%n)
    return %t
  }
}
graph g {
  stage 0 (%h0: f32[2], %xs: f32[T, 2]) {
    %h = scan(%h0, %xs) {body = "step", carries = 1, sequences = 1}
    return %h
  }
})");
  const Counts asked = expect_same(s, {drawn(Sizes{2}, "h"), drawn(Sizes{1200, 2}, "x")});
  EXPECT_EQ(asked.recordings, 0u);
}

// Limits are looked at before each chunk, when the one before is done.
TEST_F(CudaLongLoops, EndAtACancellationOrADeadline) {
  State s = state(two_carries);
  const auto inputs = for_two_carries(2100);
  CancelToken token;
  RunOptions options;
  options.cancel = &token;
  const size_t waited = device_->synchronized;
  Counts asked = expect_same(s, inputs, options);
  EXPECT_EQ(asked.recordings, 1u);
  EXPECT_GE(device_->synchronized, waited + asked.replays);

  const Counts before = counts();
  device_->replaying = [&] {
    if (since(before).replays == 2) token.cancel();
  };
  s.restart();
  const std::string cancelled = error_of(s, inputs, options);
  EXPECT_NE(cancelled.find("was cancelled in stage 0, before instruction 0"), std::string::npos)
      << cancelled;
  EXPECT_EQ(since(before).replays, 3u);

  options = {};
  options.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  device_->replaying = [&] { std::this_thread::sleep_until(*options.deadline); };
  s.restart();
  const std::string late = error_of(s, inputs, options);
  EXPECT_NE(late.find("passed its deadline"), std::string::npos) << late;
  EXPECT_LE(since(before).replays, 4u);
}

// Slices of a chunk are few where they are large, and none where it would save little.
TEST_F(CudaLongLoops, TakeLittleMemory) {
  auto context = std::make_shared<Context>(ContextOptions{});
  cuda::plan_for_device(*context, 0);
  State s(Code::compile(ir::parse(two_carries).program()), context, {.fusion = FusionMode::first});
  constexpr size_t mebibyte = 1 << 20;
  const size_t some = s.prepare({{"T", 3000}, {"H", 1 << 14}})[0].buffer;
  EXPECT_GE(some, 32 * mebibyte);
  EXPECT_LE(some, 65 * mebibyte);
  EXPECT_LE(s.prepare({{"T", 3000}, {"H", 1 << 18}})[0].buffer, 8 * mebibyte);
}

class StepsTold final : public InstructionObserver {
 public:
  void before(size_t, size_t) override {}
  void after(size_t, size_t) override {}
  void after_in_step(const StepPoint& at) override { last = at.step, ++told; }
  size_t told = 0;
  int64_t last = -1;
};

TEST_F(CudaLongLoops, AreObservedStepByStep) {
  State s = state(two_carries);
  StepsTold told;
  RunOptions options;
  options.observer = &told;
  const Counts asked = expect_same(s, for_two_carries(2100), options);
  EXPECT_EQ(asked.recordings, 0u);
  EXPECT_EQ(told.last, 2099);
  EXPECT_EQ(told.told % 2100, 0u);
}

// A run ends before the device has done anything: what is recorded is let go, and its memory is the
// next run's.
TEST_F(CudaLateLongLoops, AreDoneInTheirOrder) {
  State s = state(two_carries);
  State other = state(reversed(two_carries));
  State cpu = on_cpu(s), other_cpu = on_cpu(other);
  RunOptions stay;
  stay.results_on_device = true;
  const auto inputs = for_two_carries(2100, 1), more = for_two_carries(2100, 2);
  auto first = s.run(inputs, stay);
  s.restart();
  auto second = s.run(more, stay);
  auto third = other.run(std::vector{first[0], second[1], inputs[2], more[3], inputs[4]}, stay);
  const size_t replays = device_->replays;
  const auto expected = cpu.run(inputs);
  cpu.restart();
  const auto expected_second = cpu.run(more);
  const auto expected_third =
      other_cpu.run(std::vector{expected[0], expected_second[1], inputs[2], more[3], inputs[4]});
  auto expect = [&](const std::vector<Tensor>& found, const std::vector<Tensor>& wanted) {
    for (size_t r = 0; r < found.size(); ++r)
      EXPECT_TRUE(bitwise_equal(to_host(*backend_, found[r], *context_), wanted[r])) << r;
  };
  expect(third, expected_third);
  expect(second, expected_second);
  expect(first, expected);
  EXPECT_EQ(device_->recordings, 3u);
  EXPECT_GT(device_->replays, replays);
}

}  // namespace
}  // namespace gradus::fusion::test
