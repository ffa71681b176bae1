#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "gradus/convert.h"
#include "gradus/dtype.h"

using namespace gradus;

namespace {

// The nearest value of a format with `digits` bits of significand, ties to even, from scaling
// alone: every step but the rounding is exact.
double nearest(double x, int digits, int least_exponent, double largest) {
  if (x == 0 || std::isnan(x) || std::isinf(x)) return x;
  int exponent = std::max(std::ilogb(x), least_exponent);
  int scale = exponent - (digits - 1);
  double rounded = std::ldexp(std::nearbyint(std::ldexp(x, -scale)), scale);
  return std::fabs(rounded) > largest ? std::copysign(INFINITY, x) : rounded;
}
double nearest_half(double x) { return nearest(x, 11, -14, 65504.0); }
double nearest_bfloat(double x) { return nearest(x, 8, -126, 0x1.fep127); }

float as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
uint16_t bits_of(_Float16 x) { return std::bit_cast<uint16_t>(x); }

TEST(Half, EveryValueToFloatAndBack) {
  for (uint32_t i = 0; i < 65536; ++i) {
    auto h = static_cast<uint16_t>(i);
    float mine = half_to_float(h);
    auto theirs = static_cast<float>(std::bit_cast<_Float16>(h));
    if (std::isnan(theirs)) {
      ASSERT_TRUE(std::isnan(mine)) << i;
      ASSERT_EQ(std::signbit(mine), (h & 0x8000) != 0) << i;
      ASSERT_EQ(float_to_half(mine), (h & 0x8000) | 0x7e00) << i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(mine), std::bit_cast<uint32_t>(theirs)) << i;
      ASSERT_EQ(float_to_half(mine), h) << i;
    }
  }
}

TEST(Half, FloatsRoundAsTheHardwaresType) {
  std::mt19937 random(7);
  auto check = [](float x) {
    if (std::isnan(x)) return;
    ASSERT_EQ(float_to_half(x), bits_of(static_cast<_Float16>(x))) << std::hexfloat << x;
  };
  for (int i = 0; i < 2000000; ++i) check(as_float(static_cast<uint32_t>(random())));
  // Everything around a half: the value, the tie above it, and their neighbours.
  for (uint32_t i = 0; i < 0x7c00; ++i) {
    float low = half_to_float(static_cast<uint16_t>(i));
    float high = i == 0x7bff ? 65536.0f : half_to_float(static_cast<uint16_t>(i + 1));
    float tie = low + (high - low) / 2;
    for (float x : {low, tie, std::nextafter(tie, 0.0f), std::nextafter(tie, INFINITY)}) {
      check(x);
      check(-x);
    }
  }
  check(INFINITY);
  check(-INFINITY);
  check(std::numeric_limits<float>::max());
  check(std::numeric_limits<float>::denorm_min());
}

TEST(Half, DoublesRoundOnce) {
  std::mt19937_64 random(8);
  auto check = [](double x) {
    ASSERT_EQ(convert<Half>(x).bits, bits_of(static_cast<_Float16>(x))) << std::hexfloat << x;
    ASSERT_EQ(static_cast<double>(half_to_float(convert<Half>(x).bits)), nearest_half(x));
  };
  for (int i = 0; i < 1000000; ++i) {
    // Exponents around the type's range, and significands near ties.
    double x = std::ldexp(1.0 + static_cast<double>(random() >> 12) * 0x1p-52,
                          static_cast<int>(random() % 48) - 30);
    check(random() & 1 ? x : -x);
  }
  for (uint32_t i = 0; i < 0x7bff; ++i) {
    double low = half_to_float(static_cast<uint16_t>(i));
    double high = half_to_float(static_cast<uint16_t>(i + 1));
    double tie = low + (high - low) / 2;
    for (double x : {tie, std::nextafter(tie, 0.0), std::nextafter(tie, INFINITY)}) {
      check(x);
      check(-x);
    }
  }
  for (double x : {0.0, -0.0, 65519.999999999, 65520.0, 1e300, -1e300, 1e-300, 5e-324, HUGE_VAL})
    check(x);
  EXPECT_TRUE(std::isnan(static_cast<float>(convert<Half>(std::nan("")))));
}

TEST(BFloat16, EveryValueToFloatAndBack) {
  for (uint32_t i = 0; i < 65536; ++i) {
    auto b = static_cast<uint16_t>(i);
    float x = bfloat16_to_float(b);
    ASSERT_EQ(std::bit_cast<uint32_t>(x), i << 16);
    ASSERT_EQ(float_to_bfloat16(x), std::isnan(x) ? 0x7fc0 : b) << i;
  }
}

TEST(BFloat16, FloatsAndDoublesRoundOnce) {
  std::mt19937_64 random(9);
  auto check = [](double x) {
    if (std::isnan(x)) return;
    double expected = nearest_bfloat(x);
    if (static_cast<double>(static_cast<float>(x)) == x) {
      ASSERT_EQ(static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(x)))), expected)
          << std::hexfloat << x;
    }
    double mine = static_cast<float>(convert<BFloat16>(x));
    ASSERT_EQ(mine, expected) << std::hexfloat << x;
    ASSERT_EQ(std::signbit(mine), std::signbit(expected)) << std::hexfloat << x;
  };
  for (int i = 0; i < 1000000; ++i) {
    check(static_cast<double>(as_float(static_cast<uint32_t>(random()))));
    check(std::bit_cast<double>(random()));
  }
  for (uint32_t i = 0; i < 0x7f7f; ++i) {
    double low = bfloat16_to_float(static_cast<uint16_t>(i));
    double high = bfloat16_to_float(static_cast<uint16_t>(i + 1));
    double tie = low + (high - low) / 2;
    for (double x : {tie, std::nextafter(tie, 0.0), std::nextafter(tie, INFINITY)}) {
      check(x);
      check(-x);
    }
  }
  for (double x : {0.0, -0.0, 0x1.fep127, 0x1.ffp127, 1e39, 1e300, 1e-46, 1e-300, HUGE_VAL})
    check(x);
}

TEST(Half, ConvertsAtCompileTime) {
  static_assert(float_to_half(1.0f) == 0x3c00);
  static_assert(half_to_float(0xc000) == -2.0f);
  static_assert(float_to_bfloat16(1.0f) == 0x3f80);
  static_assert(convert<int8_t>(300.0f) == 127);
}

}  // namespace
