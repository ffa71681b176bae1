// The run-time compiler: what it gives, and what it says where it fails.
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "fusion/cuda/compiler.h"
#include "tests/cuda/needs.h"

namespace gradus::fusion::cuda {
namespace {

constexpr const char* sample =
    "nest 1 { %v0 = load f32 [contiguous] %v1 = mul(%v0, %v0) : f32 in f32 store %v1 }";

TEST(Nvrtc, GivesPtxAndMachineCode) {
  GRADUS_NEEDS_NVRTC();
  const Compiled compiled = Nvrtc::get().compile(write_source(parse_nest(sample)).text, "sm_90");
  EXPECT_NE(compiled.ptx.find(".entry gradus_kernel("), std::string::npos);
  EXPECT_EQ(compiled.cubin.substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_GT(resources_in(compiled.log).registers, 4) << compiled.log;
}

TEST(Nvrtc, GivesPtxAloneForVirtualArchitectures) {
  GRADUS_NEEDS_NVRTC();
  const Compiled compiled =
      Nvrtc::get().compile(write_source(parse_nest(sample)).text, "compute_90");
  EXPECT_NE(compiled.ptx.find(".target sm_90"), std::string::npos);
  EXPECT_EQ(compiled.cubin, "");
}

TEST(Nvrtc, ErrorsCarryItsLog) {
  GRADUS_NEEDS_NVRTC();
  try {
    Nvrtc::get().compile("__global__ void k() { undeclared = 1; }", "sm_90");
    FAIL() << "it compiled";
  } catch (const ResourceError& e) {
    EXPECT_NE(e.message().find("identifier \"undeclared\" is undefined"), std::string::npos)
        << e.message();
  }
  try {
    Nvrtc::get().compile("__global__ void k() {}", "sm_3");
    FAIL() << "it compiled";
  } catch (const ResourceError& e) {
    EXPECT_NE(e.message().find("sm_3"), std::string::npos) << e.message();
  }
}

TEST(Nvrtc, ReportsAreRead) {
  const Resources r = resources_in(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Function properties for gradus_kernel\n"
      "ptxas         .     24 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n"
      "ptxas info    : Used 56 registers, used 1 barriers, 256 bytes smem\n");
  EXPECT_EQ(r.registers, 56);
  EXPECT_EQ(r.stack_bytes, 24);
  EXPECT_EQ(r.spilled_bytes, 20);
  EXPECT_EQ(r.shared_bytes, 256);
}

// What is nowhere is told with where it was looked for, and what to do.
TEST(Library, SaysWhatIsMissing) {
  constexpr std::string_view files[] = {"libgradus_has_no_such.so.13",
                                        "libgradus_has_no_such.so.12"};
  Library library = open_library({"Nothing", files, {}, "Install it."});
  EXPECT_FALSE(library);
  EXPECT_NE(library.fault.find("Nothing was not found; libgradus_has_no_such.so.13: "),
            std::string::npos)
      << library.fault;
  EXPECT_NE(library.fault.find("libgradus_has_no_such.so.12"), std::string::npos);
  EXPECT_NE(library.fault.find(". Install it."), std::string::npos);
}

TEST(Library, IsTheFileThatTheEnvironmentNames) {
  constexpr std::string_view files[] = {"libc.so.6"};
  constexpr const char* variable = "GRADUS_TEST_NAMED_LIBRARY";
  const LibraryNames names{"The C library", files, {}, "", variable};
  EXPECT_TRUE(open_library(names));
  setenv(variable, "libm.so.6", 1);
  EXPECT_NE(open_library(names).path.find("libm.so.6"), std::string::npos);
  setenv(variable, "off", 1);
  const Library none = open_library(names);
  unsetenv(variable);
  EXPECT_FALSE(none);
  EXPECT_NE(none.fault.find("The C library is not used: GRADUS_TEST_NAMED_LIBRARY names off, which "
                            "cannot be opened: off: "),
            std::string::npos)
      << none.fault;
}

TEST(Library, LacksAFunction) {
  constexpr std::string_view files[] = {"libc.so.6"};
  Library library = open_library({"The C library", files, {}, ""});
  ASSERT_TRUE(library) << library.fault;
  EXPECT_NE(library.path.find('/'), std::string::npos) << library.path;
  EXPECT_NE(library.function("malloc"), nullptr);
  EXPECT_EQ(library.function("cuInit"), nullptr);
  EXPECT_FALSE(library);
  EXPECT_NE(library.fault.find("cuInit"), std::string::npos) << library.fault;
}

class CudaCompiler : public testing::Test {
 protected:
  void SetUp() override {
    if (!mkdtemp(folder_.data())) FAIL() << folder_;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_ = testing::TempDir() + "gradus_cuda_XXXXXX";
};

// SPEC F4
TEST_F(CudaCompiler, CompilesOnceAndKeepsCode) {
  GRADUS_NEEDS_NVRTC();
  auto store = std::make_shared<ObjectStore>(folder_);
  Compiler cold("sm_90", store);
  std::vector<std::shared_ptr<const Code>> codes(4);
  std::vector<std::thread> threads;
  for (auto& code : codes) threads.emplace_back([&] { code = cold.compile(parse_nest(sample)); });
  for (std::thread& t : threads) t.join();
  for (const auto& code : codes) EXPECT_EQ(code, codes[0]);
  EXPECT_GT(codes[0]->seconds, 0);

  const auto kept = Compiler("sm_90", store).compile(parse_nest(sample));
  EXPECT_EQ(kept->seconds, 0);
  EXPECT_EQ(kept->ptx, codes[0]->ptx);
  EXPECT_EQ(kept->cubin, codes[0]->cubin);
  EXPECT_EQ(kept->resources.registers, codes[0]->resources.registers);
  // Of another architecture, or no entry of ours.
  EXPECT_GT(Compiler("sm_80", store).compile(parse_nest(sample))->seconds, 0);
  store->put(cold.key(write_source(parse_nest(sample))), "7 damaged");
  EXPECT_GT(Compiler("sm_90", store).compile(parse_nest(sample))->seconds, 0);
}

// A nest of the sum of 33 loads in so many dimensions.
std::string wide_nest(int rank, const std::string& stores) {
  std::string walks, nest = fmt::format("nest {} {{\n", rank);
  for (int d = 0; d + 1 < rank; ++d) walks += "strided, ";
  for (int i = 0; i < 33; ++i) nest += fmt::format("  %v{} = load f32 [{}contiguous]\n", i, walks);
  for (int i = 33; i < 65; ++i)
    nest += fmt::format("  %v{} = add(%v{}, %v{}) : f32 in f32\n", i, i == 33 ? 0 : i - 1, i - 32);
  return nest + stores + "}\n";
}

std::string refusal(const std::string& nest) {
  try {
    write_source(parse_nest(nest));
  } catch (const Error& e) {
    return e.message();
  }
  return "it is not refused";
}

TEST(CudaSource, RefusesByName) {
  EXPECT_EQ(refusal(wide_nest(1, "store %v64\n")),
            "CUDA kernels of elements take 32 operands and results, this nest has 34");
  const std::string rows = "%v65 = reduce sum(%v64) : f32 in f32\n store_row %v65\n";
  EXPECT_EQ(refusal(wide_nest(9, rows)), "it is not refused");
  EXPECT_EQ(refusal(wide_nest(20, rows)).substr(0, 62),
            "CUDA kernels take 4096 bytes of parameters, this nest wants 53");
  EXPECT_EQ(refusal("nest 1 { %v0 = load f32 [contiguous] of 3 store %v0 }"),
            "CUDA kernels do not read several operands in a load's place ('of 3')");
  EXPECT_EQ(refusal("nest 1 { %v0 = load i64 [contiguous] %v1 = load f32 [broadcast] at %v0 store "
                    "%v1 }"),
            "CUDA kernels do not read at an index ('at %v0')");
}

}  // namespace
}  // namespace gradus::fusion::cuda
