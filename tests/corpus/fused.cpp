// The corpus by fused kernels: bit for bit what the interpreter gives.
#include "tests/corpus/fused.h"

#include <map>

#include "fusion/cpu/compiler.h"

namespace gradus::corpus {

namespace {

using fusion::FusionMode;

// Contexts that last: what one program has compiled serves the next.
std::shared_ptr<Context> context_of(int workers, unsigned vector_bits) {
  static std::map<std::pair<int, unsigned>, std::shared_ptr<Context>> contexts;
  auto& context = contexts[{workers, vector_bits}];
  if (!context) {
    ContextOptions options;
    options.workers = workers;
    context = std::make_shared<Context>(options);
    fusion::set_kernel_options(*context, {.vector_bits = vector_bits, .always = true});
  }
  return context;
}

Results run_fused(const Subject& s, const std::shared_ptr<Context>& context,
                  FusionMode mode = FusionMode::first) {
  State state(s.code, context, {.fusion = mode});
  return run_all(state, s);
}

}  // namespace

// One worker and many, both widths of vectors.
// SPEC F6
void fused(const ir::Fixture& fixture) {
  if (!fusion::cpu::runs_here(fusion::cpu::Isa::avx2)) GTEST_SKIP() << "no kernels here";
  const bool wide = fusion::cpu::runs_here(fusion::cpu::Isa::avx512);
  for (const Subject& s : subjects(fixture)) {
    Results plain = run_all(s);
    for (unsigned bits : {256u, 512u})
      for (int workers : {1, 4}) {
        if (bits == 512 && !wide) continue;
        EXPECT_EQ(difference(s, plain, run_fused(s, context_of(workers, bits))), "")
            << workers << " workers, " << bits << " bits";
      }
  }
}

}  // namespace gradus::corpus
