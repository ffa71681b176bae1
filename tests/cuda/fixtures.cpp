// Runs the kernels of every fixture of tests/text, and of the examples' cases: a test is named
// CudaCorpusAccepted.file, CudaCorpusInterpreted.file, CudaCorpusSimulated.file or
// CudaCorpusOnDevice.file.
#include <fstream>

#include "devices/cuda/kernels.h"
#include "tests/cuda/corpus.h"
#include "tests/cuda/device.h"
#include "tests/cuda/interpreted.h"
#include "tests/functions.h"
#include "tests/start.h"
#include "tools/functions.h"

namespace {

using namespace gradus;
using namespace gradus::fusion;

// NVRTC compiles each, and ptxas takes it. What it takes of a multiprocessor is recorded.
// Of row F9: a source for each group, compiled for a device.
void accepted(const ir::Fixture& fixture, const std::string&) {
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
void interpreted(const ir::Fixture& fixture, const std::string&) {
  EXPECT_EQ(fusion::test::difference_by(fixture, fusion::test::interpreted), "");
}

std::shared_ptr<Context> context_on(std::shared_ptr<cuda::Device> device) {
  auto context = std::make_shared<Context>(ContextOptions{});
  context->replace_part<Kernels>(std::make_shared<cuda::CudaKernels>(
      std::move(device), KernelOptions{.folder = fusion::test::kernel_folder()}, nullptr));
  return context;
}

// What the host did of all fixtures that ran on the simulated device.
struct HostWork final : testing::Environment {
  size_t instructions = 0;
  std::map<std::string, size_t> host;
  void add(const fusion::test::DeviceRun& run) {
    instructions += run.instructions;
    for (const auto& [op, n] : run.host) host[op] += n;
  }
  void TearDown() override {
    size_t all = 0;
    std::string text;
    for (const auto& [op, n] : host) all += n, text += fmt::format(" {} {}", op, n);
    if (instructions)
      fmt::print("of {} instructions the host did {}:{}\n", instructions, all, text);
  }
};
HostWork& host_work() {
  static auto* work = new HostWork;  // googletest owns it
  return *work;
}

// How many instructions of each fixture the host may do: what it did when that was last less.
// GRADUS_WRITE_HOST=file adds the lines of the fixtures that run.
const std::map<std::string, size_t>& allowed_host_work() {
  static const std::map<std::string, size_t> allowed = [] {
    std::map<std::string, size_t> list;
    std::ifstream in(gradus::test::source_folder() + "/tests/cuda/host_instructions.txt");
    std::string file;
    for (size_t n; in >> file >> n;) list[file] = n;
    return list;
  }();
  return allowed;
}

// Whole stages on a device of the interpreter's: the same bits, and no more work for the host than
// there was.
// Of row F9: the same program on a device.
void simulated(const ir::Fixture& fixture, const std::string& file) {
  static const auto context = context_on(std::make_shared<fusion::test::InterpretedDevice>());
  const fusion::test::DeviceRun run = fusion::test::run_on_device(fixture, context);
  host_work().add(run);
  EXPECT_EQ(run.difference, "");
  const size_t n = run.host_instructions();
  if (const char* path = std::getenv("GRADUS_WRITE_HOST")) {
    if (n) std::ofstream(path, std::ios::app) << file << " " << n << "\n";
    return;
  }
  const auto allowed = allowed_host_work().find(file);
  EXPECT_LE(n, allowed == allowed_host_work().end() ? 0 : allowed->second) << [&] {
    std::string list;
    for (const auto& [op, count] : run.host) list += fmt::format("{} {}\n", op, count);
    return list;
  }();
}

// On the device at hand: the same bits.
void on_device(const ir::Fixture& fixture, const std::string&) {
  static const auto context = context_on(cuda::open_device(0));
  EXPECT_EQ(fusion::test::run_on_device(fixture, context).difference, "");
  EXPECT_EQ(kernels_of(*context)->statistics().failed, 0u);
}

struct Way {
  const char* name;
  void (*run)(const ir::Fixture&, const std::string& file);
  std::string missing;  // why it cannot be gone here; empty if it can
  // Of the fixtures of single operators, one in so many.
  size_t one_in = 1;
};

class FixtureTest : public testing::Test {
 public:
  FixtureTest(Way way, std::string file) : way_(std::move(way)), file_(std::move(file)) {}
  void TestBody() override {
    if (!way_.missing.empty()) GTEST_SKIP() << way_.missing;
    way_.run(corpus::load(file_), file_);
  }

 private:
  const Way way_;
  const std::string file_;
};

const gradus::test::AtStart start([] {
  testing::AddGlobalTestEnvironment(&host_work());
  gradus::test::register_test_functions();
  cli::register_functions();
  const std::string& no_compiler = cuda::Nvrtc::get().library().fault;
  const Way ways[] = {{"CudaCorpusAccepted", accepted, no_compiler},
                      // The simulated device interprets the same kernels.
                      {"CudaCorpusInterpreted", interpreted, no_compiler, 8},
                      {"CudaCorpusSimulated", simulated, no_compiler},
                      {"CudaCorpusOnDevice", on_device, cuda::why_no_device(0)}};
  for (const Way& way : ways) {
    std::vector<std::string> files = corpus::fixture_files();
    // What is missing is skipped once, by a name that says so.
    const bool here = way.missing.empty();
    if (!here) files.resize(1);
    size_t operators = 0;
    for (const std::string& file : files) {
      if (file.starts_with("ops/") && operators++ % way.one_in != 0) continue;
      const std::string name = here                   ? file.substr(0, file.size() - 3)
                               : way.run == on_device ? "skipped_without_a_device"
                                                      : "skipped_without_NVRTC";
      testing::RegisterTest(way.name, name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                            [file, way]() -> FixtureTest* { return new FixtureTest(way, file); });
    }
  }
});

}  // namespace
