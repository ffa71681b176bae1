// Interpreted CUDA kernels of rows give the bits of the reference order of reductions.
// SPEC F6
#include "tests/cuda/same.h"
#include "tests/fusion/row_nests.h"

namespace gradus::fusion::test {
namespace {

class CudaRows : public testing::TestWithParam<DType> {};

// Every reducer: rows that one chunk holds, that as many chunks as groups of threads do, and that
// take several passes; more rows than blocks have.
TEST_P(CudaRows, ReduceInTheReferenceOrder) {
  GRADUS_NEEDS_NVRTC();
  const DType d = GetParam();
  const Sizes sizes[] = {{3, 1},     {5, 15},    {2, 16},    {17, 17},  {2, 100},
                         {3, 1023},  {2, 1024},  {2, 1025},  {9, 2048}, {1, 2049},
                         {3, 3100},  {2, 7168},  {1, 9000},  {0, 5},    {600, 3},
                         {2, 16384}, {1, 16385}, {1, 33000}, {2, 50001}};
  std::string nest = fmt::format("nest 2 {{ %v0 = load {} [strided, contiguous]\n", name_of(d));
  std::string rows = "store_row ";
  for (size_t i = 0; i < std::size(reducers); ++i) {
    nest += fmt::format("%v{} = {}\n", i + 1, reduction(reducers[i], "%v0", d));
    rows += fmt::format("{}%v{}", i ? ", " : "", i + 1);
  }
  expect_same(parse_nest(nest + rows + "}"), sizes);
}

TEST_P(CudaRows, LieInEveryWay) {
  GRADUS_NEEDS_NVRTC();
  const DType d = GetParam();
  const Sizes sizes[] = {{3, 33}, {2, 1500}};
  for (std::string_view walk : {"strided, strided", "broadcast, contiguous", "strided, broadcast"})
    expect_same(parse_nest(fmt::format("nest 2 {{ %v0 = load {} [{}] %v1 = {} %v2 = {}\n"
                                       "store_row %v1, %v2 store %v1, %v0 }}",
                                       name_of(d), walk, reduction("sum", "%v0", d),
                                       reduction("max", "%v0", d))),
                sizes);
}
INSTANTIATE_TEST_SUITE_P(All, CudaRows, testing::ValuesIn(all_dtypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

const Sizes several[] = {{5, 1}, {3, 16}, {7, 100}, {2, 1024}, {3, 5000}, {1, 20000}, {300, 33}};

// Values that wait in a result's place, and reductions that wait for others.
TEST(CudaRowKernels, OfSoftmaxAndItsDerivative) {
  GRADUS_NEEDS_NVRTC();
  for (std::string_view d : {"f32", "f64", "f16", "bf16"}) {
    expect_same(parse_nest(softmax_nest(d)), several);
    expect_same(parse_nest(softmax_derivative_nest(d)), several);
  }
}

TEST(CudaRowKernels, OfSeveralLevelsAndLoops) {
  GRADUS_NEEDS_NVRTC();
  const Sizes sizes[] = {{2, 3, 7}, {3, 1, 1100}, {1, 2, 17000}, {4, 50, 3}};
  expect_same(parse_nest("nest 3 { %v0 = load f32 [strided, strided, contiguous]\n"
                         "%v1 = load f64 [broadcast, broadcast, contiguous]\n"
                         "%v2 = load bf16 [broadcast, strided, broadcast]\n"
                         "%v3 = load bool [strided, broadcast, strided]\n"
                         "%v4 = number 0.001\n"
                         "%v5 = reduce sum(%v0) : f32 in f32\n"
                         "%v6 = mul(%v5, %v4) : f32 in f32\n"
                         "%v7 = sub(%v0, %v6) : f32 in f32\n"
                         "%v8 = square(%v7) : f32 in f32\n"
                         "%v9 = reduce sum(%v8) : f32 in f32\n"
                         "%v10 = reduce max(%v1) : f64 in f64\n"
                         "%v11 = reduce any(%v3) : bool\n"
                         "%v12 = where(%v11, %v9, %v2) : f32 in f32\n"
                         "%v13 = mul(%v7, %v12) : f32 in f32\n"
                         "store %v13, %v3 store_row %v10, %v12 }"),
              sizes);
}

// A row's values without a reduction.
TEST(CudaRowKernels, ThatReduceNothing) {
  GRADUS_NEEDS_NVRTC();
  const Sizes sizes[] = {{4, 3}, {2, 1025}, {3, 1}};
  expect_same(parse_nest("nest 2 { %v0 = load f32 [strided, broadcast]\n"
                         "%v1 = load i32 [strided, contiguous]\n"
                         "%v2 = exp(%v0) : f32 in f32 %v3 = mul(%v2, %v1) : f32 in f32\n"
                         "store %v3 store_row %v2 }"),
              sizes);
}

}  // namespace
}  // namespace gradus::fusion::test
