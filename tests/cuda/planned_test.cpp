// Plans for a device that is not there are those that it would run by.
#include "devices/cuda/kernels.h"
#include "devices/cuda/planned_device.h"
#include "gradus/state.h"
#include "gradus/text.h"
#include "tests/cuda/corpus.h"
#include "tests/cuda/device.h"
#include "tests/cuda/needs.h"

namespace gradus::fusion::test {
namespace {

constexpr const char* program = R"(graph g {
  stage 0 (%x: f32[N, N]@cuda:3, %i: i64[N]) {
    %h = mul(%x, %x)
    %s = softmax(%h) {dim = 1}
    %m = matmul(%s, %x)
    %v = cholesky(%m)
    %y = index_select(%v, %i) {dim = 0}
    return %y
  }
})";

std::shared_ptr<Context> planned(int number) {
  auto context = std::make_shared<Context>(ContextOptions{});
  cuda::plan_for_device(*context, number);
  return context;
}

TEST(PlannedDevice, TakesProgramsThatNameIt) {
  const auto code = Code::compile(ir::parse(program).program());
  State s(code, planned(3), {.fusion = FusionMode::first});
  s.prepare({{"N", 4}});
  ASSERT_EQ(s.host_instructions().size(), 1u);
  const HostInstruction h = s.host_instructions()[0];
  EXPECT_EQ(code->stage(h.stage).instructions[h.instruction].op->name, "cholesky");
  EXPECT_FALSE(s.groups().empty());
  State other(code, planned(2), {.fusion = FusionMode::first});
  EXPECT_THROW(other.prepare({{"N", 4}}), Error);
}

TEST(PlannedDevice, HasThePlansOfADevice) {
  GRADUS_NEEDS_NVRTC();
  std::string text = program;
  text.replace(text.find("@cuda:3"), 7, "");
  const auto code = Code::compile(ir::parse(text).program());
  auto context = std::make_shared<Context>(ContextOptions{});
  context->replace_part<Kernels>(std::make_shared<cuda::CudaKernels>(
      std::make_shared<InterpretedDevice>(), KernelOptions{.folder = kernel_folder()}, nullptr));
  State there(code, context, {.fusion = FusionMode::first});
  State s(code, planned(0), {.fusion = FusionMode::first});
  const std::vector<StageMemory> expected = there.prepare({{"N", 8}}),
                                 memory = s.prepare({{"N", 8}});
  ASSERT_EQ(memory.size(), expected.size());
  EXPECT_EQ(memory[0].buffer, expected[0].buffer);
  EXPECT_EQ(memory[0].results, expected[0].results);
  const std::vector<FusedGroup> groups = s.groups(), others = there.groups();
  ASSERT_EQ(groups.size(), others.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    EXPECT_EQ(groups[g].nest, others[g].nest);
    EXPECT_EQ(groups[g].instructions, others[g].instructions);
  }
  ASSERT_EQ(s.host_instructions().size(), there.host_instructions().size());
}

// It says so instead of running.
TEST(PlannedDevice, RunsNothing) {
  const auto code = Code::compile(
      ir::parse("graph g { stage 0 (%x: f32[N]) { %y = neg(%x) return %y } }").program());
  State s(code, planned(1), {.fusion = FusionMode::first});
  try {
    s.run(std::vector{Tensor::from(DType::f32, Sizes{2}, std::vector<double>{1, 2})});
    FAIL() << "it ran";
  } catch (const ResourceError& e) {
    EXPECT_NE(std::string(e.what()).find("cuda:1 was only planned for"), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace gradus::fusion::test
