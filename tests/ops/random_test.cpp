// Random numbers: the published numbers of the generator, streams, moments, threads.
#include <algorithm>
#include <cmath>

#include "ops/philox.h"
#include "tests/ops/shape_support.h"

namespace gradus::ops::test {
namespace {

// The vectors that come with Random123.
TEST(Random, IsPhilox) {
  using Four = std::array<uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

Tensor key(int64_t k, int64_t stream) {
  Tensor t = Tensor::zeros(DType::i64, Sizes{2});
  t.mutable_data_as<int64_t>()[0] = k;
  t.mutable_data_as<int64_t>()[1] = stream;
  return t;
}

TEST(Random, ElementsAreNumbersOfTheStream) {
  const int64_t k = 0x299f31d0a4093822, stream = 0x0370734413198a2e;
  auto y = run_one("random_bits", {key(k, stream)}, {ints("shape", {3, 7})}).to_int64s();
  for (size_t i = 0; i < y.size(); ++i) {
    auto four =
        philox({static_cast<uint32_t>(i / 4), 0, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
    EXPECT_EQ(y[i], four[i % 4]) << i;
  }
}

// A key that begins with another block goes on from there, also past the lower half of 32 bits.
TEST(Random, BeginsWithABlock) {
  const int64_t k = 0x299f31d0a4093822, block = 0xffffffff;
  const LiteralList attributes{ints("shape", {9}), attribute("by_block", true)};
  auto y = run_one("random_bits", {key(k, block)}, attributes).to_int64s();
  for (size_t i = 0; i < y.size(); ++i) {
    const uint64_t at = 0xffffffffu + i / 4;
    auto four = philox({static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32), 0, 0},
                       {0xa4093822, 0x299f31d0});
    EXPECT_EQ(y[i], four[i % 4]) << i;
  }
}

// A list of keys has the numbers of each.
TEST(Random, OfSeveralKeys) {
  const Tensor keys =
      Tensor::from(DType::i64, Sizes{3, 2}, std::vector<double>{1, 2, -3, 4, 5, -6});
  const LiteralList attributes{ints("shape", {3, 7})};
  const Tensor all = run_one("random_bits", {keys}, attributes);
  EXPECT_EQ(Sizes(all.shape()), (Sizes{3, 3, 7}));
  const auto y = all.to_int64s(), given = keys.to_int64s();
  for (size_t k = 0; k < 3; ++k) {
    const auto one =
        run_one("random_bits", {key(given[2 * k], given[2 * k + 1])}, attributes).to_int64s();
    EXPECT_TRUE(std::equal(one.begin(), one.end(), y.begin() + static_cast<ptrdiff_t>(21 * k)));
  }
}

TEST(Random, PermutationsHaveAllPlacesAndEachPlaceAllNumbers) {
  constexpr int64_t n = 5, draws = 4000;
  std::vector<int64_t> counts(n * n);
  for (int64_t k = 0; k < draws; ++k) {
    std::vector<bool> seen(n);
    auto y = run_one("randperm", {key(k, 1)}, {attribute("n", n)}).to_int64s();
    for (size_t i = 0; i < y.size(); ++i) {
      seen[static_cast<size_t>(y[i])] = true;
      ++counts[i * n + static_cast<size_t>(y[i])];
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), true), n) << k;
  }
  // Five standard deviations.
  for (int64_t c : counts) EXPECT_NEAR(c, draws / n, 5 * std::sqrt(draws * 0.2 * 0.8));
}

TEST(Random, DoesNotDependOnThreads) {
  Context one(ContextOptions{.workers = 1, .allocator = {}, .log = {}});
  Context many(ContextOptions{.workers = 4, .allocator = {}, .log = {}});
  const Operator& op = *find("random_bits");
  Attributes attributes = op.read({ints("shape", {100003})});
  EagerOperand operand = key(7, 3);
  EXPECT_TRUE(bitwise_equal(evaluate(op, attributes, {&operand, 1}, one)[0],
                            evaluate(op, attributes, {&operand, 1}, many)[0]));
}

TEST(Random, HasTheMomentsThatItShould) {
  constexpr int64_t n = 200000;
  for (DType dtype : {DType::f64, DType::f32, DType::f16}) {
    LiteralList attributes{ints("shape", {n}), attribute("dtype", dtype)};
    auto u = run_one("uniform", {key(42, 0)}, attributes).to_doubles();
    auto z = run_one("normal", {key(42, 1)}, attributes).to_doubles();
    double mean = 0, square = 0, z_mean = 0, z_square = 0, z_fourth = 0;
    for (int64_t i = 0; i < n; ++i) {
      const auto k = static_cast<size_t>(i);
      ASSERT_TRUE(u[k] >= 0 && u[k] < 1);
      ASSERT_TRUE(std::isfinite(z[k]));
      mean += u[k] / n;
      square += u[k] * u[k] / n;
      z_mean += z[k] / n;
      z_square += z[k] * z[k] / n;
      z_fourth += z[k] * z[k] * z[k] * z[k] / n;
    }
    // Five standard deviations of such means.
    EXPECT_NEAR(mean, 0.5, 5 * 0.289 / std::sqrt(n));
    EXPECT_NEAR(square, 1.0 / 3, 5 * 0.298 / std::sqrt(n));
    EXPECT_NEAR(z_mean, 0, 5 / std::sqrt(n));
    EXPECT_NEAR(z_square, 1, 5 * 1.42 / std::sqrt(n));
    EXPECT_NEAR(z_fourth, 3, 5 * 9.8 / std::sqrt(n));
  }
}

}  // namespace
}  // namespace gradus::ops::test
