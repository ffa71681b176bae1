// f32 and f64 against C++'s arithmetic, and directed roundings against exact comparisons.
#include <cfenv>

#include "tests/ptx/support.h"

namespace gradus::ptx::test {
namespace {

TEST(Float, ArithmeticRoundsToNearest) {
  const auto check = [](auto zero, const std::string& t) {
    using T = decltype(zero);
    expect_each<T, T, T>("add." + t + " %d, %a, %b;", [](T a, T b) { return a + b; });
    expect_each<T, T, T>("sub.rn." + t + " %d, %a, %b;", [](T a, T b) { return a - b; });
    expect_each<T, T, T>("mul." + t + " %d, %a, %b;", [](T a, T b) { return a * b; });
    expect_each<T, T, T>("div.rn." + t + " %d, %a, %b;", [](T a, T b) { return a / b; });
    expect_each<T, T, T, T>("fma.rn." + t + " %d, %a, %b, %c;",
                            [](T a, T b, T c) { return std::fma(a, b, c); });
    expect_each<T, T, T, T>("mad.rn." + t + " %d, %a, %b, %c;",
                            [](T a, T b, T c) { return std::fma(a, b, c); });
    expect_each<T, T>("sqrt.rn." + t + " %d, %a;", [](T a) { return std::sqrt(a); });
    expect_each<T, T>("rcp.rn." + t + " %d, %a;", [](T a) { return T{1} / a; });
    expect_each<T, T>("neg." + t + " %d, %a;", [](T a) { return -a; });
    expect_each<T, T>("abs." + t + " %d, %a;", [](T a) { return std::fabs(a); });
    expect_each<T, T, T>("copysign." + t + " %d, %a, %b;",
                         [](T a, T b) { return std::copysign(b, a); });
  };
  check(0.0f, "f32");
  check(0.0, "f64");
}

// A directed rounding of f32 by way of a wider type: the neighbour of the nearest that lies on
// the right side of the exact value. `above` says whether the exact value is above x.
template <class Above, class Below>
float directed(int mode, float x, Above above, Below below) {
  const float inf = std::numeric_limits<float>::infinity();
  if (x != x) return x;
  if (mode == FE_UPWARD) return above(x) ? std::nextafter(x, inf) : x;
  if (mode == FE_DOWNWARD) return below(x) ? std::nextafter(x, -inf) : x;
  if (x > 0) return below(x) ? std::nextafter(x, 0.0f) : x;
  return above(x) ? std::nextafter(x, 0.0f) : x;
}

TEST(Float, DirectedRoundingsTakeTheNeighbourOnTheirSide) {
  const struct {
    const char* name;
    int mode;
  } modes[] = {{"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};
  for (const auto& m : modes) {
    // Products of floats are exact in double. Zeros keep the sign that the product has.
    expect_each<float, float, float>(
        std::string("mul.") + m.name + ".f32 %d, %a, %b;", [&](float a, float b) {
          const double exact = static_cast<double>(a) * static_cast<double>(b);
          const auto x = static_cast<float>(exact);
          if (std::isinf(a) || std::isinf(b)) return x;
          return directed(
              m.mode, x, [&](float f) { return exact > static_cast<double>(f); },
              [&](float f) { return exact < static_cast<double>(f); });
        });
    expect_each<float, float, float>(
        std::string("div.") + m.name + ".f32 %d, %a, %b;", [&](float a, float b) {
          const float x = a / b;
          if (x != x || std::isinf(a) || std::isinf(b) || b == 0 || a == 0) return x;
          // x against a / b by x * b against a, which double holds.
          const auto side = [&](float f, bool above) {
            if (std::isinf(f)) return above ? f < 0 : f > 0;
            const double p = static_cast<double>(f) * static_cast<double>(b);
            const bool is_above = b > 0 ? static_cast<double>(a) > p : static_cast<double>(a) < p;
            return p != static_cast<double>(a) && is_above == above;
          };
          return directed(
              m.mode, x, [&](float f) { return side(f, true); },
              [&](float f) { return side(f, false); });
        });
  }
  const std::vector<double> big{1.0, -1.0}, tiny{0x1p-80, 0x1p-80};
  EXPECT_EQ(each<double>("add.rp.f64 %d, %a, %b;", big, tiny)[0], 1.0 + 0x1p-52);
  EXPECT_EQ(each<double>("add.rm.f64 %d, %a, %b;", big, tiny)[0], 1.0);
  EXPECT_EQ(each<double>("add.rz.f64 %d, %a, %b;", big, tiny)[1], -1.0 + 0x1p-53);
  EXPECT_EQ(each<double>("fma.rp.f64 %d, %a, 0d3FF0000000000000, %b;", big, tiny)[1],
            -1.0 + 0x1p-53);
  // The nearest to the root of 2 lies above it.
  const std::vector<double> two{2.0};
  EXPECT_EQ(each<double>("sqrt.rm.f64 %d, %a;", two)[0], std::nextafter(std::sqrt(2.0), 0.0));
  EXPECT_EQ(each<double>("sqrt.rp.f64 %d, %a;", two)[0], std::sqrt(2.0));
}

TEST(Float, FlushesSubnormalNumbers) {
  const auto flush = [](float x) {
    return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
  };
  expect_each<float, float, float>("add.ftz.f32 %d, %a, %b;",
                                   [=](float a, float b) { return flush(flush(a) + flush(b)); });
  expect_each<float, float, float>("mul.ftz.f32 %d, %a, %b;",
                                   [=](float a, float b) { return flush(flush(a) * flush(b)); });
  expect_each<float, float, float, float>(
      "fma.rn.ftz.f32 %d, %a, %b, %c;",
      [=](float a, float b, float c) { return flush(std::fma(flush(a), flush(b), flush(c))); });
  expect_each<float, float>("abs.ftz.f32 %d, %a;", [=](float a) { return std::fabs(flush(a)); });
}

TEST(Float, Saturates) {
  expect_each<float, float, float>("add.sat.f32 %d, %a, %b;", [](float a, float b) {
    const float s = a + b;
    return s != s || s <= 0 ? 0.0f : std::min(s, 1.0f);
  });
}

// The number if only one is NaN; -0 below +0.
TEST(Float, Extremes) {
  const auto smaller = [](auto a, auto b) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? a : b;
    return a < b ? a : b;
  };
  expect_each<float, float, float>("min.f32 %d, %a, %b;",
                                   [=](float a, float b) { return smaller(a, b); });
  expect_each<double, double, double>("max.f64 %d, %a, %b;",
                                      [=](double a, double b) { return -smaller(-a, -b); });
  expect_each<float, float, float>("max.NaN.f32 %d, %a, %b;", [=](float a, float b) {
    return a != a || b != b ? NAN : -smaller(-a, -b);
  });
  expect_each<float, float, float>("min.xorsign.abs.f32 %d, %a, %b;", [=](float a, float b) {
    const float m = smaller(std::fabs(a), std::fabs(b));
    return std::signbit(a) != std::signbit(b) ? -m : m;
  });
}

TEST(Float, NanOfSinglePrecisionIsOne) {
  const std::vector<float> a{NAN, -std::numeric_limits<float>::infinity()};
  const std::vector<float> b{1.0f, std::numeric_limits<float>::infinity()};
  for (uint32_t bits : each<uint32_t>("add.f32 %d, %a, %b;", a, b)) EXPECT_EQ(bits, 0x7fffffffu);
  for (uint32_t bits : each<uint32_t>("min.NaN.f32 %d, %a, %a;", std::vector<float>{NAN}))
    EXPECT_EQ(bits, 0x7fffffffu);
}

TEST(Float, LiteralsAreBitsOrDecimal) {
  const std::vector<float> a{1.0f};
  EXPECT_EQ(each<float>("add.f32 %d, %a, 0f40490FDB;", a)[0], 1.0f + 3.14159274f);
  EXPECT_EQ(each<float>("add.f32 %d, %a, -2.5;", a)[0], -1.5f);
  EXPECT_EQ(each<double>("mov.f64 %d, 0d3FF8000000000000;", a)[0], 1.5);
}

}  // namespace
}  // namespace gradus::ptx::test
