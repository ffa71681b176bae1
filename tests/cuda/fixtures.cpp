// Runs the kernels of every fixture of tests/text, and of the examples' cases: a test is named
// CudaCorpusAccepted.file, CudaCorpusInterpreted.file or CudaCorpusOnDevice.file.
#include "fusion/cuda/kernels.h"
#include "tests/cuda/corpus.h"
#include "tests/cuda/interpreted.h"
#include "tests/functions.h"
#include "tests/start.h"
#include "tools/functions.h"

namespace {

using namespace gradus;
using namespace gradus::fusion;

// NVRTC compiles each, and ptxas takes it. What it takes of a multiprocessor is recorded.
// Of row F9: a source for each group, compiled for a device.
void accepted(const ir::Fixture& fixture) {
  int most = 0, spilled = 0, shared = 0;
  size_t n = 0;
  for (const auto& [text, nest] : fusion::test::nests_of(fixture)) {
    const auto code = fusion::test::cuda_compiler().compile(nest);
    const cuda::Resources& r = code->resources;
    ++n;
    EXPECT_GT(r.registers, 0) << text;
    EXPECT_FALSE(code->cubin.empty()) << text;
    // Two blocks fit into a multiprocessor.
    EXPECT_LE(r.registers, 128) << text;
    EXPECT_EQ(r.spilled_bytes, 0) << text;
    most = std::max(most, r.registers);
    spilled += r.spilled_bytes;
    shared = std::max(shared, r.shared_bytes);
  }
  testing::Test::RecordProperty("kernels", static_cast<int>(n));
  testing::Test::RecordProperty("most_registers", most);
  testing::Test::RecordProperty("spilled_bytes", spilled);
  testing::Test::RecordProperty("most_shared_bytes", shared);
}

// By the PTX interpreter: bit for bit what the operators' loops give, without a fault.
// SPEC F6
void interpreted(const ir::Fixture& fixture) {
  EXPECT_EQ(fusion::test::difference_by(fixture, fusion::test::interpreted), "");
}

// On the device at hand: the same bits. Operands are copied to it and back.
void on_device(const ir::Fixture& fixture) {
  static cuda::CudaKernels kernels(cuda::open_device(0), {.folder = fusion::test::kernel_folder()},
                                   nullptr);
  EXPECT_EQ(fusion::test::difference_by(
                fixture, [](const Nest& nest) { return kernels.get(nest, print(nest)); }),
            "");
  EXPECT_EQ(kernels.statistics().failed, 0u);
}

struct Way {
  const char* name;
  void (*run)(const ir::Fixture&);
  std::string missing;  // why it cannot be gone here; empty if it can
};

class FixtureTest : public testing::Test {
 public:
  FixtureTest(Way way, std::string file) : way_(std::move(way)), file_(std::move(file)) {}
  void TestBody() override {
    if (!way_.missing.empty()) GTEST_SKIP() << way_.missing;
    way_.run(corpus::load(file_));
  }

 private:
  const Way way_;
  const std::string file_;
};

const gradus::test::AtStart start([] {
  gradus::test::register_test_functions();
  cli::register_functions();
  const std::string& no_compiler = cuda::Nvrtc::get().library().fault;
  const Way ways[] = {{"CudaCorpusAccepted", accepted, no_compiler},
                      {"CudaCorpusInterpreted", interpreted, no_compiler},
                      {"CudaCorpusOnDevice", on_device, cuda::why_no_device(0)}};
  for (const Way& way : ways) {
    std::vector<std::string> files = corpus::fixture_files();
    // What is missing is skipped once, by a name that says so.
    const bool here = way.missing.empty();
    if (!here) files.resize(1);
    for (const std::string& file : files) {
      const std::string name = here                   ? file.substr(0, file.size() - 3)
                               : way.run == on_device ? "skipped_without_a_device"
                                                      : "skipped_without_NVRTC";
      testing::RegisterTest(way.name, name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                            [file, way]() -> FixtureTest* { return new FixtureTest(way, file); });
    }
  }
});

}  // namespace
