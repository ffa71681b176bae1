// The corpus by fused kernels: bit for bit what the interpreter gives.
#include "tests/corpus/fused.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "fusion/cpu/compiler.h"

namespace gradus::corpus {

namespace {

using fusion::FusionMode;
namespace files = std::filesystem;

// A folder of its own, gone with it.
struct Folder {
  Folder() {
    std::string pattern = testing::TempDir() + "gradus_kernels_XXXXXX";
    path = mkdtemp(pattern.data());
  }
  ~Folder() { files::remove_all(path); }
  Folder(const Folder&) = delete;
  std::string path;
};

std::shared_ptr<Context> context_with(const fusion::KernelOptions& options, int workers) {
  ContextOptions context_options;
  context_options.workers = workers;
  auto context = std::make_shared<Context>(context_options);
  fusion::set_kernel_options(*context, options);
  return context;
}

// Every entry damaged: a byte in the middle changed, or the end missing.
void damage(const std::string& folder) {
  size_t n = 0;
  for (const auto& entry : files::directory_iterator(folder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    in.close();
    if (n++ % 2)
      bytes.resize(bytes.size() / 2);
    else
      bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    std::ofstream(entry.path(), std::ios::binary) << bytes;
  }
}

}  // namespace

bool has_kernels(unsigned vector_bits) {
  return fusion::cpu::runs_here(vector_bits == 512 ? fusion::cpu::Isa::avx512
                                                   : fusion::cpu::Isa::avx2);
}

std::shared_ptr<Context> fusing_context(int workers, unsigned vector_bits) {
  static std::map<std::pair<int, unsigned>, std::shared_ptr<Context>> contexts;
  auto& context = contexts[{workers, vector_bits}];
  if (!context) context = context_with({.vector_bits = vector_bits, .always = true}, workers);
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

// One worker and many, both widths of vectors.
// SPEC F6
void fused(const ir::Fixture& fixture) {
  if (!has_kernels(256)) GTEST_SKIP() << "no kernels here";
  for (const Subject& s : subjects(fixture)) {
    Results plain = run_unfused(s);
    for (unsigned bits : {256u, 512u})
      for (int workers : {1, 4}) {
        if (!has_kernels(bits)) continue;
        EXPECT_EQ(difference(s, plain, run_fused(s, fusing_context(workers, bits))), "")
            << workers << " workers, " << bits << " bits";
      }
  }
}

// Compiled, loaded by what might be another process, and with every entry damaged.
// SPEC F4
void fused_from_disk(const ir::Fixture& fixture) {
  if (!has_kernels(256)) GTEST_SKIP() << "no kernels here";
  Folder folder;
  enum { cold, warm, damaged, mended };
  for (int round : {cold, warm, damaged, mended}) {
    if (round == damaged) damage(folder.path);
    auto context = context_with({.folder = folder.path, .always = true}, 1);
    for (const Subject& s : subjects(fixture))
      EXPECT_EQ(difference(s, run_unfused(s), run_fused(s, context)), "") << "round " << round;
    const fusion::KernelStatistics n = fusion::kernels_of(*context)->statistics();
    EXPECT_EQ(n.failed, 0u);
    const bool compiles = round == cold || round == damaged;
    EXPECT_EQ(compiles ? n.loaded : n.misses, 0u) << "round " << round;
  }
}

}  // namespace gradus::corpus
