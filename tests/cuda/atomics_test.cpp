// Sums at places that indices name, by atomic additions: on request, and only then.
// SPEC F9: accumulating scatters sum in index order by default, atomics only when asked for.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "devices/cuda/kernels.h"
#include "gradus/state.h"
#include "gradus/text.h"
#include "tests/cuda/corpus.h"
#include "tests/cuda/device.h"
#include "tests/cuda/needs.h"

namespace gradus::fusion::test {
namespace {

// A simulated device, with atomics or without. Its threads come last to first: what is added up in
// the order in which they come has not the CPU's bits.
class Simulated {
 public:
  explicit Simulated(bool atomics) {
    device->backwards = true;
    context_->replace_part<Kernels>(std::make_shared<cuda::CudaKernels>(
        device, KernelOptions{.folder = kernel_folder(), .atomics = atomics}, nullptr));
  }
  std::vector<Tensor> run(const std::shared_ptr<const Code>& code, std::span<const Tensor> inputs) {
    State state(code, context_, {.fusion = FusionMode::first});
    device->most_threads = 0;
    std::vector<Tensor> results = state.run(inputs);
    EXPECT_TRUE(state.host_instructions().empty());
    return results;
  }
  const std::shared_ptr<InterpretedDevice> device = std::make_shared<InterpretedDevice>();

 private:
  const std::shared_ptr<Context> context_ = std::make_shared<Context>(ContextOptions{});
};

std::vector<Tensor> on_cpu(const std::shared_ptr<const Code>& code,
                           std::span<const Tensor> inputs) {
  State state(code, Context::default_context(), {.fusion = FusionMode::off});
  return state.run(inputs);
}

// The text of a stage, with DTYPE filled in.
std::shared_ptr<const Code> code_of(std::string stage, DType d) {
  for (size_t at; (at = stage.find("DTYPE")) != std::string::npos;)
    stage.replace(at, 5, name_of(d));
  return Code::compile(ir::parse("graph g { stage 0 " + stage + " }").program());
}

enum class Values : uint8_t { any, small_integers };

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  Tensor values(DType d, const Sizes& shape, Values kind) {
    return make(d, shape, [&]() -> double {
      if (kind == Values::small_integers || !is_floating(d))
        return std::uniform_int_distribution<int>(d == DType::u8 || d == DType::boolean ? 0 : -3,
                                                  d == DType::boolean ? 1 : 3)(engine_);
      return std::normal_distribution<double>()(engine_);
    });
  }
  Tensor indices(const Sizes& shape, int64_t bound) {
    return make(DType::i64, shape, [&] {
      return static_cast<double>(std::uniform_int_distribution<int64_t>(0, bound - 1)(engine_));
    });
  }
  // Each index once.
  Tensor places(int64_t n) {
    std::vector<double> v(static_cast<size_t>(n));
    std::iota(v.begin(), v.end(), 0);
    std::shuffle(v.begin(), v.end(), engine_);
    return Tensor::from(DType::i64, Sizes{n}, v);
  }

 private:
  template <class Make>
  static Tensor make(DType d, const Sizes& shape, Make one) {
    std::vector<double> v(static_cast<size_t>(numel(shape)));
    std::ranges::generate(v, one);
    return Tensor::from(d, shape, v);
  }
  std::mt19937 engine_;
};

// A stage of %x, indices %i below `bound`, and %v, whose elements are all added to few places.
struct Sum {
  const char* stage;
  Sizes x, i, v;
  int64_t bound = 5;

