// The corpus by fused kernels: bit for bit what the interpreter gives.
#include "tests/corpus/fused.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "fusion/cpu/compiler.h"
#include "gradus/build.h"
#include "tests/corpus/sizes.h"

namespace gradus::corpus {

namespace files = std::filesystem;

std::vector<unsigned> kernel_widths() {
  std::vector<unsigned> widths;
  if (!has_part(Part::llvm)) return widths;
  for (fusion::cpu::Isa isa : fusion::cpu::all_isas)
    if (fusion::cpu::runs_here(isa)) widths.push_back(fusion::cpu::vector_bits(isa));
  return widths;
}

bool has_kernels(unsigned vector_bits) {
  const auto widths = kernel_widths();
  return vector_bits == 0 ? !widths.empty() : std::ranges::count(widths, vector_bits) > 0;
}

namespace {

// One folder for the processes of a run of the suite, where whoever runs it names one; else one for
// this process. What one context has compiled the others load.
const std::string& shared_folder() {
  static const char* const given = std::getenv("GRADUS_TEST_KERNELS");
  static const KernelFolder own;
  static const std::string path = given && *given ? given : own.path();
  return path;
}

std::shared_ptr<Context> fusing_context_of(const std::string& folder, int workers,
                                           unsigned vector_bits) {
  ContextOptions options;
  options.workers = workers;
  auto context = std::make_shared<Context>(options);
  if (!has_part(Part::llvm)) return context;  // there is nothing to keep
  KernelOptions kernels{.folder = folder, .vector_bits = vector_bits, .always = true};
  kernels.most_kernels = 1 << 20;  // so that none is loaded twice
  set_kernel_options(*context, kernels);
  return context;
}

}  // namespace

KernelFolder::KernelFolder() {
  path_ = testing::TempDir() + "gradus_kernels_XXXXXX";
  if (!mkdtemp(path_.data())) throw Error("no folder {}", path_);
}

KernelFolder::~KernelFolder() { files::remove_all(path_); }

std::shared_ptr<Context> KernelFolder::open(int workers, unsigned vector_bits) const {
  return fusing_context_of(path_, workers, vector_bits);
}

size_t KernelFolder::damage() const {
  size_t entries = 0, damaged = 0;
  for (const auto& entry : files::directory_iterator(path_)) {
    if (entries++ % 4) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    in.close();
    if (damaged++ % 2)
      bytes.resize(bytes.size() / 2);
    else
      bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    std::ofstream(entry.path(), std::ios::binary) << bytes;
  }
  return damaged;
}

std::shared_ptr<Context> fusing_context(int workers, unsigned vector_bits) {
  static std::map<std::pair<int, unsigned>, std::shared_ptr<Context>> contexts;
  auto& context = contexts[{workers, vector_bits}];
  if (!context) context = fusing_context_of(shared_folder(), workers, vector_bits);
  return context;
}

Results run_fused(const Subject& subject, const std::shared_ptr<Context>& context) {
  State state(subject.code, context, {.fusion = FusionMode::first});
  return run_all(state, subject);
}

Results run_unfused(const Subject& subject) {
  State state(subject.code, Context::default_context(), {.fusion = FusionMode::off});
  return run_all(state, subject);
}

std::string fused_difference(const Subject& subject) {
  const Results plain = run_unfused(subject);
  for (unsigned bits : kernel_widths())
    for (int workers : {1, 4}) {
      std::string found =
          difference(subject, plain, run_fused(subject, fusing_context(workers, bits)));
      if (!found.empty()) return fmt::format("{} workers, {} bits: {}", workers, bits, found);
    }
  return "";
}

std::string through_a_folder(
    unsigned vector_bits, const std::function<std::string(const std::shared_ptr<Context>&)>& all) {
  const KernelFolder folder;
  size_t all_kernels = 0;
  for (const std::string_view round : {"cold", "warm", "damaged", "mended"}) {
    const size_t damaged = round == "damaged" ? folder.damage() : 0;
    const bool compiles = round == "cold" || round == "damaged";
    auto context = folder.open(compiles ? 1 : 4, vector_bits);
    std::string found = all(context);
    const KernelStatistics n = fusion::kernels_of(*context)->statistics();
    if (round == "cold") all_kernels = n.misses;
    const size_t compiled = round == "cold" ? all_kernels : damaged;
    if (found.empty() && n.failed) found = fmt::format("{} kernels failed", n.failed);
    if (found.empty() && (n.misses != compiled || n.loaded != all_kernels - compiled))
      found = fmt::format("{} kernels were loaded, {} compiled; of {}, {} were to be compiled",
                          n.loaded, n.misses, all_kernels, compiled);
    if (!found.empty()) return fmt::format("{}: {}", round, found);
  }
  return "";
}

std::string through_a_folder(unsigned vector_bits, const std::vector<Subject>& subjects) {
  std::vector<Results> plain;
  for (const Subject& s : subjects) plain.push_back(run_unfused(s));
  return through_a_folder(vector_bits, [&](const std::shared_ptr<Context>& context) {
    std::string found;
    for (size_t i = 0; i < subjects.size(); ++i)
      if (std::string d = difference(subjects[i], plain[i], run_fused(subjects[i], context));
          !d.empty())
        found += fmt::format("{}{}: {}", found.empty() ? "" : "\n", subjects[i].graph.name, d);
    return found;
  });
}

std::string name_of_part(const testing::TestParamInfo<FolderPart>& info) {
  return fmt::format("{}_{}_{}", info.param.bits, name_of(info.param.dtype), info.param.part);
}

// SPEC F6
void fused(const ir::Fixture& fixture) {
  if (!has_kernels()) GTEST_SKIP() << "no kernels here";
  for (const Subject& s : subjects(fixture)) EXPECT_EQ(fused_difference(s), "");
}

void whole_stages(const ir::Fixture& fixture) {
  if (!has_kernels(256)) GTEST_SKIP() << "no kernels here";
  static std::map<unsigned, std::shared_ptr<Context>> contexts;
  for (const Subject& s : subjects(fixture)) {
    // Programs that cannot be said with numbers for sizes are run as they are.
    const Subject known = can_know_sizes(s) ? with_known_sizes(s) : s;
    const Results plain = run_unfused(known);
    for (unsigned bits : {256u, 512u}) {
      if (!has_kernels(bits)) continue;
      auto& context = contexts[bits];
      if (!context) {
        context = std::make_shared<Context>();
        set_kernel_options(
            *context,
            {.folder = shared_folder(), .vector_bits = bits, .whole_stages = WholeStages::always});
      }
      EXPECT_EQ(difference(known, plain, run_fused(known, context)), "") << bits << " bits";
      EXPECT_EQ(fusion::kernels_of(*context)->statistics().failed, 0u);
    }
  }
}

// SPEC F4
void fused_from_disk(const ir::Fixture& fixture) {
  if (!has_kernels()) GTEST_SKIP() << "no kernels here";
  const std::vector<Subject> all = subjects(fixture);
  for (unsigned bits : kernel_widths())
    EXPECT_EQ(through_a_folder(bits, all), "") << bits << " bits";
}

}  // namespace gradus::corpus
