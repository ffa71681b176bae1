// Derivatives of reductions and scans up to the third, and what they are at zeros, ties and kinks.
// SPEC D3
#include <cmath>

#include "tests/ops/pointwise_support.h"

namespace gradus::ops::test {
namespace {

NamedLiteral dim(int64_t d) { return attribute("dim", d); }
NamedLiteral keep() { return attribute("keepdim", true); }
Tensor smooth(std::initializer_list<int64_t> shape, double low = 0.5, double high = 1.5) {
  return uniform(Sizes(shape), low, high, 3);
}

// No result of stages 1 to 3 is infinite or NaN, those for cotangents included.
void expect_finite(std::string_view op, const Tensor& x, const LiteralList& attributes) {
  Program program(op, {x}, attributes, 3);
  std::vector<std::vector<Tensor>> at{program.inputs()};
  for (size_t s = 1; s <= 3; ++s) {
    at.emplace_back();
    for (ir::ValueId v : program.graph().stages[s].inputs) {
      Sizes shape;
      for (const Dim& d : program.graph()[v].type.dims) shape.push_back(d.value());
      at[s].push_back(uniform(shape, -1, 1, 10 * s + at[s].size()));
    }
  }
  for (const auto& stage : program.run(at))
    for (const Tensor& t : stage)
      for (double v : t.defined() ? t.to_doubles() : std::vector<double>())
        EXPECT_TRUE(std::isfinite(v)) << op;
}

TEST(ReductionDerivative, OfSumsAndMeans) {
  for (auto op : {"sum", "mean"}) {
    expect_derivatives(op, {random_tensor({2, 3, 4}, 1)}, {ints("dim", {0, 2})});
    expect_derivatives(op, {random_tensor({2, 3}, 1)}, {dim(-1), keep()});
    expect_derivatives(op, {random_tensor({}, 1)});
    expect_derivatives(op, {random_tensor({1, 5}, 1)}, {dim(0)});
  }
  expect_derivatives("sum", {random_tensor({0, 3}, 1)}, {dim(0)});
}

TEST(ReductionDerivative, OfProducts) {
  expect_smooth_derivatives("prod", {smooth({4})});
  expect_smooth_derivatives("prod", {smooth({3, 4})}, {dim(0)});
  expect_smooth_derivatives("prod", {smooth({2, 3})}, {dim(1), keep()});
  expect_smooth_derivatives("prod", {smooth({2, 2, 2})});
  expect_smooth_derivatives("prod", {smooth({})});
}

TEST(ReductionDerivative, OfProductsWithZerosAtAnyOrder) {
  // One, two and three zeros in a row, none, and only zeros.
  std::vector<double> rows{2, 0,   3, 0.5, 1, 0, 0, 4, 5, 0.25, 0, 0, 0,
                           1, 1.5, 2, 3,   4, 1, 2, 0, 0, 0,    0, 0};
  Tensor x = Tensor::from(DType::f64, Sizes{5, 5}, rows);
  expect_smooth_derivatives("prod", {x}, {dim(1)});
  expect_smooth_derivatives("cumprod", {x}, {dim(1)});
  expect_smooth_derivatives("cumprod", {x}, {dim(0)});
  expect_smooth_derivatives("cumprod", {x}, {dim(1), attribute("reverse", true)});
  expect_smooth_derivatives("cumprod", {x}, {dim(1), attribute("exclusive", true)});
  Tensor three = Tensor::from(DType::f64, Sizes{4}, std::vector<double>{0, 0, 7, 0});
  auto s = slopes("prod", {three}, {}, 3);
  expect_same(s[1], {0, 0, 0, 0});
  expect_same(s[2], {0, 0, 0, 0});
  // d3 sums 7 over the orders of the three zeros' product: 2 for each of them, seen from the third.
  expect_same(s[3], {14, 14, 0, 14});
}

TEST(ReductionDerivative, OfExtrema) {
  Tensor x = Tensor::from(DType::f64, Sizes{2, 4}, std::vector<double>{1, 3, 3, 2, 2, 2, 2, 2});
  expect_same(slopes("amax", {x}, {dim(1)}, 2)[1], {0, 0.5, 0.5, 0, 0.25, 0.25, 0.25, 0.25});
  expect_same(slopes("amin", {x})[1], {1, 0, 0, 0, 0, 0, 0, 0});
  expect_same(slopes("max_all", {x})[1], {0, 0.5, 0.5, 0, 0, 0, 0, 0});
  expect_same(slopes("max_dim", {x}, {dim(1)})[1], {0, 1, 0, 0, 1, 0, 0, 0});
  expect_same(slopes("min_dim", {x}, {dim(0), keep()})[1], {1, 0, 0, 1, 0, 1, 1, 0});
  expect_same(slopes("cummax", {x}, {dim(1)})[1], {1, 1, 2, 0, 1, 1, 1, 1});
  Tensor y = smooth({3, 5});
  for (auto op : {"amax", "amin"}) expect_smooth_derivatives(op, {y}, {ints("dim", {1})});
  for (auto op : {"max_dim", "min_dim"}) expect_smooth_derivatives(op, {y}, {dim(0)});
}

TEST(ReductionDerivative, OfVariances) {
  for (auto op : {"var", "std"}) {
    expect_smooth_derivatives(op, {smooth({3, 5})}, {ints("dim", {1})});
    expect_smooth_derivatives(op, {smooth({3, 4})}, {attribute("correction", int64_t{0}), keep()});
  }
  // A spread of zero: sqrt has no slope there, the convention is 0, at every order.
  Tensor flat = Tensor::from(DType::f64, Sizes{3}, std::vector<double>{2, 2, 2});
  auto s = slopes("std", {flat}, {}, 3);
  for (int k = 1; k <= 3; ++k) expect_same(s[k], {0, 0, 0});
  expect_finite("std", flat, {});
}

TEST(ReductionDerivative, OfLogSumExp) {
  expect_smooth_derivatives("logsumexp", {smooth({3, 4})}, {ints("dim", {0})});
  expect_smooth_derivatives("logsumexp", {smooth({3, 4}, 500, 502)}, {keep()});
  expect_smooth_derivatives("logcumsumexp", {smooth({3, 4}, -2, 2)}, {dim(1)});
  // Terms of weight zero take no part, at any order.
  Tensor masked = Tensor::from(DType::f64, Sizes{3}, std::vector<double>{-INFINITY, 0, 0});
  for (auto op : {"logsumexp"}) {
    auto s = slopes(op, {masked}, {}, 3);
    expect_same(s[1], {0, 0.5, 0.5});
    expect_same(s[2], {0, 0, 0});
    expect_same(s[3], {0, 0, 0});
  }
  auto s = slopes("logcumsumexp", {masked}, {dim(0)}, 2);
  expect_same(s[1], {0, 1.5, 0.5});
  EXPECT_TRUE(std::isfinite(s[2][0]) && std::isfinite(s[2][1]) && std::isfinite(s[2][2]));
  // What comes before an infinity has its own part, what comes after it has none.
  Tensor infinite = Tensor::from(DType::f64, Sizes{4}, std::vector<double>{1, 0.5, INFINITY, 2});
  auto t = slopes("logcumsumexp", {infinite}, {dim(0)}, 1);
  const double share = 1 / (1 + std::exp(-0.5));
  EXPECT_NEAR(t[1][0], 1 + share, 1e-14);
  EXPECT_NEAR(t[1][1], 1 - share, 1e-14);
  EXPECT_TRUE(std::isnan(t[1][2]));
  EXPECT_EQ(t[1][3], 0);
}

TEST(ReductionDerivative, OfNorms) {
  for (double p : {1.0, 1.5, 2.0, 3.0, 2.5, 0.5, double(INFINITY), -double(INFINITY)})
    expect_smooth_derivatives("norm", {smooth({3, 4})}, {attribute("p", p), ints("dim", {1})});
  // Subgradients at 0 are 0, at every order.
  Tensor zero = Tensor::zeros(DType::f64, Sizes{3});
  expect_same(slopes("norm", {zero}, {attribute("p", 1.0)})[1], {0, 0, 0});
  for (double p : {1.5, 2.0, 3.0, 0.5, 2.5})
    for (int k = 1; k <= 3; ++k)
      expect_same(slopes("norm", {zero}, {attribute("p", p)}, 3)[k], {0, 0, 0});
  for (double p : {1.0, 1.5, 2.0, 3.0, 0.5, 2.5}) expect_finite("norm", zero, {attribute("p", p)});
  Tensor part = Tensor::from(DType::f64, Sizes{2}, std::vector<double>{0, 2});
  for (double p : {1.5, 2.5, 0.5}) {
    auto s = slopes("norm", {part}, {attribute("p", p)}, 2);
    EXPECT_EQ(s[1][0], 0) << p;
    EXPECT_NEAR(s[1][1], 1, 1e-15) << p;
    expect_finite("norm", part, {attribute("p", p)});
  }
}

TEST(ReductionDerivative, OfScans) {
  expect_derivatives("cumsum", {random_tensor({2, 3}, 1)}, {dim(1)});
  expect_derivatives("cumsum", {random_tensor({2, 3}, 1)},
                     {dim(0), attribute("exclusive", true), attribute("reverse", true)});
  expect_smooth_derivatives("cumprod", {smooth({2, 4})}, {dim(1)});
  expect_smooth_derivatives("cumprod", {smooth({})}, {dim(0)});
  for (bool reverse : {false, true})
    expect_smooth_derivatives("linear_recurrence", {smooth({2, 5}), uniform(Sizes{2, 5}, -1, 1, 9)},
                              {dim(1), attribute("reverse", reverse)});
}

}  // namespace
}  // namespace gradus::ops::test
