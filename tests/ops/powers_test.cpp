// Powers by numbers that have a rule of their own, to the bit.
#include <cmath>

#include "tests/ops/pointwise_support.h"

namespace gradus::ops::test {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

template <class T>
T rule(T x, double exponent) {
  if (exponent == 2) return x * x;
  if (exponent == 3) return x * x * x;
  if (exponent == 0.5) return std::sqrt(x);
  if (exponent == -0.5) return T(1) / std::sqrt(x);
  if (exponent == -1) return T(1) / x;
  return T(1) / (x * x);
}

template <class T>
void expect_rule(DType dtype, const std::vector<double>& values, double exponent,
                 const EagerOperand& written) {
  Tensor x = vector_of(values, dtype);
  std::vector<double> want;
  for (double v : x.to_doubles())
    want.push_back(static_cast<double>(rule(static_cast<T>(v), exponent)));
  Tensor rounded = vector_of(want, dtype);
  expect_same(run_one("pow", {x, written}).to_doubles(), rounded.to_doubles(), true);
  expect_same(run_one("pow", {scattered(x), written}).to_doubles(), rounded.to_doubles(), true);
}

TEST(Powers, ByTheseNumbersAreProductsAndRoots) {
  auto values = uniform(Sizes{700}, -3, 3, 1).to_doubles();
  for (double special : {0.0, -0.0, inf, -inf, 1e-30, -1e30, 1.0}) values.push_back(special);
  for (double exponent : {2.0, 3.0, 0.5, -0.5, -1.0, -2.0}) {
    SCOPED_TRACE(exponent);
    expect_rule<double>(DType::f64, values, exponent, number(exponent));
    expect_rule<float>(DType::f32, values, exponent, number(exponent));
    expect_rule<float>(DType::f16, values, exponent, number(exponent));
    if (exponent != std::trunc(exponent)) continue;
    expect_rule<double>(DType::f64, values, exponent, integer(static_cast<int64_t>(exponent)));
    expect_rule<float>(DType::bf16, values, exponent, integer(static_cast<int64_t>(exponent)));
  }
}

TEST(Powers, ByOthersAreGeneral) {
  Tensor x = uniform(Sizes{300}, 0.1, 3, 2);
  for (double exponent : {4.0, 1.5, -3.0, 2.0000000001}) {
    auto got = run_one("pow", {x, number(exponent)}).to_doubles(), from = x.to_doubles();
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], std::pow(from[i], exponent), 1e-14 * got[i]);
  }
  // The exponent's elements decide nothing: a tensor of twos takes the general way, at -0 too.
  Tensor half = Tensor::scalar(DType::f64, 0.5), minus = vector_of({-0.0, -inf});
  expect_same(run_one("pow", {minus, half}).to_doubles(), {0.0, inf}, true);
  expect_same(run_one("pow", {minus, number(0.5)}).to_doubles(), {-0.0, std::nan("")});
}

TEST(Powers, OfIntegersStayWhole) {
  Tensor x = vector_of({-3, 0, 7, 1}, DType::i64);
  EXPECT_EQ(run_one("pow", {x, integer(2)}).to_doubles(), (std::vector<double>{9, 0, 49, 1}));
  EXPECT_EQ(run_one("pow", {x, integer(3)}).to_doubles(), (std::vector<double>{-27, 0, 343, 1}));
  EXPECT_EQ(run_one("pow", {x, number(2.0)}).dtype(), DType::f32);
  EXPECT_EQ(run_one("pow", {x, number(2.0)}).to_doubles(), (std::vector<double>{9, 0, 49, 1}));
}

TEST(Powers, HaveDerivatives) {
  for (double exponent : {2.0, 3.0, 0.5, -0.5, -1.0, -2.0})
    expect_smooth_derivatives("pow", {uniform(Sizes{5}, 0.5, 2, 3), number(exponent)});
}

}  // namespace
}  // namespace gradus::ops::test
