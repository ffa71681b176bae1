// What runs kernels on a device: memory that is kept, programs by copies of their operands, and
// what is said where there is none.
#include "tests/cuda/device.h"

#include <future>

#include <sys/wait.h>
#include <unistd.h>

#include "devices/cuda/kernels.h"
#include "tests/cuda/corpus.h"
#include "tests/cuda/needs.h"

namespace gradus::fusion::test {
namespace {

using cuda::Address;
using cuda::MemoryCache;

TEST(MemoryCache, RoundsToEighths) {
  EXPECT_EQ(MemoryCache::rounded(0), 512u);
  EXPECT_EQ(MemoryCache::rounded(513), 1024u);
  EXPECT_EQ(MemoryCache::rounded(4096), 4096u);
  EXPECT_EQ(MemoryCache::rounded(4097), 4608u);
  EXPECT_EQ(MemoryCache::rounded((1 << 20) + 1), (1u << 20) + (1u << 17));
  for (size_t n = 1; n < 1000000; n += 997) {
    EXPECT_GE(MemoryCache::rounded(n), n);
    EXPECT_LE(MemoryCache::rounded(n), n + std::max<size_t>(n / 8, 512));
    EXPECT_EQ(MemoryCache::rounded(MemoryCache::rounded(n)), MemoryCache::rounded(n));
  }
}

TEST(MemoryCache, ServesAStreamWhatItGaveBack) {
  InterpretedDevice device;
  {
    MemoryCache memory(device);
    const Address a = memory.allocate(1000, 1), b = memory.allocate(1000, 1);
    EXPECT_NE(a, b);
    memory.release(a);
    // Another stream may still be behind.
    const Address other = memory.allocate(1000, 2);
    EXPECT_NE(other, a);
    EXPECT_EQ(memory.allocate(1024, 1), a);
    EXPECT_EQ(memory.statistics().allocations, 3u);
    EXPECT_EQ(memory.statistics().reused, 1u);
    EXPECT_EQ(memory.statistics().used_bytes, 3072u);
    for (Address x : {a, b, other}) memory.release(x);
    EXPECT_EQ(memory.statistics().used_bytes, 0u);
    EXPECT_EQ(memory.statistics().kept_bytes, 3072u);
    EXPECT_EQ(device.frees, 0u);
  }
  EXPECT_EQ(device.frees, 3u);
}

TEST(MemoryCache, WaitsForOtherUsers) {
  InterpretedDevice device;
  MemoryCache memory(device);
  const Address a = memory.allocate(1000, 1), b = memory.allocate(1000, 1);
  EXPECT_TRUE(memory.record_use(a, 1));  // its own
  EXPECT_TRUE(memory.record_use(b, 2));
  EXPECT_TRUE(memory.record_use(b, 2));
  EXPECT_TRUE(memory.record_use(b, 3));
  EXPECT_FALSE(memory.record_use(a + b, 2));
  memory.release(a);
  EXPECT_EQ(device.waits, 0u);
  memory.release(b);
  EXPECT_EQ(device.waits, 2u);
  EXPECT_EQ(memory.allocate(1000, 1), a);  // they went home
  EXPECT_EQ(memory.allocate(1000, 1), b);
}

TEST(MemoryCache, IsOneForAllWhoUseADevice) {
  auto device = std::make_shared<InterpretedDevice>();
  auto a = std::make_shared<cuda::CudaBackend>(device, nullptr),
       b = std::make_shared<cuda::CudaBackend>(device, nullptr);
  std::byte* address = a->allocate(100);
  b->record_use(address, 5);
  a->release(address);
  EXPECT_EQ(device->waits, 1u);
  EXPECT_EQ(b->allocate(100), address);
  b->release(address);
}

TEST(MemoryCache, GivesBackWhatItKeepsBeforeItFails) {
  InterpretedDevice device(10000);
  MemoryCache memory(device);
  const Address a = memory.allocate(4096, 1), b = memory.allocate(4096, 2);
  EXPECT_THROW(memory.allocate(4096, 1), cuda::OutOfMemory);
  memory.release(a);
  memory.release(b);
  const Address c = memory.allocate(8192, 1);  // neither is of that size
  EXPECT_EQ(device.synchronized, 2u);
  EXPECT_EQ(device.frees, 2u);
  EXPECT_EQ(memory.statistics().kept_bytes, 0u);
  memory.release(c);
}

// What is waited for may need another thread that releases memory.
TEST(MemoryCache, IsNotLockedWhileItWaits) {
  InterpretedDevice device(10000);
  MemoryCache memory(device);
  const Address a = memory.allocate(4096, 1), b = memory.allocate(4096, 2);
  memory.release(a);
  std::future<void> other;
  const Address c = memory.allocate(8192, 1, [&] {
    other = std::async(std::launch::async, [&] { memory.release(b); });
    EXPECT_EQ(other.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  });
  EXPECT_EQ(device.frees, 2u);
  memory.release(c);
}

corpus::Results run(const corpus::Subject& subject, const std::shared_ptr<Context>& context,
                    FusionMode mode) {
  State state(subject.code, context, {.fusion = mode});
  return corpus::run_all(state, subject);
}

// Of row F9: a source for each group, compiled for a device.
TEST(CudaKernels, RunPrograms) {
  GRADUS_NEEDS_NVRTC();
  auto device = std::make_shared<InterpretedDevice>();
  auto context = std::make_shared<Context>(ContextOptions{});
  KernelOptions options;
  options.folder = kernel_folder();
  auto kernels = std::make_shared<cuda::CudaKernels>(device, options, nullptr);
  context->replace_part<Kernels>(kernels);
  size_t programs = 0;
  for (const char* file : {"networks/rms_norm.ir", "ops/softmax.ir", "ops/layer_norm.ir"}) {
    const ir::Fixture fixture = corpus::load(file);
    for (const corpus::Subject& s : corpus::subjects(fixture)) {
      EXPECT_EQ(corpus::difference(s, run(s, Context::default_context(), FusionMode::off),
                                   run(s, context, FusionMode::first)),
                "")
          << file;
      ++programs;
    }
  }
  EXPECT_GE(programs, 2u);
  EXPECT_GT(device->launches, 0u);
  const KernelStatistics s = kernels->statistics();
  EXPECT_GT(s.kernels, 0u);
  EXPECT_EQ(s.failed, 0u);
  EXPECT_EQ(s.kernels, s.misses + s.loaded);
  // Memory is asked of the device for a few sizes, then kept; what is pinned is given back.
  EXPECT_LT(device->allocations, device->launches);
}

// A device without memory: the run fails, and says why.
TEST(CudaKernels, SayThatMemoryIsShort) {
  GRADUS_NEEDS_NVRTC();
  auto device = std::make_shared<InterpretedDevice>(1024);
  auto kernels = std::make_shared<cuda::CudaKernels>(device, KernelOptions{}, nullptr);
  const Nest nest = parse_nest("nest 1 { %v0 = load f32 [contiguous] store %v0 }");
  const auto kernel = kernels->get(nest, print(nest));
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernels->get(nest, print(nest)), kernel);
  EXPECT_EQ(kernels->ready()->find(print(nest)), kernel);
  EXPECT_NE(kernels->backend()->allocate(900), nullptr);
  EXPECT_THROW(kernels->backend()->allocate(900), ResourceError);
}

TEST(CudaKernels, TellTheLogWhatCannotBeCompiled) {
  std::vector<std::string> told;
  auto kernels = std::make_shared<cuda::CudaKernels>(
      std::make_shared<InterpretedDevice>(), KernelOptions{},
      [&](LogLevel, std::string_view message) { told.emplace_back(message); });
  std::string text = "nest 1 {\n", sum;
  for (int i = 0; i < 33; ++i) text += fmt::format("%v{} = load f32 [contiguous]\n", i);
  const Nest nest = parse_nest(text + "store %v0, %v1\n}");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(kernels->get(nest, print(nest)), nullptr);
  kernels->request(nest, print(nest));
  kernels->wait();
  EXPECT_TRUE(kernels->ready()->has_failed(print(nest)));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].find("no kernel on cuda:0 for a group, which runs otherwise: CUDA kernels of "
                         "elements take 32"),
            0u)
      << told[0];
  EXPECT_EQ(kernels->statistics().failed, 1u);
}

