// Runs the kernels of every fixture of tests/text, and of the examples' cases: a test is named
// CudaCorpusAccepted.file or CudaCorpusInterpreted.file.
#include "tests/cuda/corpus.h"
#include "tests/cuda/interpreted.h"
#include "tests/cuda/needs.h"
#include "tests/functions.h"
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

class FixtureTest : public testing::Test {
 public:
  FixtureTest(void (*run)(const ir::Fixture&), std::string file)
      : run_(run), file_(std::move(file)) {}
  void TestBody() override {
    GRADUS_NEEDS_NVRTC();
    run_(corpus::load(file_));
  }

 private:
  void (*run_)(const ir::Fixture&);
  std::string file_;
};

struct Way {
  const char* name;
  void (*run)(const ir::Fixture&);
};
constexpr Way ways[] = {{"CudaCorpusAccepted", accepted}, {"CudaCorpusInterpreted", interpreted}};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  gradus::test::register_test_functions();
  cli::register_functions();
  // Where there is no NVRTC, the names say so.
  const bool usable = cuda::Nvrtc::get().usable();
  for (const Way& way : ways) {
    std::vector<std::string> files = corpus::fixture_files();
    if (!usable) files.resize(1);
    for (const std::string& file : files) {
      const std::string name = usable ? file.substr(0, file.size() - 3) : "skipped_without_NVRTC";
      testing::RegisterTest(
          way.name, name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
          [file, run = way.run]() -> FixtureTest* { return new FixtureTest(run, file); });
    }
  }
  return RUN_ALL_TESTS();
}
