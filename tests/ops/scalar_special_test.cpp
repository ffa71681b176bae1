// Signed zeros, infinities, NaN and domain edges: C's Annex F where C has the function, ATen's
// choice where it has not.
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "tests/ops/scalar_test_functions.h"

namespace gradus::scalar::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::nan("");

template <class T>
void expect_value(const char* name, double x, double y, T got, double want) {
  bool same = std::isnan(want) ? std::isnan(got)
                               : got == static_cast<T>(want) &&
                                     std::signbit(got) == std::signbit(static_cast<T>(want));
  EXPECT_TRUE(same) << name << (sizeof(T) == 4 ? " f32 " : " f64 ") << x << ", " << y << ": " << got
                    << ", not " << want;
}

struct Row {
  double x, want;
};

#define GRADUS_SPECIAL_TEST(name, ...)                                                      \
  TEST(ScalarSpecial, name) {                                                               \
    for (Row r : {__VA_ARGS__}) {                                                           \
      expect_value(#name, r.x, 0, name(Num<double>{r.x}).value, r.want);                    \
      expect_value(#name, r.x, 0, name(Num<float>{static_cast<float>(r.x)}).value, r.want); \
    }                                                                                       \
  }

GRADUS_SPECIAL_TEST(exp, Row{0, 1}, Row{-0.0, 1}, Row{kInf, kInf}, Row{-kInf, 0}, Row{kNaN, kNaN},
                    Row{1e4, kInf}, Row{-1e4, 0})
GRADUS_SPECIAL_TEST(exp2, Row{0, 1}, Row{-0.0, 1}, Row{10, 1024}, Row{-3, 0.125}, Row{kInf, kInf},
                    Row{-kInf, 0}, Row{kNaN, kNaN}, Row{-149, 0x1p-149})
GRADUS_SPECIAL_TEST(expm1, Row{0, 0}, Row{-0.0, -0.0}, Row{kInf, kInf}, Row{-kInf, -1},
                    Row{kNaN, kNaN}, Row{1e4, kInf}, Row{-1e4, -1})
GRADUS_SPECIAL_TEST(log, Row{0, -kInf}, Row{-0.0, -kInf}, Row{1, 0}, Row{-1, kNaN}, Row{kInf, kInf},
                    Row{-kInf, kNaN}, Row{kNaN, kNaN})
GRADUS_SPECIAL_TEST(log2, Row{0, -kInf}, Row{-0.0, -kInf}, Row{1, 0}, Row{8, 3}, Row{0.25, -2},
                    Row{-1, kNaN}, Row{kInf, kInf}, Row{-kInf, kNaN}, Row{kNaN, kNaN},
                    Row{0x1p-149, -149})
GRADUS_SPECIAL_TEST(log10, Row{0, -kInf}, Row{-0.0, -kInf}, Row{1, 0}, Row{1000, 3}, Row{-1, kNaN},
                    Row{kInf, kInf}, Row{-kInf, kNaN}, Row{kNaN, kNaN})
GRADUS_SPECIAL_TEST(log1p, Row{0, 0}, Row{-0.0, -0.0}, Row{-1, -kInf}, Row{-2, kNaN},
                    Row{kInf, kInf}, Row{-kInf, kNaN}, Row{kNaN, kNaN})
GRADUS_SPECIAL_TEST(sin, Row{0, 0}, Row{-0.0, -0.0}, Row{kInf, kNaN}, Row{-kInf, kNaN},
                    Row{kNaN, kNaN})
GRADUS_SPECIAL_TEST(cos, Row{0, 1}, Row{-0.0, 1}, Row{kInf, kNaN}, Row{-kInf, kNaN},
                    Row{kNaN, kNaN})
GRADUS_SPECIAL_TEST(tan, Row{0, 0}, Row{-0.0, -0.0}, Row{kInf, kNaN}, Row{-kInf, kNaN},
                    Row{kNaN, kNaN})
GRADUS_SPECIAL_TEST(asin, Row{0, 0}, Row{-0.0, -0.0}, Row{1, 1.5707963267948966},
                    Row{-1, -1.5707963267948966}, Row{1.5, kNaN}, Row{-1.5, kNaN}, Row{kInf, kNaN},
                    Row{kNaN, kNaN})
GRADUS_SPECIAL_TEST(acos, Row{1, 0}, Row{-1, 3.141592653589793}, Row{0, 1.5707963267948966},
                    Row{1.5, kNaN}, Row{-1.5, kNaN}, Row{kInf, kNaN}, Row{kNaN, kNaN})
GRADUS_SPECIAL_TEST(atan, Row{0, 0}, Row{-0.0, -0.0}, Row{kInf, 1.5707963267948966},
                    Row{-kInf, -1.5707963267948966}, Row{kNaN, kNaN})
GRADUS_SPECIAL_TEST(sinh, Row{0, 0}, Row{-0.0, -0.0}, Row{kInf, kInf}, Row{-kInf, -kInf},
                    Row{kNaN, kNaN}, Row{1e4, kInf}, Row{-1e4, -kInf})
GRADUS_SPECIAL_TEST(cosh, Row{0, 1}, Row{-0.0, 1}, Row{kInf, kInf}, Row{-kInf, kInf},
                    Row{kNaN, kNaN}, Row{-1e4, kInf})
GRADUS_SPECIAL_TEST(tanh, Row{0, 0}, Row{-0.0, -0.0}, Row{kInf, 1}, Row{-kInf, -1}, Row{kNaN, kNaN},
                    Row{0x1p-149, 0x1p-149})
GRADUS_SPECIAL_TEST(asinh, Row{0, 0}, Row{-0.0, -0.0}, Row{kInf, kInf}, Row{-kInf, -kInf},
                    Row{kNaN, kNaN})
GRADUS_SPECIAL_TEST(acosh, Row{1, 0}, Row{0.5, kNaN}, Row{kInf, kInf}, Row{-kInf, kNaN},
                    Row{kNaN, kNaN})
GRADUS_SPECIAL_TEST(atanh, Row{0, 0}, Row{-0.0, -0.0}, Row{1, kInf}, Row{-1, -kInf}, Row{1.5, kNaN},
                    Row{-kInf, kNaN}, Row{kNaN, kNaN})
GRADUS_SPECIAL_TEST(sigmoid, Row{0, 0.5}, Row{-0.0, 0.5}, Row{kInf, 1}, Row{-kInf, 0},
                    Row{kNaN, kNaN}, Row{1e4, 1}, Row{-1e4, 0})
GRADUS_SPECIAL_TEST(logsigmoid, Row{kInf, -0.0}, Row{-kInf, -kInf}, Row{-1e4, -1e4},
                    Row{kNaN, kNaN})
GRADUS_SPECIAL_TEST(log1p_exp, Row{kInf, kInf}, Row{-kInf, 0}, Row{1e4, 1e4}, Row{-1e4, 0},
                    Row{kNaN, kNaN})
GRADUS_SPECIAL_TEST(erf, Row{0, 0}, Row{-0.0, -0.0}, Row{kInf, 1}, Row{-kInf, -1}, Row{kNaN, kNaN})
GRADUS_SPECIAL_TEST(erfc, Row{0, 1}, Row{-0.0, 1}, Row{kInf, 0}, Row{-kInf, 2}, Row{kNaN, kNaN})
GRADUS_SPECIAL_TEST(erfinv, Row{0, 0}, Row{-0.0, -0.0}, Row{1, kInf}, Row{-1, -kInf},
                    Row{1.5, kNaN}, Row{-1.5, kNaN}, Row{kNaN, kNaN})
GRADUS_SPECIAL_TEST(lgamma, Row{0, kInf}, Row{-0.0, kInf}, Row{1, 0}, Row{2, 0}, Row{-1, kInf},
                    Row{-7, kInf}, Row{kInf, kInf}, Row{-kInf, kInf}, Row{-1e30, kInf},
                    Row{kNaN, kNaN})
GRADUS_SPECIAL_TEST(digamma, Row{0, -kInf}, Row{-0.0, kInf}, Row{-1, kNaN}, Row{-20, kNaN},
                    Row{kInf, kInf}, Row{-kInf, kNaN}, Row{kNaN, kNaN})
GRADUS_SPECIAL_TEST(trigamma, Row{0, kInf}, Row{-1, kInf}, Row{kInf, 0}, Row{kNaN, kNaN})
GRADUS_SPECIAL_TEST(sqrt, Row{0, 0}, Row{-0.0, -0.0}, Row{kInf, kInf}, Row{-1, kNaN},
                    Row{kNaN, kNaN})

struct Row2 {
  double x, y, want;
};

#define GRADUS_SPECIAL_TEST_2(name, ...)                                                     \
  TEST(ScalarSpecial, name) {                                                                \
    for (Row2 r : {__VA_ARGS__}) {                                                           \
      float x = static_cast<float>(r.x), y = static_cast<float>(r.y);                        \
      expect_value(#name, r.x, r.y, name(Num<double>{r.x}, Num<double>{r.y}).value, r.want); \
      expect_value(#name, r.x, r.y, name(Num<float>{x}, Num<float>{y}).value, r.want);       \
    }                                                                                        \
  }

GRADUS_SPECIAL_TEST_2(pow, Row2{0, -3, kInf}, Row2{-0.0, -3, -kInf}, Row2{0, -2, kInf},
                      Row2{-0.0, -2, kInf}, Row2{-0.0, -2.5, kInf}, Row2{0, -kInf, kInf},
                      Row2{-0.0, -kInf, kInf}, Row2{0, 3, 0}, Row2{-0.0, 3, -0.0}, Row2{-0.0, 2, 0},
                      Row2{-0.0, 0.5, 0}, Row2{-1, kInf, 1}, Row2{-1, -kInf, 1}, Row2{1, kNaN, 1},
                      Row2{1, kInf, 1}, Row2{kNaN, 0, 1}, Row2{kNaN, -0.0, 1}, Row2{0, 0, 1},
                      Row2{kInf, 0, 1}, Row2{-2, 0.5, kNaN}, Row2{-2, -1.5, kNaN},
                      Row2{0.5, -kInf, kInf}, Row2{-0.5, -kInf, kInf}, Row2{2, -kInf, 0},
                      Row2{-2, -kInf, 0}, Row2{0.5, kInf, 0}, Row2{2, kInf, kInf},
                      Row2{-2, kInf, kInf}, Row2{-kInf, -3, -0.0}, Row2{-kInf, -2, 0},
                      Row2{-kInf, -2.5, 0}, Row2{-kInf, 3, -kInf}, Row2{-kInf, 2, kInf},
                      Row2{-kInf, 2.5, kInf}, Row2{kInf, -1, 0}, Row2{kInf, 1, kInf},
                      Row2{kNaN, 1, kNaN}, Row2{2, kNaN, kNaN}, Row2{-2, 3, -8}, Row2{-2, 4, 16},
                      Row2{2, 10, 1024}, Row2{9, 0.5, 3}, Row2{10, 5, 100000}, Row2{2, 1e5, kInf},
                      Row2{-2, 100001, -kInf}, Row2{2, -1e5, 0}, Row2{-2, -100001, -0.0},
                      Row2{3, 1, 3}, Row2{3, -1, 1.0 / 3}, Row2{kInf, kInf, kInf},
                      Row2{-kInf, -kInf, 0})
GRADUS_SPECIAL_TEST_2(atan2, Row2{0, 1, 0}, Row2{-0.0, 1, -0.0}, Row2{0, 0, 0}, Row2{-0.0, 0, -0.0},
                      Row2{0, -0.0, 3.141592653589793}, Row2{-0.0, -0.0, -3.141592653589793},
                      Row2{0, -1, 3.141592653589793}, Row2{-0.0, -1, -3.141592653589793},
                      Row2{1, 0, 1.5707963267948966}, Row2{-1, -0.0, -1.5707963267948966},
                      Row2{kInf, kInf, 0.7853981633974483}, Row2{-kInf, -kInf, -2.356194490192345},
                      Row2{kInf, -kInf, 2.356194490192345}, Row2{1, kInf, 0}, Row2{-1, kInf, -0.0},
                      Row2{1, -kInf, 3.141592653589793}, Row2{kInf, 5, 1.5707963267948966},
                      Row2{kNaN, 1, kNaN}, Row2{1, kNaN, kNaN})
GRADUS_SPECIAL_TEST_2(hypot, Row2{0, -0.0, 0}, Row2{-3, 4, 5}, Row2{kInf, kNaN, kInf},
                      Row2{kNaN, -kInf, kInf}, Row2{kNaN, 1, kNaN}, Row2{0, -2, 2},
                      Row2{0x1p-149, 0, 0x1p-149})
GRADUS_SPECIAL_TEST_2(fmod, Row2{5, 3, 2}, Row2{-5, 3, -2}, Row2{5, -3, 2}, Row2{-0.0, 1, -0.0},
                      Row2{-6, 3, -0.0}, Row2{1, 0, kNaN}, Row2{kInf, 1, kNaN}, Row2{5, kInf, 5},
                      Row2{-5, kInf, -5}, Row2{kNaN, 1, kNaN}, Row2{1, kNaN, kNaN},
                      Row2{0x1p-149, 0x1p-148, 0x1p-149}, Row2{kInf, kInf, kNaN}, Row2{0, 0, kNaN})
GRADUS_SPECIAL_TEST_2(remainder, Row2{5, 3, 2}, Row2{-5, 3, 1}, Row2{5, -3, -1}, Row2{-5, -3, -2},
                      Row2{1, 0, kNaN}, Row2{kInf, 1, kNaN}, Row2{5, kInf, 5}, Row2{-5, kInf, kInf},
                      Row2{5, -kInf, -kInf}, Row2{kNaN, 1, kNaN})

TEST(ScalarSpecial, exact_quotients_of_fmod) {
  EXPECT_EQ(fmod(Num<double>{1e300}, Num<double>{3}).value, std::fmod(1e300, 3.0));
  EXPECT_EQ(fmod(Num<double>{0x1.fffffffffffffp1023}, Num<double>{0x0.0000000000003p-1022}).value,
            std::fmod(0x1.fffffffffffffp1023, 0x0.0000000000003p-1022));
  EXPECT_EQ(fmod(Num<float>{3e38f}, Num<float>{0.7f}).value, std::fmod(3e38f, 0.7f));
}

// Quotients about an integer, from either side, of operands of all sizes.
template <class T>
void compare_fmod_with_c(int64_t most) {
  std::mt19937_64 random(7);
  auto draw = [&](auto low, auto high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  for (int i = 0; i < 200000; ++i) {
    const double size = draw(-30.0, 30.0), quotient = std::exp2(draw(-3.0, std::log2(most) + 3));
    const T y = static_cast<T>(draw(-1.0, 1.0) * std::exp2(size));
    T x = static_cast<T>(std::floor(quotient)) * y;
    switch (i % 4) {
      case 0:
        x = std::nextafter(x, std::numeric_limits<T>::infinity());
        break;
      case 1:
        x = std::nextafter(x, -std::numeric_limits<T>::infinity());
        break;
      case 2:
        x = static_cast<T>(quotient) * y;
        break;
      default:
        break;
    }
    const T expected = std::fmod(x, y), got = fmod(Num<T>{x}, Num<T>{y}).value;
    ASSERT_EQ(std::signbit(got), std::signbit(expected)) << x << ", " << y;
    ASSERT_EQ(got, expected) << x << ", " << y;
  }
}
TEST(ScalarSpecial, fmod_is_that_of_c) {
  compare_fmod_with_c<float>(int64_t{1} << 24);
  compare_fmod_with_c<double>(int64_t{1} << 53);
}

}  // namespace
}  // namespace gradus::scalar::test