TEST(CudaKernels, AreNoneInAForkedChild) {
  GRADUS_NEEDS_NVRTC();
  cuda::CudaKernels kernels(std::make_shared<InterpretedDevice>(), KernelOptions{}, nullptr);
  const Nest nest = parse_nest("nest 1 { %v0 = load f32 [contiguous] store %v0 }");
  ASSERT_NE(kernels.get(nest, print(nest)), nullptr);
  const pid_t child = fork();
  if (child == 0)
    _exit(kernels.get(nest, print(nest)) == nullptr && kernels.ready()->nests() == 0 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Devices, AreReported) {
  const cuda::DeviceReport report = cuda::probe_devices();
  const std::string text = to_string(report);
  for (const char* what : {"NVIDIA's driver", "NVRTC", "cuBLASLt", "cuDNN"})
    EXPECT_NE(text.find(what), std::string::npos) << text;
  EXPECT_EQ(text.starts_with("no CUDA device\n"), report.devices.empty()) << text;
  EXPECT_EQ(cuda::why_no_device(0).empty(), report.no_device.empty());
}

// With a device: a kernel's bits are the loops'. Without: what is missing has its name.
TEST(Devices, OpenOrSayWhyNot) {
  const std::string why = cuda::why_no_device(0);
  if (why.empty()) {
    auto context = std::make_shared<Context>(ContextOptions{});
    cuda::use_device(*context, 0);
    EXPECT_EQ(run_on_device(corpus::load("ops/softmax.ir"), context).difference, "");
    EXPECT_EQ(kernels_of(*context)->statistics().failed, 0u);
    return;
  }
  try {
    cuda::open_device(0);
    FAIL() << "it opened";
  } catch (const ResourceError& e) {
    EXPECT_EQ(e.message(), "cuda:0 cannot be used: " + why);
  }
  if (!cuda::probe_kernels().driver) {
    EXPECT_NE(why.find("libcuda.so.1"), std::string::npos) << why;
  }
}

}  // namespace
}  // namespace gradus::fusion::test
