// Integer arithmetic against C++'s.
#include "tests/ptx/lanes.h"
#include "tests/ptx/support.h"

namespace gradus::ptx::test {
namespace {

using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;

template <class T>
constexpr const char* name = "";
template <>
constexpr const char* name<u16> = "u16";
template <>
constexpr const char* name<u32> = "u32";
template <>
constexpr const char* name<u64> = "u64";
template <>
constexpr const char* name<s16> = "s16";
template <>
constexpr const char* name<s32> = "s32";
template <>
constexpr const char* name<s64> = "s64";

template <class T>
class Integers : public testing::Test {
 public:
  static std::string op(const std::string& head) { return head + "." + name<T> + " "; }
};
using IntegerTypes = testing::Types<u16, u32, u64, s16, s32, s64>;
TYPED_TEST_SUITE(Integers, IntegerTypes);

template <class T>
T cut(Int128 x) {
  return static_cast<T>(x);
}

TYPED_TEST(Integers, AddAndSubtractWrap) {
  using T = TypeParam;
  expect_each<T, T, T>(this->op("add") + "%d, %a, %b;",
                       [](T a, T b) { return cut<T>(Int128{a} + b); });
  expect_each<T, T, T>(this->op("sub") + "%d, %a, %b;",
                       [](T a, T b) { return cut<T>(Int128{a} - b); });
}

TYPED_TEST(Integers, ProductsHaveALowAndAHighHalf) {
  using T = TypeParam;
  using W = Wider<T>;
  const auto bits = sizeof(T) * 8;
  expect_each<T, T, T>(this->op("mul.lo") + "%d, %a, %b;", [](T a, T b) {
    return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b));
  });
  expect_each<T, T, T>(this->op("mul.hi") + "%d, %a, %b;",
                       [=](T a, T b) { return static_cast<T>((W{a} * b) >> bits); });
  expect_each<T, T, T, T>(this->op("mad.lo") + "%d, %a, %b, %c;", [](T a, T b, T c) {
    return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b) + static_cast<u64>(c));
  });
  expect_each<T, T, T, T>(this->op("mad.hi") + "%d, %a, %b, %c;", [=](T a, T b, T c) {
    return static_cast<T>(static_cast<u64>((W{a} * b) >> bits) + static_cast<u64>(c));
  });
}

TYPED_TEST(Integers, WideProducts) {
  using T = TypeParam;
  if constexpr (sizeof(T) < 8) {
    using W = Wider<T>;
    expect_each<W, T, T>(this->op("mul.wide") + "%d, %a, %b;",
                         [](T a, T b) { return static_cast<W>(W{a} * b); });
    expect_each<W, T, T, W>(this->op("mad.wide") + "%d, %a, %b, %c;", [](T a, T b, W c) {
      return static_cast<W>(static_cast<u64>(W{a} * b) + static_cast<u64>(c));
    });
  }
}

TYPED_TEST(Integers, Quotients) {
  using T = TypeParam;
  // Divisors of zero are a fault; see Faults.DivisionByZero.
  const std::string nonzero = this->op("max") + "%b, %b, 1;";
  const auto one = [](T b) { return std::max<T>(b, 1); };
  expect_each<T, T, T>(nonzero + this->op("div") + "%d, %a, %b;",
                       [=](T a, T b) { return cut<T>(Int128{a} / one(b)); });
  expect_each<T, T, T>(nonzero + this->op("rem") + "%d, %a, %b;",
                       [=](T a, T b) { return cut<T>(Int128{a} % one(b)); });
  if (std::is_signed_v<T>)
    expect_each<T, T>(this->op("div") + "%d, %a, -1;", [](T a) { return cut<T>(-Int128{a}); });
}

TYPED_TEST(Integers, ExtremesAndDistances) {
  using T = TypeParam;
  expect_each<T, T, T>(this->op("min") + "%d, %a, %b;", [](T a, T b) { return std::min(a, b); });
  expect_each<T, T, T>(this->op("max") + "%d, %a, %b;", [](T a, T b) { return std::max(a, b); });
  expect_each<T, T, T, T>(this->op("sad") + "%d, %a, %b, %c;", [](T a, T b, T c) {
    return cut<T>((a < b ? Int128{b} - a : Int128{a} - b) + c);
  });
  if constexpr (std::is_signed_v<T>) {
    expect_each<T, T>(this->op("abs") + "%d, %a;",
                      [](T a) { return cut<T>(a < 0 ? -Int128{a} : Int128{a}); });
    expect_each<T, T>(this->op("neg") + "%d, %a;", [](T a) { return cut<T>(-Int128{a}); });
  }
}

TYPED_TEST(Integers, ShiftsToTheRightKeepTheSign) {
  using T = TypeParam;
  expect_each<T, T, u32>(this->op("shr") + "%d, %a, %b;", [](T a, u32 n) {
    return static_cast<T>(n >= sizeof(T) * 8 ? (a < 0 ? -1 : 0) : a >> n);
  });
}

