// Interpreted CUDA kernels give the bits of the reference loops: every pointwise operator, every
// conversion, however operands lie.
// SPEC F6
#include "tests/cuda/same.h"
#include "tests/fusion/calls.h"
#include "tests/reference/work.h"

namespace gradus::fusion::test {
namespace {

// Operators with a rule for what a dtype is computed in, some of them for each test.
class CudaOperators : public testing::TestWithParam<std::tuple<DType, size_t>> {};
constexpr size_t parts = 8;

TEST_P(CudaOperators, GiveTheBitsOfTheLoops) {
  GRADUS_NEEDS_NVRTC();
  const auto [dtype, part] = GetParam();
  const Sizes sizes[] = {{1}, {3}, {2500}};
  size_t n = 0, checked = 0;
  for (const ir::Operator* op : ops::all()) {
    if (!op->pointwise) continue;
    for (const std::string& attributes : attributes_of(*op)) {
      if (n++ % parts != part) continue;
      constexpr std::string_view walks[] = {"contiguous"};
      expect_same(parse_nest(call_text(*op, dtype, attributes, 1, walks)), sizes);
      ++checked;
    }
  }
  EXPECT_GT(checked, 9u);
}
INSTANTIATE_TEST_SUITE_P(All, CudaOperators,
                         testing::Combine(testing::Values(DType::f64, DType::f32, DType::i64),
                                          testing::Range(size_t{0}, parts)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", name_of(std::get<0>(info.param)),
                                              std::get<1>(info.param));
                         });

class CudaConversions : public testing::TestWithParam<DType> {};

TEST_P(CudaConversions, OfEveryDtype) {
  GRADUS_NEEDS_NVRTC();
  std::string nest = fmt::format("nest 1 {{ %v0 = load {} [contiguous]\n", name_of(GetParam())),
              stores = "store %v0";
  int v = 1;
  for (DType to : all_dtypes) {
    nest += fmt::format("%v{} = convert(%v0) : {}\n", v, name_of(to));
    stores += fmt::format(", %v{}", v++);
  }
  const Sizes sizes[] = {{7}, {4000}};
  expect_same(parse_nest(nest + stores + "}"), sizes);
}
INSTANTIATE_TEST_SUITE_P(All, CudaConversions, testing::ValuesIn(all_dtypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// Loads in three loops, lying in every way, in every dtype; packs that are whole, and that are not.
TEST_P(CudaConversions, WalkInEveryWay) {
  GRADUS_NEEDS_NVRTC();
  constexpr std::string_view ways[] = {
      "strided, strided, contiguous",   "broadcast, strided, contiguous",
      "strided, broadcast, contiguous", "strided, strided, strided",
      "strided, strided, broadcast",    "broadcast, broadcast, strided",
      "broadcast, strided, broadcast",  "broadcast, broadcast, broadcast"};
  std::string nest = "nest 3 {\n", stores = "store ";
  size_t v = 0;
  for (std::string_view way : ways) {
    nest += fmt::format("%v{} = load {} [{}]\n", v, name_of(GetParam()), way);
    stores += fmt::format("{}%v{}", v ? ", " : "", v);
    ++v;
  }
  const Sizes sizes[] = {{2, 3, 5}, {3, 2, 16}, {1, 5, 1}, {2, 1, 33}, {2, 0, 3}, {5, 1, 8}};
  expect_same(parse_nest(nest + stores + "}"), sizes);
}

// Neighbours are read and written at once where they are aligned, and one by one where not.
TEST(CudaElements, AreAlignedOrNot) {
  GRADUS_NEEDS_NVRTC();
  WorkerPool workers(1);
  const Nest nest = parse_nest(
      "nest 2 { %v0 = load f32 [strided, contiguous] %v1 = load f16 [broadcast, contiguous]\n"
      "%v2 = add(%v0, %v1) : f32 in f32 store %v2 }");
  const auto kernel = interpreted(nest);
  alignas(16) float x[400], y[400], expected[400];
  alignas(16) uint16_t h[64];
  for (int i = 0; i < 400; ++i) x[i] = static_cast<float>(i) * 0.37f;
  for (int i = 0; i < 64; ++i) h[i] = static_cast<uint16_t>(0x3c00 + 13 * i);
  uint64_t whole = 0, by_one = 0;
  for (int64_t columns : {16, 20, 18})
    for (int64_t gap : {0, 4, 3})
      for (int offset : {0, 1}) {
        const Frame frame{{5, columns}, {{columns + gap, 1}, {0, 1}}};
        auto run = [&](float* to) {
          return std::vector<std::byte*>{reinterpret_cast<std::byte*>(x + offset),
                                         reinterpret_cast<std::byte*>(h),
                                         reinterpret_cast<std::byte*>(to + offset)};
        };
        reference::evaluate(nest, frame, run(expected).data());
        const uint64_t before = Interpreted::instructions();
        work::Kernel bound = kernel->bind(frame);
        work::KernelScope scope{workers, nullptr};
        bound.run(bound.parameters.get(), run(y).data(), scope);
        for (int64_t i = 0; i < 5 * columns; ++i)
          ASSERT_EQ(y[offset + i], expected[offset + i]) << columns << ' ' << gap << ' ' << offset;
        if (columns == 16 && gap == 0)
          (offset ? by_one : whole) = Interpreted::instructions() - before;
      }
  EXPECT_LT(whole, by_one);
}

// An operand that is written over: each element is read before.
TEST(CudaElements, MayBeWrittenInPlace) {
  GRADUS_NEEDS_NVRTC();
  WorkerPool workers(1);
  const Nest nest = parse_nest(
      "nest 1 { %v0 = load f64 [contiguous] %v1 = number 2 %v2 = mul(%v0, %v1) : f64 in f64\n"
      "store %v2 }");
  std::vector<double> x(1000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  work::Kernel bound = interpreted(nest)->bind({{1000}, {{1}}});
  work::KernelScope scope{workers, nullptr};
  auto* at = reinterpret_cast<std::byte*>(x.data());
  std::byte* args[] = {at, at};
  bound.run(bound.parameters.get(), args, scope);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], 2 * static_cast<double>(i));
}

}  // namespace
}  // namespace gradus::fusion::test
