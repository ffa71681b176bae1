// The world of numbers: constants, integers without traps, roundings, conversions.
#include <gtest/gtest.h>

#include "tests/ops/scalar_test_functions.h"

namespace gradus::scalar::test {
namespace {

using F = Num<float>;
using D = Num<double>;
using I = Num<int64_t>;
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

static_assert(Floating<F> && Floating<D> && Integral<I> && Integral<F::Int>);
static_assert(F::bits == 32 && D::bits == 64 && F::Int::bits == 32 && D::Int::bits == 64);

template <class T>
bool same(T a, T b) {
  return std::isnan(a) ? std::isnan(b) : std::memcmp(&a, &b, sizeof a) == 0;
}

TEST(ScalarNum, ConstantsAreRoundedToTheOperand) {
  EXPECT_EQ((F{1} + 0.1).value, 1 + 0.1f);
  EXPECT_EQ((0.1 - F{1}).value, 0.1f - 1);
  EXPECT_EQ((2.0 / D{3}).value, 2.0 / 3);
  EXPECT_EQ(like(F{0}, 1e40).value, std::numeric_limits<float>::infinity());
  EXPECT_EQ(fma(F{3}, 0.1, 1.0).value, std::fma(3.0f, 0.1f, 1.0f));
  EXPECT_EQ(fma(2.0, D{3}, 4.0).value, 10);
  EXPECT_EQ(fma(2.0, 3.0, D{4}).value, 10);
  EXPECT_EQ(fma(2.0, D{3}, D{4}).value, 10);
  EXPECT_EQ(select(D{1} < 2.0, 5.0, D{6}).value, 5);
  EXPECT_EQ(select(3.0 <= D{1}, D{5}, 6.0).value, 6);
  EXPECT_EQ((I{7} * 3 - 1).value, 20);
}

TEST(ScalarNum, ComparisonsWithNaN) {
  D nan{std::nan("")}, one{1};
  EXPECT_FALSE((nan == nan).value);
  EXPECT_TRUE((nan != nan).value);
  EXPECT_FALSE((nan < one).value);
  EXPECT_FALSE((nan >= one).value);
  EXPECT_TRUE((!(nan >= one)).value);
  EXPECT_TRUE(((one == 1.0) & (one > 0.0)).value);
  EXPECT_TRUE(((one == 2.0) | (one > 0.0)).value);
  EXPECT_FALSE(((one == 1.0) ^ (one > 0.0)).value);
  EXPECT_TRUE(like(one == one, true).value);
}

TEST(ScalarNum, MaximumAndMinimum) {
  float nan = std::nanf("");
  EXPECT_TRUE(std::isnan(maximum(F{nan}, F{1}).value));
  EXPECT_TRUE(std::isnan(maximum(F{1}, F{nan}).value));
  EXPECT_TRUE(std::isnan(minimum(F{nan}, F{1}).value));
  EXPECT_TRUE(std::isnan(minimum(F{1}, F{nan}).value));
  EXPECT_EQ(fmax(F{nan}, F{1}).value, 1);
  EXPECT_EQ(fmax(F{1}, F{nan}).value, 1);
  EXPECT_EQ(fmin(F{nan}, F{1}).value, 1);
  EXPECT_EQ(fmin(F{1}, F{nan}).value, 1);
  EXPECT_TRUE(std::isnan(fmax(F{nan}, F{nan}).value));
  EXPECT_EQ(maximum(F{2}, F{1}).value, 2);
  EXPECT_EQ(minimum(F{2}, F{1}).value, 1);
  EXPECT_EQ(maximum(I{kMin}, I{kMax}).value, kMax);
  EXPECT_EQ(minimum(I{kMin}, I{kMax}).value, kMin);
}

TEST(ScalarNum, IntegersWrap) {
  EXPECT_EQ((I{kMax} + 1).value, kMin);
  EXPECT_EQ((I{kMin} - 1).value, kMax);
  EXPECT_EQ((I{kMax} * 2).value, -2);
  EXPECT_EQ((-I{kMin}).value, kMin);
  EXPECT_EQ(abs(I{kMin}).value, kMin);
  EXPECT_EQ(abs(I{-5}).value, 5);
  EXPECT_EQ((I{-1} << 63).value, kMin);
  EXPECT_EQ((I{kMin} >> 63).value, -1);
  EXPECT_EQ(lshr(I{kMin}, 63).value, 1);
  EXPECT_EQ(shl(I{3}, I{4}).value, 48);
  EXPECT_EQ(lshr(I{-1}, I{60}).value, 15);
  EXPECT_EQ((~I{0}).value, -1);
  EXPECT_EQ(((I{12} & 10) | 1).value, 9);
  EXPECT_EQ((I{12} ^ I{10}).value, 6);
}

TEST(ScalarNum, DivisionIsTotal) {
  struct Row {
    int64_t a, b, trunc, floor, mod, rem;
  };
  for (Row r : {Row{7, 2, 3, 3, 1, 1}, Row{-7, 2, -3, -4, 1, -1}, Row{7, -2, -3, -4, -1, 1},
                Row{-7, -2, 3, 3, -1, -1}, Row{6, 3, 2, 2, 0, 0}, Row{-6, 3, -2, -2, 0, 0},
                Row{5, 0, 0, 0, 0, 0}, Row{kMin, 0, 0, 0, 0, 0}, Row{kMin, -1, kMin, kMin, 0, 0},
                Row{kMin, 1, kMin, kMin, 0, 0}, Row{kMin, kMax, -1, -2, kMax - 1, -1},
                Row{kMax, kMin, 0, -1, -1, kMax}, Row{1, kMin, 0, -1, kMin + 1, 1},
                Row{kMax, -1, -kMax, -kMax, 0, 0}}) {
    EXPECT_EQ(trunc_div(I{r.a}, I{r.b}).value, r.trunc) << r.a << " " << r.b;
    EXPECT_EQ(floor_div(I{r.a}, I{r.b}).value, r.floor) << r.a << " " << r.b;
    EXPECT_EQ(floor_mod(I{r.a}, I{r.b}).value, r.mod) << r.a << " " << r.b;
    EXPECT_EQ(c_rem(I{r.a}, I{r.b}).value, r.rem) << r.a << " " << r.b;
  }
  std::mt19937_64 generator(5);
  for (int i = 0; i < 2000; ++i) {
    int64_t a = static_cast<int64_t>(generator()) >> (generator() % 64);
    int64_t b = static_cast<int64_t>(generator()) >> (generator() % 64);
    if (b == 0 || b == -1) continue;
    EXPECT_EQ(trunc_div(I{a}, I{b}).value, a / b);
    EXPECT_EQ(c_rem(I{a}, I{b}).value, a % b);
    __int128 q = a / b - ((a % b != 0 && (a % b < 0) != (b < 0)) ? 1 : 0);
    EXPECT_EQ(floor_div(I{a}, I{b}).value, static_cast<int64_t>(q));
    EXPECT_EQ(floor_mod(I{a}, I{b}).value, static_cast<int64_t>(a - q * b));
  }
}

template <class T>
void check_roundings() {
  for (T x : inputs<T>(200)) {
    Num<T> n{x};
    EXPECT_TRUE(same(floor(n).value, std::floor(x))) << x;
    EXPECT_TRUE(same(ceil(n).value, std::ceil(x))) << x;
    EXPECT_TRUE(same(trunc(n).value, std::trunc(x))) << x;
    EXPECT_TRUE(same(round_even(n).value, std::nearbyint(x))) << x;
    EXPECT_TRUE(same(abs(n).value, std::fabs(x))) << x;
    EXPECT_EQ(is_nan(n).value, std::isnan(x));
    EXPECT_EQ(is_inf(n).value, std::isinf(x));
    EXPECT_EQ(is_finite(n).value, std::isfinite(x));
    EXPECT_EQ(sign_bit_set(n).value, std::signbit(x));
    EXPECT_TRUE(same(from_bits(bits(n)).value, x));
    if (std::fabs(x) < 4e6) {
      EXPECT_EQ(to_int(n).value, std::nearbyint(x));
      EXPECT_EQ(to_float(to_int(n)).value, std::nearbyint(x));
    }
  }
}
TEST(ScalarNum, Roundings) {
  check_roundings<float>();
  check_roundings<double>();
}

TEST(ScalarNum, ConversionsSaturate) {
  double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(convert<int64_t>(D{1e30}).value, kMax);
  EXPECT_EQ(convert<int64_t>(D{-1e30}).value, kMin);
  EXPECT_EQ(convert<int64_t>(D{inf}).value, kMax);
  EXPECT_EQ(convert<int64_t>(D{-inf}).value, kMin);
  EXPECT_EQ(convert<int64_t>(D{std::nan("")}).value, 0);
  EXPECT_EQ(convert<int64_t>(D{-3.9}).value, -3);
  EXPECT_EQ(convert<int64_t>(D{0x1p63}).value, kMax);
  EXPECT_EQ(convert<int64_t>(D{-0x1p63}).value, kMin);
  EXPECT_EQ(convert<int64_t>(D{0x1.fffffffffffffp62}).value, 0x7ffffffffffffc00);
  EXPECT_EQ(convert<int32_t>(F{3e9f}).value, std::numeric_limits<int32_t>::max());
  EXPECT_EQ(convert<double>(I{kMax}).value, 0x1p63);
  EXPECT_EQ(convert<float>(D{1e300}).value, std::numeric_limits<float>::infinity());
  EXPECT_EQ(convert<double>(F{0.1f}).value, 0.1f);
}

}  // namespace
}  // namespace gradus::scalar::test
