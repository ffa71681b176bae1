// Kernels do what the evaluator does, to the bit: for every kind of work, and whatever the sizes,
// the strides, the dtypes and the number of workers. GRADUS_TEST_SEED draws other instances.
// SPEC F6
#include <array>
#include <cstdlib>

#include <gtest/gtest.h>

#include "tests/reference/work.h"
#include "tests/work/trial.h"

namespace gradus::work::test {
namespace {

template <class T, size_t n>
std::byte* as_bytes(const std::array<T, n>& list) {
  return reinterpret_cast<std::byte*>(const_cast<T*>(list.data()));
}

template <class W>
class Evaluator : public testing::Test {};

template <class W>
struct KindsOf;
template <class... W>
struct KindsOf<std::variant<W...>> {
  using Types = testing::Types<W...>;
};
struct Names {
  template <class W>
  static std::string GetName(int) {
    return std::string(W::name);
  }
};
// A kind without a `draw` is an undefined reference.
TYPED_TEST_SUITE(Evaluator, KindsOf<Kinds>::Types, Names);

TYPED_TEST(Evaluator, AgreesWithKernels) {
  constexpr uint64_t trials = 300;
  const char* given = std::getenv("GRADUS_TEST_SEED");
  const uint64_t seed = given ? std::strtoull(given, nullptr, 10) : 1;
  int faults = 0;
  for (uint64_t n = 0; n < trials && faults < 3; ++n) {
    Random random(seed * 1'000'003 + n);
    Trial trial(random);
    draw<TypeParam>(random, trial);
    ASSERT_TRUE(std::holds_alternative<TypeParam>(trial.work));
    const std::string fault = trial.check();
    if (fault.empty()) continue;
    ++faults;
    ADD_FAILURE() << "GRADUS_TEST_SEED=" << seed << ", trial " << n << ": " << print(trial.work)
                  << "\n"
                  << fault;
  }
}

// Kernels leave that to a device's library: the row is added before the sum is rounded.
TEST(EvaluatorOfProducts, AddsARow) {
  const std::array a{Half(1), Half(1)}, row{Half(1), Half(-7)};
  const std::array b{Half(2048), Half(3), Half(1), Half(4)};
  std::array<Half, 2> y;
  std::byte* args[] = {as_bytes(a), as_bytes(b), as_bytes(row), as_bytes(y)};
  const Gemm g{DType::f16, 1, 2, 2, 2, 1, 2, 1, {}};
  reference::evaluate(Product{g, true}, args);
  EXPECT_EQ(static_cast<float>(y[0]), 2050);
  EXPECT_EQ(static_cast<float>(y[1]), 0);
}

}  // namespace
}  // namespace gradus::work::test