  std::vector<Tensor> inputs(Random& random, DType d, Values kind) const {
    return {random.values(d, x, kind), random.indices(i, bound), random.values(d, v, kind)};
  }
};

const Sum sums[] = {
    {"(%x: DTYPE[5], %i: i64[1500], %v: DTYPE[1500]) {"
     " %y = scatter_add(%x, %i, %v) {dim = 0} return %y }",
     {5},
     {1500},
     {1500}},
    {"(%x: DTYPE[7, 5], %i: i64[7, 90], %v: DTYPE[7, 90]) {"
     " %y = scatter_add(%x, %i, %v) {dim = 1} return %y }",
     {7, 5},
     {7, 90},
     {7, 90}},
    {"(%x: DTYPE[5, 3], %i: i64[200], %v: DTYPE[200, 3]) {"
     " %y = index_add(%x, %i, %v) {dim = 0} return %y }",
     {5, 3},
     {200},
     {200, 3}},
    {"(%x: DTYPE[2, 5, 6], %i: i64[70], %v: DTYPE[2, 70, 6]) {"
     " %y = index_add(%x, %i, %v) {dim = 1, alpha = 3} return %y }",
     {2, 5, 6},
     {70},
     {2, 70, 6}},
    {"(%x: DTYPE[5, 9], %i: i64[10, 8], %v: DTYPE[10, 8, 9]) {"
     " %y = index_put(%x, %v, %i) {accumulate = true} return %y }",
     {5, 9},
     {10, 8},
     {10, 8, 9}},
};

// Those that have derivatives, by the gradients that add up.
const Sum gradients[] = {
    {"(%x: DTYPE[5, 4], %i: i64[150], %v: DTYPE[150, 4]) {"
     " %y = embedding(%x, %i) %p = mul(%y, %v) %s = sum(%p) %d = grad(%s, %x) return %d }",
     {5, 4},
     {150},
     {150, 4}},
    {"(%x: DTYPE[5, 3], %i: i64[110, 3], %v: DTYPE[110, 3]) {"
     " %y = gather(%x, %i) {dim = 0} %p = mul(%y, %v) %s = sum(%p) %d = grad(%s, %x) return %d }",
     {5, 3},
     {110, 3},
     {110, 3}},
    {"(%x: DTYPE[5, 3], %i: i64[120], %v: DTYPE[120, 3]) {"
     " %y = index_select(%x, %i) {dim = 0} %p = mul(%y, %v) %s = sum(%p) %d = grad(%s, %x)"
     " return %d }",
     {5, 3},
     {120},
     {120, 3}},
};

class Atomics : public testing::TestWithParam<DType> {
 public:
  std::vector<Sum> all() const {
    std::vector<Sum> list(std::begin(sums), std::end(sums));
    if (is_floating(GetParam()))
      list.insert(list.end(), std::begin(gradients), std::end(gradients));
    return list;
  }
};

// Whoever does not ask has the CPU's bits, from one thread for all that meets.
TEST_P(Atomics, AreNotTheDefault) {
  GRADUS_NEEDS_NVRTC();
  EXPECT_FALSE(KernelOptions{}.atomics);
  Simulated device(false);
  Random random(1);
  for (const Sum& sum : all()) {
    const auto code = code_of(sum.stage, GetParam());
    const auto inputs = sum.inputs(random, GetParam(), Values::any);
    EXPECT_TRUE(bitwise_equal(device.run(code, inputs)[0], on_cpu(code, inputs)[0])) << sum.stage;
    EXPECT_LT(device.device->most_threads, static_cast<size_t>(numel(sum.v))) << sum.stage;
  }
}

// A thread for each element, and what is exact in any order is exact.
TEST_P(Atomics, TakeAThreadForEachElement) {
  GRADUS_NEEDS_NVRTC();
  Simulated device(true);
  Random random(2);
  for (const Sum& sum : all()) {
    const auto code = code_of(sum.stage, GetParam());
    for (int round = 0; round < 2; ++round) {
      const auto inputs = sum.inputs(random, GetParam(), Values::small_integers);
      EXPECT_TRUE(bitwise_equal(device.run(code, inputs)[0], on_cpu(code, inputs)[0])) << sum.stage;
      EXPECT_GE(device.device->most_threads, static_cast<size_t>(numel(sum.v))) << sum.stage;
    }
  }
}

// No more than the rounding of another order: twice as many units as there are terms, of the sum of
// their magnitudes. 16-bit floats are added up in f32, and rounded once. Whether bits differ.
template <class Run>
bool differs_by_rounding(const Sum& sum, DType d, Random& random, Run run) {
  const auto code = code_of(sum.stage, d);
  const auto inputs = sum.inputs(random, d, Values::any);
  const Tensor got = run(code, inputs), expected = on_cpu(code, inputs)[0];
  std::vector<Tensor> magnitudes = inputs;
  for (size_t k : {0, 2}) {
    std::vector<double> v = inputs[k].to_doubles();
    for (double& x : v) x = std::fabs(x);
    magnitudes[k] = Tensor::from(d, inputs[k].shape(), v);
  }
  const std::vector<double> a = got.to_doubles(), b = expected.to_doubles(),
                            m = on_cpu(code, magnitudes)[0].to_doubles();
  const double unit = d == DType::f64 ? 0x1p-53 : 0x1p-24, last = d == DType::bf16 ? 0x1p-7 : 0;
  const auto terms = static_cast<double>(numel(sum.i) + 1);
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_LE(std::fabs(a[i] - b[i]), 2 * terms * unit * m[i] + last * std::fabs(b[i]))
        << sum.stage << ' ' << i;
  return !bitwise_equal(got, expected);
}

TEST_P(Atomics, RoundInAnotherOrder) {
  GRADUS_NEEDS_NVRTC();
  if (!is_floating(GetParam())) return;
  Simulated device(true);
  Random random(3);
  bool differs = false;
  for (const Sum& sum : all())
    differs |= differs_by_rounding(sum, GetParam(), random, [&](const auto& code, const auto& in) {
      return device.run(code, in)[0];
    });
  EXPECT_TRUE(differs || GetParam() == DType::bf16);
}

// Where each index is there once, there is one order.
TEST_P(Atomics, HaveTheBitsOfOneAddition) {
  GRADUS_NEEDS_NVRTC();
  const Sum once[] = {
      {"(%x: DTYPE[N], %i: i64[N], %v: DTYPE[N]) {"
       " %y = scatter_add(%x, %i, %v) {dim = 0} return %y }",
       {700},
       {},
       {700}},
      {"(%x: DTYPE[N, 3], %i: i64[N], %v: DTYPE[N, 3]) {"
       " %y = index_add(%x, %i, %v) {dim = 0, alpha = -2} return %y }",
       {300, 3},
       {},
       {300, 3}},
      {"(%x: DTYPE[2, N], %i: i64[N], %v: DTYPE[2, N]) {"
       " %y = index_add(%x, %i, %v) {dim = 1} return %y }",
       {2, 400},
       {},
       {2, 400}},
      {"(%x: DTYPE[N, 2], %i: i64[N], %v: DTYPE[N, 2]) {"
       " %y = index_put(%x, %v, %i) {accumulate = true} return %y }",
       {500, 2},
       {},
       {500, 2}},
  };
  Simulated device(true);
  Random random(4);
  for (const Sum& sum : once) {
    const auto code = code_of(sum.stage, GetParam());
    const std::vector inputs{random.values(GetParam(), sum.x, Values::any),
                             random.places(std::ranges::max(sum.x)),
                             random.values(GetParam(), sum.v, Values::any)};
    EXPECT_TRUE(bitwise_equal(device.run(code, inputs)[0], on_cpu(code, inputs)[0])) << sum.stage;
    EXPECT_GE(device.device->most_threads, static_cast<size_t>(numel(sum.v))) << sum.stage;
  }
}
INSTANTIATE_TEST_SUITE_P(All, Atomics,
                         testing::Values(DType::f64, DType::f32, DType::bf16, DType::i64,
                                         DType::i32),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// There are none of 8 bits, and none that only write: these stay in index order.
TEST(AtomicsAbsent, StayInOrder) {
  GRADUS_NEEDS_NVRTC();
  Simulated device(true);
  Random random(5);
  for (DType d : {DType::i8, DType::u8, DType::boolean}) {
    const auto code = code_of(sums[0].stage, d);
    const auto inputs = sums[0].inputs(random, d, Values::any);
    EXPECT_TRUE(bitwise_equal(device.run(code, inputs)[0], on_cpu(code, inputs)[0])) << name_of(d);
  }
  for (const char* stage : {"(%x: DTYPE[5], %i: i64[1500], %v: DTYPE[1500]) {"
                            " %y = scatter(%x, %i, %v) {dim = 0} return %y }",
                            "(%x: DTYPE[5], %i: i64[1500], %v: DTYPE[1500]) {"
                            " %y = index_put(%x, %v, %i) return %y }"}) {
    const auto code = code_of(stage, DType::f32);
    const auto inputs = sums[0].inputs(random, DType::f32, Values::any);
    EXPECT_TRUE(bitwise_equal(device.run(code, inputs)[0], on_cpu(code, inputs)[0])) << stage;
    EXPECT_LT(device.device->most_threads, size_t{1500}) << stage;
  }
}

// Sums of windows that overlap are of the same kernels.
TEST(AtomicsOfWindows, AreExactWhereSumsAre) {
  GRADUS_NEEDS_NVRTC();
  const char* stage =
      "(%x: DTYPE[3, 40]) { %w = unfold(%x) {dim = 1, size = 8, step = 2} %p = mul(%w, %w)"
      " %s = sum(%p) %d = grad(%s, %x) return %d }";
  Random random(6);
  for (DType d : {DType::f32, DType::bf16}) {
    const auto code = code_of(stage, d);
    const std::vector inputs{random.values(d, {3, 40}, Values::small_integers)};
    const Tensor expected = on_cpu(code, inputs)[0];
    for (bool atomics : {false, true})
      EXPECT_TRUE(bitwise_equal(Simulated(atomics).run(code, inputs)[0], expected)) << atomics;
  }
}

class AtomicsOnGpu : public testing::TestWithParam<const char*> {};

// On the device at hand, if there is one.
TEST_P(AtomicsOnGpu, RoundInAnotherOrder) {
  if (const std::string why = cuda::why_no_device(0); !why.empty()) GTEST_SKIP() << why;
  auto context = std::make_shared<Context>(ContextOptions{});
  cuda::use_device(*context, 0, {.folder = kernel_folder(), .atomics = true});
  Random random(8);
  for (const auto& list : {std::span<const Sum>(sums), std::span<const Sum>(gradients)})
    for (const Sum& sum : list)
      for (DType d : {DType::f64, DType::f32, DType::bf16})
        differs_by_rounding(sum, d, random, [&](const auto& code, const auto& in) {
          State state(code, context, {.fusion = FusionMode::first});
          return state.run(in)[0];
        });
}
INSTANTIATE_TEST_SUITE_P(All, AtomicsOnGpu,
                         testing::Values(cuda::why_no_device(0).empty()
                                             ? "device"
                                             : "skipped_without_a_device"),
                         [](const auto& info) { return std::string(info.param); });

// An index out of range has the words that it has on the CPU.
TEST(AtomicsOfBadIndices, SaySo) {
  GRADUS_NEEDS_NVRTC();
  const auto code = code_of(sums[2].stage, DType::f32);
  Random random(7);
  std::vector inputs = sums[2].inputs(random, DType::f32, Values::any);
  std::vector<double> indices = inputs[1].to_doubles();
  indices[77] = 5;
  inputs[1] = Tensor::from(DType::i64, Sizes{200}, indices);
  auto fault = [&](auto run) -> std::string {
    try {
      run(code, inputs);
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  };
  Simulated device(true);
  const std::string expected = fault(on_cpu);
  EXPECT_NE(expected.find("an index of 5 is out of range"), std::string::npos) << expected;
  EXPECT_EQ(fault([&](const auto& c, const auto& i) { return device.run(c, i); }), expected);
}

}  // namespace
}  // namespace gradus::fusion::test
