// Code for machines that this one is not: every nest becomes an object file of the target's. Those
// of AArch64 are run where an emulator is installed (tests/cross).
#include "fusion/cpu/symbols.h"
#include "tests/functions.h"
#include "tests/fusion/collected.h"
#include "tests/fusion/elf.h"
#include "tests/fusion/sample_nests.h"
#include "tests/fusion/support.h"
#include "tests/start.h"
#include "tools/functions.h"

namespace gradus::fusion::test {
namespace {

using cpu::Isa;

int machine_of(Isa isa) { return isa == Isa::neon ? EM_AARCH64 : EM_X86_64; }

// One function of that machine, which calls nothing but what the compiler gives it.
void expect_object(const Nest& nest, Isa isa) {
  static cpu::Compiler compiler;
  cpu::CompileTimes times;
  const ElfObject object = read_elf(compiler.object(nest, isa, times));
  EXPECT_EQ(object.machine, machine_of(isa)) << print(nest);
  EXPECT_EQ(object.functions, std::set<std::string>{cpu::kernel_name(nest)});
  EXPECT_GT(object.code_bytes, 64u) << print(nest);
  for (const std::string& name : object.undefined)
    EXPECT_TRUE(name == "gradus_fmod_f32" || name == "gradus_fmod_f64") << name << print(nest);
}

std::string target_name(const testing::TestParamInfo<Isa>& info) {
  std::string name(cpu::name_of(info.param));
  std::ranges::replace(name, '-', '_');
  return name;
}

// Those whose kernels this machine does not run, in other tests. tests/cross runs those of AArch64
// that one call runs.
std::vector<Isa> elsewhere(bool with_cross) {
  std::vector<Isa> isas;
  for (Isa isa : cpu::all_isas)
    if (!cpu::runs_here(isa) && (with_cross || isa != Isa::neon)) isas.push_back(isa);
  return isas;
}
class TargetsOfNoTest : public testing::TestWithParam<Isa> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TargetsOfNoTest);
TEST_P(TargetsOfNoTest, OfEveryOperator) {
  for (const Nest& nest : operator_nests()) expect_object(nest, GetParam());
}
TEST_P(TargetsOfNoTest, OfRows) {
  for (const Nest& nest : row_nests()) expect_object(nest, GetParam());
}
INSTANTIATE_TEST_SUITE_P(All, TargetsOfNoTest, testing::ValuesIn(elsewhere(false)), target_name);

class TargetsElsewhere : public testing::TestWithParam<Isa> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TargetsElsewhere);
TEST_P(TargetsElsewhere, OfColumnsAndEdges) {
  for (const auto& nests : {column_nests(), edge_nests()})
    for (const Nest& nest : nests) expect_object(nest, GetParam());
}
INSTANTIATE_TEST_SUITE_P(All, TargetsElsewhere, testing::ValuesIn(elsewhere(true)), target_name);

