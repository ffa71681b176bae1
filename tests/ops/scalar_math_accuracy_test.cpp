// The errors of the vector functions against long double, within the bounds that
// docs/math-functions.md publishes. GRADUS_MATH_TABLE=1 in the environment prints what was found.
// bench/python/every_float.py compares functions of one argument for every float.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/ops/scalar_test_functions.h"

namespace gradus::scalar::test {
namespace {

bool table_wanted() { return std::getenv("GRADUS_MATH_TABLE") != nullptr; }

template <class T, class F, class R>
void expect_unary(const char* name, F function, R reference, double bound, double away) {
  double worst = 0;
  T at = 0;
  for (T x : inputs<T>(600)) {
    T got = function(Num<T>{x}).value;
    Wide want = reference(static_cast<Wide>(x));
    double error = ulp_error(got, want);
    // An absolute allowance, for functions whose roots no float hits.
    if (error > bound && away > 0 && std::isfinite(got)) {
      double absolute = static_cast<double>(fabsl(static_cast<Wide>(got) - want)) /
                        static_cast<double>(std::numeric_limits<T>::epsilon());
      if (absolute <= away) continue;
    }
    if (error > worst) {
      worst = error;
      at = x;
    }
  }
  EXPECT_LE(worst, bound) << name << (sizeof(T) == 4 ? " f32" : " f64") << " at " << std::hexfloat
                          << at << ": " << function(Num<T>{at}).value << " for "
                          << static_cast<double>(reference(at));
  if (table_wanted()) {
    std::printf("%-12s %s %.3f at %.9g\n", name, sizeof(T) == 4 ? "f32" : "f64", worst, double(at));
  }
}

#define GRADUS_ACCURACY_TEST(name, reference, ulp32, ulp64, away) \
  TEST(ScalarAccuracy, name) {                                    \
    auto function = [](auto x) { return name(x); };               \
    auto exact = [](Wide x) -> Wide { return reference(x); };     \
    expect_unary<float>(#name, function, exact, ulp32, away);     \
    expect_unary<double>(#name, function, exact, ulp64, away);    \
  }
GRADUS_SCALAR_UNARY_TESTS(GRADUS_ACCURACY_TEST)

template <class T, class F, class R>
void expect_binary(const char* name, F function, R reference, double bound) {
  double worst = 0;
  T at_x = 0, at_y = 0;
  auto try_one = [&](T x, T y) {
    T got = function(Num<T>{x}, Num<T>{y}).value;
    double error = ulp_error(got, reference(static_cast<Wide>(x), static_cast<Wide>(y)));
    if (error > worst) {
      worst = error;
      at_x = x;
      at_y = y;
    }
  };
  std::vector<T> v = inputs<T>(60);
  // Every special against everything, then pairs at random.
  for (std::size_t i = 0; i < 12; ++i) {
    for (T y : v) {
      try_one(v[i], y);
      try_one(y, v[i]);
    }
  }
  for (T x : {T(1), T(-1), T(2), T(-2), T(0.5), T(3), T(-3), T(1e6), T(1) + T(1e-6)}) {
    for (T y : v) {
      try_one(x, y);
      try_one(y, x);
    }
  }
  std::mt19937_64 generator(7);
  std::uniform_real_distribution<double> unit(-1, 1);
  double exponent = sizeof(T) == 4 ? 140 : 1060;
  for (int i = 0; i < 5000; ++i) {
    T near = static_cast<T>(unit(generator)), other = static_cast<T>(unit(generator));
    T wide = static_cast<T>(std::exp2(exponent * unit(generator)));
    T wide_too = static_cast<T>(std::exp2(exponent * unit(generator)));
    try_one(wide, near);
    try_one(-wide, wide_too);
    try_one(1 + near / 2, 2000 * other);
    try_one(10 * near, 10 * other);
    try_one(10 * near, std::trunc(30 * other));
    try_one(std::exp2(10 * near), 100 * other);
  }
  EXPECT_LE(worst, bound) << name << (sizeof(T) == 4 ? " f32" : " f64") << " at " << std::hexfloat
                          << at_x << ", " << at_y << ": "
                          << function(Num<T>{at_x}, Num<T>{at_y}).value << " for "
                          << static_cast<double>(reference(at_x, at_y));
  if (table_wanted()) {
    std::printf("%-12s %s %.3f at %.9g, %.9g\n", name, sizeof(T) == 4 ? "f32" : "f64", worst,
                double(at_x), double(at_y));
  }
}

#define GRADUS_ACCURACY_TEST_2(name, reference, ulp32, ulp64)                       \
  TEST(ScalarAccuracy, name) {                                                      \
    auto function = [](auto x, auto y) { return name(x, y); };                      \
    auto exact = [](Wide x, Wide y) { return static_cast<Wide>(reference(x, y)); }; \
    expect_binary<float>(#name, function, exact, ulp32);                            \
    expect_binary<double>(#name, function, exact, ulp64);                           \
  }
GRADUS_SCALAR_BINARY_TESTS(GRADUS_ACCURACY_TEST_2)

// What a loop may use after looking at its block has the very same bits.
TEST(ScalarAccuracy, ModerateAnglesAreTheSame) {
  auto check = [](auto tag) {
    using T = decltype(tag);
    int moderate = 0, huge = 0;
    for (T x : inputs<T>(200)) {
      Num<T> n{x};
      if (!is_moderate_angle(n).value) {
        ++huge;
        continue;
      }
      ++moderate;
      if (std::isnan(x)) continue;
      EXPECT_EQ(bits(sin(n)).value, bits(sin_moderate(n)).value) << x;
      EXPECT_EQ(bits(cos(n)).value, bits(cos_moderate(n)).value) << x;
      EXPECT_EQ(bits(tan(n)).value, bits(tan_moderate(n)).value) << x;
    }
    EXPECT_GT(moderate, 500);
    EXPECT_GT(huge, 100);
  };
  check(0.0f);
  check(0.0);
}

// The doubles nearest to multiples of pi/2, of Kahan and McDonald's search, and their like in f32:
// what is left after the reduction has lost 60 bits.
TEST(ScalarAccuracy, AnglesNextToMultiplesOfHalfPi) {
  for (double x : {6381956970095103.0 * 0x1p797, 5.319372648326541e+255, 2.356194490192345,
                   1.5707963267948966, 3.141592653589793, 1e22, 0x1.fffffffffffffp1023}) {
    EXPECT_LE(ulp_error(sin(Num<double>{x}).value, sinl(x)), 0.8) << x;
    EXPECT_LE(ulp_error(cos(Num<double>{x}).value, cosl(x)), 0.8) << x;
    EXPECT_LE(ulp_error(tan(Num<double>{x}).value, tanl(x)), 0.9) << x;
  }
  for (float x : {16367173.0f * 0x1p72f, 0x1.0088ccp15f, 4.71238899f, 0x1.fffffep127f}) {
    EXPECT_LE(ulp_error(sin(Num<float>{x}).value, sinl(x)), 0.8) << x;
    EXPECT_LE(ulp_error(cos(Num<float>{x}).value, cosl(x)), 0.8) << x;
    EXPECT_LE(ulp_error(tan(Num<float>{x}).value, tanl(x)), 0.9) << x;
  }
}

// Higher orders against the known values n! zeta(n + 1) and their mirror images.
TEST(ScalarAccuracy, PolygammaOfHigherOrders) {
  struct Known {
    int n;
    double x, value;
  };
  for (Known k : {Known{0, 0.75, -1.0858608797864722}, Known{1, 0.5, 4.934802200544679},
                  Known{2, -0.375, 29.057344543766245}, Known{3, 1.0, 6.493939402266829},
                  Known{3, -2.25, 1558.4550231887144}, Known{4, 2.5, -0.3137559995067314},
                  Known{5, 0.125, 31457340.659602646}, Known{5, -1.75, 492230.9303018743},
                  Known{8, 3.0, -2.2283987476348854}, Known{10, 1.5, -42108.85876897549},
                  Known{12, 20.0, -1.298290151762041e-08}}) {
    double got = polygamma(k.n, Num<double>{k.x}).value;
    EXPECT_NEAR(got / k.value, 1.0, 3e-14) << k.n << " " << k.x;
    float got32 = polygamma(k.n, Num<float>{static_cast<float>(k.x)}).value;
    EXPECT_NEAR(got32 / k.value, 1.0, 2e-5) << k.n << " " << k.x;
  }
}

}  // namespace
}  // namespace gradus::scalar::test
