#include "gradus/dtype.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gradus/convert.h"
#include "gradus/error.h"

using namespace gradus;

namespace {

constexpr DType f64 = DType::f64, f32 = DType::f32, f16 = DType::f16, bf16 = DType::bf16,
                i64 = DType::i64, i32 = DType::i32, i16 = DType::i16, i8 = DType::i8,
                u64 = DType::u64, u32 = DType::u32, u16 = DType::u16, u8 = DType::u8,
                b1 = DType::boolean;

TEST(DType, NamesGoBothWays) {
  for (int i = 0; i < dtype_count; ++i) {
    auto d = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(name_of(d)), d);
  }
  EXPECT_EQ(dtype_from_name("f8"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
}

TEST(DType, VisitsTheTypeThatStoresIt) {
  for (int i = 0; i < dtype_count; ++i) {
    auto d = static_cast<DType>(i);
    visit_dtype(d, [&](auto tag) {
      using T = typename decltype(tag)::type;
      EXPECT_EQ(sizeof(T), size_of(d)) << name_of(d);
      EXPECT_EQ((std::is_integral_v<T> && !std::is_same_v<T, bool>), is_integral(d)) << name_of(d);
    });
  }
  EXPECT_EQ(
      visit_dtype(f16, [](auto t) { return std::is_same_v<typename decltype(t)::type, Half>; }),
      true);
  EXPECT_EQ(visit_compute(Compute::i64, [](auto t) { return sizeof(t); }), 1u);
}

// c10/core/ScalarType.h's table, without the types that are not here. One entry differs: ATen
// gives i16 for u8 with i8; i32 is the smallest type here that holds both.
TEST(DType, PromotesAsAten) {
  const DType order[] = {u8, i8, i32, i64, f16, f32, f64, b1, bf16};
  const DType table[9][9] = {
      /* u8  */ {u8, i32, i32, i64, f16, f32, f64, u8, bf16},
      /* i8  */ {i32, i8, i32, i64, f16, f32, f64, i8, bf16},
      /* i32 */ {i32, i32, i32, i64, f16, f32, f64, i32, bf16},
      /* i64 */ {i64, i64, i64, i64, f16, f32, f64, i64, bf16},
      /* f16 */ {f16, f16, f16, f16, f16, f32, f64, f16, f32},
      /* f32 */ {f32, f32, f32, f32, f32, f32, f64, f32, f32},
      /* f64 */ {f64, f64, f64, f64, f64, f64, f64, f64, f64},
      /* b1  */ {u8, i8, i32, i64, f16, f32, f64, b1, bf16},
      /* bf16*/ {bf16, bf16, bf16, bf16, f32, f32, f64, bf16, bf16},
  };
  for (int i = 0; i < 9; ++i)
    for (int j = 0; j < 9; ++j)
      EXPECT_EQ(promote(order[i], order[j]), table[i][j])
          << name_of(order[i]) << " with " << name_of(order[j]);
}

// i16 as PyTorch has it; u16, u32 and u64 with themselves and with floats alone.
TEST(DType, PromotesTheLaterIntegers) {
  for (auto [other, both] : {std::pair(u8, i16), std::pair(i8, i16), std::pair(i16, i16),
                             std::pair(i32, i32), std::pair(i64, i64), std::pair(b1, i16)}) {
    EXPECT_EQ(promote(i16, other), both) << name_of(other);
    EXPECT_EQ(promote(other, i16), both) << name_of(other);
  }
  for (DType d : {i16, u16, u32, u64})
    for (DType f : {f64, f32, f16, bf16}) {
      EXPECT_EQ(promote(d, f), f);
      EXPECT_EQ(promote(f, d), f);
    }
  const DType integers[] = {i64, i32, i16, i8, u64, u32, u16, u8, b1};
  for (DType d : {u16, u32, u64}) {
    EXPECT_EQ(promote(d, d), d);
    for (DType other : integers) {
      if (other == d) continue;
      EXPECT_THROW(promote(d, other), Error) << name_of(d) << " " << name_of(other);
      EXPECT_THROW(promote(other, d), Error) << name_of(d) << " " << name_of(other);
    }
  }
}

TEST(DType, KnowsWhatIsUnsignedAndComputedInU64) {
  for (DType d : {u8, u16, u32, u64}) EXPECT_TRUE(is_unsigned(d)) << name_of(d);
  for (DType d : {f64, bf16, i64, i32, i16, i8, b1}) EXPECT_FALSE(is_unsigned(d)) << name_of(d);
  for (int i = 0; i < dtype_count; ++i) {
    auto d = static_cast<DType>(i);
    EXPECT_EQ(compute_of(d) == Compute::u64, d == u64) << name_of(d);
    visit_signed(d, [&](auto tag) {
      using T = typename decltype(tag)::type;
      EXPECT_EQ(sizeof(T), size_of(d)) << name_of(d);
      EXPECT_TRUE((std::is_same_v<T, bool> || !std::is_unsigned_v<T>)) << name_of(d);
    });
  }
}

// Floats into integers: truncated, saturated, NaN is 0. By long double, which holds all of them.
template <class To, class From>
void check_saturation(const std::vector<double>& values) {
  for (double v : values) {
    From from = convert<From>(v);
    long double x = convert<double>(from);
    To expected;
    if (std::isnan(x))
      expected = 0;
    else if (std::trunc(x) >= static_cast<long double>(std::numeric_limits<To>::max()))
      expected = std::numeric_limits<To>::max();
    else if (std::trunc(x) <= static_cast<long double>(std::numeric_limits<To>::min()))
      expected = std::numeric_limits<To>::min();
    else
      expected = static_cast<To>(std::trunc(x));
    ASSERT_EQ(convert<To>(from), expected) << std::hexfloat << static_cast<double>(x);
  }
}

TEST(Convert, FloatsSaturateIntoIntegers) {
  std::vector<double> values{0.0,          -0.0, 0.5,   -0.5,     0.999999,
                             -0.999999,    1,    -1,    INFINITY, -INFINITY,
                             std::nan(""), 1e30, -1e30, 1e300,    -1e300};
  for (int exponent : {7, 8, 31, 32, 63, 64})
    for (double sign : {1.0, -1.0})
      for (double off : {-1.0, -0.5, 0.0, 0.5, 1.0}) {
        double edge = sign * std::ldexp(1.0, exponent);
        values.push_back(edge + off);
        values.push_back(std::nextafter(edge, 0.0));
        values.push_back(std::nextafter(edge, 2 * edge));
        values.push_back(static_cast<double>(std::nextafter(static_cast<float>(edge), 0.0f)));
      }
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i)
    values.push_back(std::ldexp(static_cast<double>(static_cast<int64_t>(random())),
                                -static_cast<int>(random() % 70)));
  auto all_from = [&]<class From>(TypeTag<From>) {
    check_saturation<int8_t, From>(values);
    check_saturation<uint8_t, From>(values);
    check_saturation<int16_t, From>(values);
    check_saturation<uint16_t, From>(values);
    check_saturation<int32_t, From>(values);
    check_saturation<uint32_t, From>(values);
    check_saturation<uint64_t, From>(values);
    check_saturation<int64_t, From>(values);
    for (double v : values) {
      From from = convert<From>(v);
      double x = convert<double>(from);
      ASSERT_EQ(convert<bool>(from), x != 0) << x;  // NaN is true
    }
  };
  all_from(TypeTag<double>{});
  all_from(TypeTag<float>{});
  all_from(TypeTag<Half>{});
  all_from(TypeTag<BFloat16>{});
}

TEST(Convert, IntegersWrapAndCompareWithZero) {
  EXPECT_EQ(convert<int8_t>(int64_t{300}), 44);
  EXPECT_EQ(convert<uint8_t>(int32_t{-1}), 255);
  EXPECT_EQ(convert<int32_t>(int64_t{1} << 32 | 5), 5);
  EXPECT_EQ(convert<int8_t>(uint8_t{200}), -56);
  EXPECT_EQ(convert<uint64_t>(int32_t{-1}), UINT64_MAX);
  EXPECT_EQ(convert<uint32_t>(int8_t{-1}), UINT32_MAX);
  EXPECT_EQ(convert<int16_t>(uint64_t{0x18001}), -32767);
  EXPECT_EQ(convert<double>(UINT64_MAX), 0x1p64);
  EXPECT_EQ(convert<float>(uint64_t{1} << 63), 0x1p63f);
  EXPECT_TRUE(convert<bool>(int64_t{1} << 40));
  EXPECT_TRUE(convert<bool>(uint8_t{2}));
  EXPECT_FALSE(convert<bool>(int8_t{0}));
  EXPECT_EQ(convert<int64_t>(true), 1);
  EXPECT_EQ(static_cast<float>(convert<Half>(true)), 1.0f);
}

TEST(Convert, IntegersRoundOnceIntoHalves) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 200000; ++i) {
    auto x = static_cast<int64_t>(random()) >> (11 + random() % 50);  // a double holds it
    double scale =
        std::ldexp(1.0, x == 0 ? 0 : std::max(std::ilogb(static_cast<double>(x)) - 7, 0));
    ASSERT_EQ(convert<double>(convert<BFloat16>(x)),
              std::nearbyint(static_cast<double>(x) / scale) * scale)
        << x;
    auto small = static_cast<int32_t>(x % 70000);
    ASSERT_EQ(convert<Half>(small).bits,
              std::bit_cast<uint16_t>(static_cast<_Float16>(static_cast<double>(small))))
        << small;
  }
}

}  // namespace
