// Compiled nests give the bits of the reference loops: every pointwise operator in every dtype,
// however operands lie and however many elements there are.
// SPEC F6
#include "tests/fusion/calls.h"
#include "tests/fusion/support.h"

namespace gradus::fusion::test {
namespace {

using cpu::Isa;

cpu::Compiler& compiler() {
  static cpu::Compiler c;
  return c;
}
WorkerPool& workers() {
  static WorkerPool w(2);
  return w;
}

class Kernels : public testing::TestWithParam<std::tuple<Isa, DType>> {
 protected:
  void SetUp() override {
    if (!cpu::runs_here(isa())) GTEST_SKIP() << "no such instructions here";
  }
  Isa isa() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }

  void expect_same(const Nest& nest, std::span<const Sizes> sizes) {
    auto kernel = compiler().compile(nest, isa());
    uint64_t seed = 1;
    for (const Sizes& s : sizes) {
      std::string difference = Memory(nest, s, seed++).difference(*kernel, workers());
      EXPECT_EQ(difference, "") << print(nest);
      if (!difference.empty()) return;
    }
  }
};

// Every operator, contiguous: 1 to 70 elements, none, and enough to meet every edge.
TEST_P(Kernels, OfEveryOperatorContiguous) {
  std::vector<Sizes> sizes{{0}, {3000}};
  for (int64_t n = 1; n <= 70; ++n) sizes.push_back({n});
  int checked = 0;
  for (const ir::Operator* op : ops::all()) {
    if (!op->pointwise) continue;
    auto list = attributes_of(*op);
    EXPECT_FALSE(list.empty()) << op->name << " has no sample of its attributes";
    for (const std::string& attributes : list) {
      constexpr std::string_view walks[] = {"contiguous"};
      expect_same(parse_nest(call_text(*op, dtype(), attributes, 1, walks)), sizes);
      ++checked;
    }
  }
  EXPECT_GT(checked, 75);
}

// Every operator, operands lying otherwise: strided, one for all rows, one for a row, one for all.
// What other dtypes are loaded and stored as has tests of its own.
class KernelsByCompute : public Kernels {};
TEST_P(KernelsByCompute, OfEveryOperatorOtherwise) {
  const Sizes sizes[] = {{4, 40}, {0, 3}, {3, 0}, {1, 1}, {29, 3}, {2, 1}};
  size_t turn = 0;
  for (const ir::Operator* op : ops::all()) {
    if (!op->pointwise) continue;
    constexpr std::string_view ways[] = {"strided, strided", "broadcast, contiguous",
                                         "strided, broadcast", "broadcast, broadcast",
                                         "broadcast, strided"};
    for (const std::string& attributes : attributes_of(*op)) {
      std::string_view walks[3];
      for (size_t k = 0; k < 3; ++k) walks[k] = ways[(turn + k * 2) % std::size(ways)];
      ++turn;
      expect_same(parse_nest(call_text(*op, dtype(), attributes, 2, walks)), sizes);
    }
  }
}

// Every way to lie, in three loops, in every dtype.
TEST_P(Kernels, WalkInEveryWay) {
  constexpr std::string_view last[] = {"contiguous", "strided", "broadcast"};
  constexpr std::string_view outer[] = {"strided", "broadcast"};
  const Sizes sizes[] = {{2, 3, 21}, {5, 1, 7}, {1, 4, 1}, {3, 0, 2}, {2, 2, 70}};
  for (std::string_view a : outer)
    for (std::string_view b : outer)
      for (std::string_view c : last) {
        std::string text = fmt::format(
            "nest 3 {{ %v0 = load {0} [{1}, {2}, {3}] %v1 = load {0} [strided, strided, "
            "contiguous] %v2 = maximum(%v0, %v1) : {0} in {4} store %v2, %v0 }}",
            name_of(dtype()), a, b, c, name_of(dtype_of(compute_of(dtype()))));
        expect_same(parse_nest(text), sizes);
      }
}

// From this dtype into every other.
TEST_P(Kernels, Convert) {
  std::string text = fmt::format("nest 1 {{ %v0 = load {} [contiguous]\n", name_of(dtype())),
              stores = "%v0";
  int v = 1;
  for (DType to : all_dtypes) {
    text += fmt::format("%v{} = convert(%v0) : {}\n", v, name_of(to));
    stores += fmt::format(", %v{}", v++);
  }
  const Sizes sizes[] = {{70000}};
  expect_same(parse_nest(text + "store " + stores + " }"), sizes);
}

// A value between steps is rounded to its dtype, as one that is stored and read again.
TEST_P(Kernels, RoundBetweenSteps) {
  DType d = dtype();
  std::string in = std::string(name_of(dtype_of(compute_of(d))));
  std::string text = fmt::format(
      "nest 1 {{ %v0 = load {0} [contiguous] %v1 = load {0} [contiguous] %v2 = number 3\n"
      "%v3 = mul(%v0, %v1) : {0} in {1}  %v4 = mul(%v3, %v2) : {0} in {1}\n"
      "%v5 = add(%v4, %v0) : {0} in {1}  %v6 = lt(%v5, %v1) : bool in {1}\n"
      "%v7 = where(%v6, %v5, %v2) : {0} in {1}  store %v7, %v6, %v3 }}",
      name_of(d), in);
  const Sizes sizes[] = {{5000}, {1}, {33}};
  expect_same(parse_nest(text), sizes);
}

// Their kernels take more elements at a time than others do.
TEST_P(Kernels, OfFunctionsThatWait) {
  DType d = dtype();
  if (!is_floating(d)) return;
  std::string in = std::string(name_of(dtype_of(compute_of(d))));
  for (std::string_view walk : {"contiguous", "strided", "broadcast"}) {
    std::string text = fmt::format(
        "nest 2 {{ %v0 = load {0} [strided, {2}] %v1 = load {0} [broadcast, contiguous]\n"
        "%v2 = tanh(%v0) : {0} in {1}  %v3 = mul(%v2, %v1) : {0} in {1}\n"
        "%v4 = sigmoid(%v3) : {0} in {1}  %v5 = sub(%v4, %v2) : {0} in {1}\n"
        "%v6 = sin(%v5) : {0} in {1}  store %v6, %v2 }}",
        name_of(d), in, walk);
    const Sizes sizes[] = {{1, 5000}, {3, 1}, {5, 15}, {4, 17}, {3, 31}, {2, 32}, {3, 33}, {2, 70}};
    expect_same(parse_nest(text), sizes);
  }
}

// Those of machines like this one; the others' code is in targets_test.cpp.
#if defined(__x86_64__)
const auto isas = testing::Values(Isa::avx2, Isa::avx512);
#else
const auto isas = testing::Values(Isa::neon);
#endif
std::string case_name(const testing::TestParamInfo<std::tuple<Isa, DType>>& info) {
  constexpr std::string_view names[] = {"avx2_", "avx512_", "neon_"};
  return std::string(names[static_cast<size_t>(std::get<0>(info.param))]) +
         std::string(name_of(std::get<1>(info.param)));
}
INSTANTIATE_TEST_SUITE_P(All, Kernels, testing::Combine(isas, testing::ValuesIn(all_dtypes)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(All, KernelsByCompute,
                         testing::Combine(isas,
                                          testing::Values(DType::f64, DType::f32, DType::i64)),
                         case_name);

// Numbers in operands' places, among them the exponents with rules of their own.
TEST(KernelNumbers, AreConstants) {
  if (!cpu::runs_here(some_isa)) GTEST_SKIP() << "no such instructions here";
  for (const char* dtype : {"f64", "f32", "f16"})
    for (const char* n : {"3.0", "2", "0.5", "-0.5", "-1", "-2.0", "0.7", "true", "7", "inf"}) {
      Nest nest = parse_nest(fmt::format(
          "nest 1 {{ %v0 = load {0} [contiguous] %v1 = number {1} %v2 = pow(%v0, %v1) : {0} in {2}"
          "  %v3 = pow(%v1, %v0) : {0} in {2} %v4 = add(%v0, %v1) : {0} in {2} store %v2, %v3, "
          "%v4 }}",
          dtype, n, std::string_view(dtype) == "f64" ? "f64" : "f32"));
      for (Isa isa : cpu::all_isas) {
        if (!cpu::runs_here(isa)) continue;
        auto kernel = compiler().compile(nest, isa);
        EXPECT_EQ(Memory(nest, {2000}, 3).difference(*kernel, workers()), "") << print(nest);
      }
    }
}

// A store may lie where a load lies; large runs are split; four loops.
TEST(KernelRuns, InPlaceAndSplit) {
  if (!cpu::runs_here(some_isa)) GTEST_SKIP() << "no such instructions here";
  Nest nest =
      parse_nest("nest 1 { %v0 = load f32 [contiguous] %v1 = exp(%v0) : f32 in f32 store %v1 }");
  auto kernel = compiler().compile(nest, some_isa);
  Memory large(nest, {100003}, 5);
  EXPECT_EQ(large.difference(*kernel, workers()), "");
  std::vector<float> x(45, 0.5f);
  std::byte* args[] = {reinterpret_cast<std::byte*>(x.data()),
                       reinterpret_cast<std::byte*>(x.data())};
  kernel->run({{45}, {{1}}}, args, workers());
  for (float y : x) EXPECT_EQ(y, x[0]);
  EXPECT_NEAR(x[0], std::exp(0.5), 1e-6);

  Nest deep = parse_nest(
      "nest 4 { %v0 = load f64 [strided, broadcast, strided, broadcast]\n"
      "%v1 = load i32 [broadcast, strided, strided, contiguous]\n"
      "%v2 = mul(%v0, %v1) : f64 in f64 store %v2, %v1 }");
  auto four = compiler().compile(deep, some_isa);
  for (Sizes sizes : {Sizes{3, 2, 5, 4}, Sizes{70, 3, 41, 20}, Sizes{2, 3, 1, 40000}})
    EXPECT_EQ(Memory(deep, sizes, 9).difference(*four, workers()), "") << to_string(sizes);
}

}  // namespace
}  // namespace gradus::fusion::test