class Targets : public testing::TestWithParam<Isa> {};
TEST_P(Targets, OfWholeStages) {
  StageProgram p;
  for (const auto& nests : {operator_nests(), row_nests()})
    for (size_t n = 0; n < nests.size(); n += 29) {
      Memory memory(nests[n], Sizes(static_cast<size_t>(nests[n].rank), 3), n);
      p.pieces.push_back(work::Loops{nests[n], memory.frame});
    }
  for (DType d : {DType::f32, DType::f64})
    for (int64_t b_row : {1, 5}) {
      work::Gemm g{d, 3, 5, 7};
      g.a_row = 7, g.a_column = 1, g.b_row = b_row, g.b_column = b_row == 1 ? 7 : 1;
      p.pieces.push_back(work::Product{g});
    }
  p.pieces.push_back(
      work::Reduce{work::Reducer::sum, DType::f32, DType::f32, {{9, 1}}, {{5, 9}}, 9, 5});
  p.pieces.push_back(
      work::Move{{{{2, 3}, {0, DType::f32, {5, 1}, 0}, {1, DType::f32, {3, 1}, 0}, false, {}}}});
  for (uint32_t n = 0; n < p.pieces.size(); ++n) p.items.push_back({n, 0, {}});
  p.items.push_back({StageProgram::call, 0, {}});
  cpu::Compiler compiler;
  cpu::CompileTimes times;
  const ElfObject object = read_elf(compiler.object(p, GetParam(), times));
  EXPECT_EQ(object.machine, machine_of(GetParam()));
  EXPECT_EQ(object.functions.size(), p.pieces.size() + 1);
  EXPECT_TRUE(object.functions.contains(cpu::kernel_name(p)));
  for (const std::string& name : object.undefined)
    EXPECT_TRUE(name == "gradus_fmod_f32" || name == "gradus_fmod_f64" ||
                name == cpu::outer_call_name)
        << name;
}
// The registers that the target has, and nothing fused that is not written fma.
TEST_P(Targets, UseTheirRegisters) {
  const std::string text = cpu::assembly(
      parse_nest("nest 1 { %v0 = load f32 [contiguous] %v1 = load f32 [contiguous]\n"
                 "%v2 = mul(%v0, %v1) : f32 in f32 %v3 = add(%v2, %v1) : f32 in f32 store %v3 }"),
      GetParam());
  const char *multiply = "vmulps", *registers = "%zmm", *fused = "vfmadd";
  if (GetParam() == Isa::avx2) registers = "%ymm";
  if (GetParam() == Isa::neon) multiply = "fmul\tv", registers = ".4s", fused = "fmla";
  EXPECT_NE(text.find(multiply), std::string::npos) << text;
  EXPECT_NE(text.find(registers), std::string::npos) << text;
  EXPECT_EQ(text.find(fused), std::string::npos) << text;
}
// The wide machine's masks and instructions, in narrower registers where the nest says so.
TEST_P(Targets, UseNarrowerRegistersWhereANestSaysSo) {
  const std::string text = cpu::assembly(
      parse_nest("nest 1 in 256 { %v0 = load f32 [contiguous] %v1 = exp(%v0) : f32 in f32\n"
                 "%v2 = add(%v1, %v0) : f32 in f32 store %v2 }"),
      GetParam());
  EXPECT_EQ(text.find("%zmm"), std::string::npos) << text;
  if (GetParam() == Isa::neon) return;
  EXPECT_NE(text.find("%ymm"), std::string::npos) << text;
  EXPECT_EQ(text.find("{%k") != std::string::npos, GetParam() == Isa::avx512) << text;
  EXPECT_EQ(text.find("vscalefps") != std::string::npos, GetParam() == Isa::avx512) << text;
}
// Elements can be stored past the caches, what is reduced of a row cannot.
TEST_P(Targets, StorePastTheCaches) {
  auto streams = [&](const char* nest) {
    return cpu::assembly(parse_nest(nest), GetParam()).find("vmovnt") != std::string::npos;
  };
  EXPECT_EQ(streams("nest 1 { %v0 = load f32 [contiguous] %v1 = add(%v0, %v0) : f32 in f32\n"
                    "store %v1 }"),
            GetParam() != Isa::neon);
  EXPECT_FALSE(
      streams("nest 2 { %v0 = load f32 [strided, contiguous]\n"
              "%v1 = reduce sum(%v0) : f32 in f32 store_row %v1 }"));
}
// Powers of two are put to a mantissa by one instruction where there is one.
TEST_P(Targets, ScaleByAnInstruction) {
  for (std::string_view d : {"f32", "f64"}) {
    const std::string text = cpu::assembly(
        parse_nest(fmt::format(
            "nest 1 {{ %v0 = load {0} [contiguous] %v1 = exp(%v0) : {0} in {0} store %v1 }}", d)),
        GetParam());
    const bool scales = text.find(d == "f32" ? "vscalefps" : "vscalefpd") != std::string::npos;
    EXPECT_EQ(scales, GetParam() == Isa::avx512) << text;
  }
}
// Of what several loops over a row read, the last one fetches the next row.
TEST_P(Targets, FetchRowsAhead) {
  const char* fetch = GetParam() == Isa::neon ? "prfm" : "prefetcht0";
  auto fetches = [&](const std::string& nest) {
    const std::string text = cpu::assembly(parse_nest(nest), GetParam());
    size_t n = 0;
    for (size_t at = 0; (at = text.find(fetch, at)) != std::string::npos; ++at) ++n;
    return n;
  };
  EXPECT_GE(fetches(softmax_nest("f32")), 1u);
  EXPECT_GE(fetches(softmax_derivative_nest("f32")), 2u);
  EXPECT_EQ(fetches("nest 2 { %v0 = load f32 [strided, contiguous]\n"
                    "%v1 = reduce sum(%v0) : f32 in f32 store_row %v1 }"),
            0u);
  std::string three = "nest 2 {";
  for (int k = 0; k < 3; ++k) three += fmt::format(" %v{} = load f32 [strided, contiguous]", k);
  EXPECT_EQ(fetches(three + " %v3 = mul(%v0, %v1) : f32 in f32 %v4 = mul(%v3, %v2) : f32 in f32"
                            " %v5 = reduce sum(%v4) : f32 in f32"
                            " %v6 = mul(%v4, %v5) : f32 in f32 store %v6 }"),
            0u);
}
INSTANTIATE_TEST_SUITE_P(All, Targets, testing::ValuesIn(cpu::all_isas), target_name);

TEST(TargetsRun, HereOrAreRefused) {
  cpu::Compiler compiler;
  const Nest nest = conversions_nest(DType::f32);
  for (Isa isa : cpu::all_isas)
    if (!cpu::runs_here(isa)) {
      EXPECT_THROW(compiler.compile(nest, isa), ResourceError) << cpu::name_of(isa);
    }
#if defined(__x86_64__)
  EXPECT_FALSE(cpu::runs_here(Isa::neon));
#elif defined(__AARCH64EL__)
  EXPECT_TRUE(cpu::runs_here(Isa::neon));
#endif
}

// Every kernel that the corpus' programs ask for, for the targets that do not run here; of the
// fixtures of single operators, which OfEveryOperator has too, one in four. Those of AArch64
// that tests/cross runs are left to it. A test is named OtherTargets.file.
class FixtureTest : public testing::Test {
 public:
  explicit FixtureTest(std::string file) : file_(std::move(file)) {}
  void TestBody() override {
    for (const auto& [text, nest] : nests_of(corpus::load(file_)))
      for (Isa isa : cpu::all_isas)
        if (!cpu::runs_here(isa) && !(isa == Isa::neon && is_one_call(nest)))
          expect_object(nest, isa);
  }

 private:
  const std::string file_;
};

TEST(OtherTargetsOf, ProgramsThatHaveKernels) {
  EXPECT_GT(nests_of(corpus::load("ops/softmax.ir")).size(), 0u);
}

const gradus::test::AtStart start([] {
  gradus::test::register_test_functions();
  cli::register_functions();
  size_t operators = 0;
  for (const std::string& file : corpus::fixture_files()) {
    if (file.starts_with("ops/") && operators++ % 4 != 0) continue;
    testing::RegisterTest("OtherTargets", file.substr(0, file.size() - 3).c_str(), nullptr, nullptr,
                          __FILE__, __LINE__,
                          [file]() -> FixtureTest* { return new FixtureTest(file); });
  }
});

}  // namespace
}  // namespace gradus::fusion::test
