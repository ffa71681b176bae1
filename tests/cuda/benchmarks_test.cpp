// The kernels that the device's benchmarks will run: none spills, and each keeps the loops' bits.
// What each takes of a multiprocessor is recorded.
#include "gradus/text.h"
#include "tests/cuda/corpus.h"
#include "tests/cuda/interpreted.h"
#include "tests/cuda/needs.h"

namespace gradus::fusion::test {
namespace {

struct Program {
  const char* name;
  const char* body;  // of stage 0
};
constexpr Program programs[] = {
    {"chain", "%a = mul(%x, %w) %b = add(%a, %x) %c = tanh(%b) %y = mul(%c, %w) return %y"},
    {"softmax", "%a = mul(%x, %w) %y = softmax(%a) {dim = -1} return %y"},
    {"layer_norm",
     "%a = mul(%x, %w) %y = layer_norm(%a, %s, %t) {normalized_shape = [N]} return %y"},
};

class CudaBenchmarks : public testing::TestWithParam<Program> {};

TEST_P(CudaBenchmarks, SpillNothing) {
  GRADUS_NEEDS_NVRTC();
  const ir::Fixture fixture = ir::parse_fixture(fmt::format(
      "graph p {{ stage 0 (%x: f32[M, N], %w: f32[M, N], %s: f32[N], %t: f32[N]) {{ {} }} }}\n"
      "case c {{ set M = 3 set N = 48 gradcheck order 2 }}\n",
      GetParam().body));
  std::string table;
  for (const auto& [text, nest] : nests_of(fixture)) {
    const cuda::Resources r = cuda_compiler().compile(nest)->resources;
    EXPECT_EQ(r.spilled_bytes, 0) << text;
    EXPECT_EQ(r.stack_bytes, 0) << text;
    // Two blocks of 256 fit into a multiprocessor's 65536 registers.
    EXPECT_LE(r.registers, 128) << text;
    table += fmt::format("{} registers, {} bytes shared; ", r.registers, r.shared_bytes);
  }
  EXPECT_NE(table, "");
  RecordProperty("kernels", table);
  EXPECT_EQ(difference_by(fixture, interpreted), "");
}
INSTANTIATE_TEST_SUITE_P(All, CudaBenchmarks, testing::ValuesIn(programs),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gradus::fusion::test