TEST(Integer, SaturatedSums) {
  expect_each<s32, s32, s32>("add.sat.s32 %d, %a, %b;", [](s32 a, s32 b) {
    return static_cast<s32>(std::clamp<s64>(s64{a} + b, INT32_MIN, INT32_MAX));
  });
  expect_each<s32, s32, s32>("sub.sat.s32 %d, %a, %b;", [](s32 a, s32 b) {
    return static_cast<s32>(std::clamp<s64>(s64{a} - b, INT32_MIN, INT32_MAX));
  });
}

TEST(Integer, CarriesChainWords) {
  // 64 bits of 32-bit words, as the device adds and multiplies what is wider than it is.
  expect_each<u64, u64, u64>(
      "mov.b64 {%t0, %t1}, %a; mov.b64 {%t2, %t3}, %b;"
      "add.cc.u32 %t0, %t0, %t2; addc.u32 %t1, %t1, %t3; mov.b64 %d, {%t0, %t1};",
      [](u64 a, u64 b) { return a + b; });
  expect_each<u64, u64, u64>(
      "mov.b64 {%t0, %t1}, %a; mov.b64 {%t2, %t3}, %b;"
      "sub.cc.u32 %t0, %t0, %t2; subc.u32 %t1, %t1, %t3; mov.b64 %d, {%t0, %t1};",
      [](u64 a, u64 b) { return a - b; });
  // The high half of a 128-bit sum of two products.
  expect_each<u64, u64, u64, u64>(
      "mad.lo.cc.u64 %u0, %a, %b, %c; madc.hi.u64 %d, %a, %b, 0;", [](u64 a, u64 b, u64 c) {
        return static_cast<u64>((static_cast<Uint128>(a) * b + c) >> 64);
      });
  // The carry of the last add: 1 if it overflowed.
  expect_each<u32, u64, u64>("add.cc.u64 %u0, %a, %b; addc.u32 %d, 0, 0;",
                             [](u64 a, u64 b) { return static_cast<u32>(a + b < a); });
  expect_each<u32, u32, u32>("sub.cc.u32 %t0, %a, %b; subc.cc.u32 %t1, 0, 0; subc.u32 %d, 0, 0;",
                             [](u32 a, u32 b) { return a < b ? ~0u : 0u; });
}

TEST(Integer, TwentyFourBitProducts) {
  const auto low = [](s32 x) {
    return static_cast<s64>(static_cast<s32>(static_cast<u32>(x) << 8) >> 8);
  };
  expect_each<s32, s32, s32>("mul24.lo.s32 %d, %a, %b;",
                             [=](s32 a, s32 b) { return static_cast<s32>(low(a) * low(b)); });
  expect_each<s32, s32, s32>("mul24.hi.s32 %d, %a, %b;", [=](s32 a, s32 b) {
    return static_cast<s32>((low(a) * low(b)) >> 16);
  });
  expect_each<u32, u32, u32, u32>("mad24.lo.u32 %d, %a, %b, %c;", [](u32 a, u32 b, u32 c) {
    return (a & 0xffffff) * (b & 0xffffff) + c;
  });
}

TEST(Integer, DotProductsOfBytes) {
  expect_each<s32, s32, s32, s32>("dp4a.s32.s32 %d, %a, %b, %c;", [](s32 a, s32 b, s32 c) {
    u32 sum = static_cast<u32>(c);
    for (int i = 0; i < 32; i += 8)
      sum += static_cast<u32>(static_cast<int8_t>(a >> i) * static_cast<int8_t>(b >> i));
    return static_cast<s32>(sum);
  });
  expect_each<u32, u32, u32, u32>("dp4a.u32.u32 %d, %a, %b, %c;", [](u32 a, u32 b, u32 c) {
    for (int i = 0; i < 32; i += 8) c += (a >> i & 255) * (b >> i & 255);
    return c;
  });
}

TEST(Integer, PairsOfSixteenBits) {
  const auto pair = [](u32 a, u32 b, auto f) {
    const auto half = [&](int s) {
      return static_cast<u32>(
          static_cast<u16>(f(static_cast<s16>(a >> s), static_cast<s16>(b >> s))));
    };
    return half(0) | half(16) << 16;
  };
  expect_each<u32, u32, u32>("add.s16x2 %d, %a, %b;", [=](u32 a, u32 b) {
    return pair(a, b, [](int x, int y) { return x + y; });
  });
  expect_each<u32, u32, u32>("min.s16x2 %d, %a, %b;", [=](u32 a, u32 b) {
    return pair(a, b, [](int x, int y) { return std::min(x, y); });
  });
  expect_each<u32, u32, u32>("max.u16x2 %d, %a, %b;", [=](u32 a, u32 b) {
    return pair(a, b,
                [](int x, int y) { return std::max(static_cast<u16>(x), static_cast<u16>(y)); });
  });
}

}  // namespace
}  // namespace gradus::ptx::test
