// 16-bit floats: rounded once, by way of long double, which holds every sum and product of them.
#include "gradus/dtype.h"
#include "tests/ptx/support.h"

namespace gradus::ptx::test {
namespace {

using u16 = uint16_t;
using u32 = uint32_t;

struct F16 {
  static constexpr const char* name = "f16";
  static constexpr int fraction = 10, least = -24, most = 16;
  static double wide(u16 x) { return static_cast<double>(half_to_float(x)); }
};
struct BF16 {
  static constexpr const char* name = "bf16";
  static constexpr int fraction = 7, least = -133, most = 128;
  static double wide(u16 x) { return static_cast<double>(bfloat16_to_float(x)); }
};

// All finite numbers of the format that are not negative, in order: their bits count up.
template <class F>
u16 rounded(long double exact) {
  if (std::isnan(exact)) return 0x7fff;
  const bool negative = std::signbit(exact);
  const long double m = std::fabs(exact);
  const u16 infinity = static_cast<u16>(F::fraction == 10 ? 0x7c00 : 0x7f80);
  u16 bits;
  if (m == 0) {
    bits = 0;
  } else {
    int e;
    std::frexp(m, &e);
    // One unit of the last place, then the nearest multiple, ties to even.
    const int place = std::max(e - 1 - F::fraction, F::least);
    const long double unit = std::ldexp(1.0L, place), count = m / unit;
    long double k = std::floor(count);
    const long double rest = count - k;
    if (rest > 0.5L || (rest == 0.5L && std::fmod(k, 2.0L) == 1)) k += 1;
    const long double value = k * unit;
    if (value >= std::ldexp(1.0L, F::most)) {
      bits = infinity;
    } else {
      // As many steps above the smallest number.
      std::frexp(value, &e);
      const int field = value < std::ldexp(1.0L, F::least + F::fraction)
                            ? 0
                            : e - 1 - (F::least + F::fraction) + 1;
      const long double whole = field == 0 ? value / std::ldexp(1.0L, F::least)
                                           : std::ldexp(value, -(F::least + field - 1));
      bits = static_cast<u16>(static_cast<u32>(field > 1 ? field - 1 : 0) << F::fraction);
      bits = static_cast<u16>(bits + static_cast<u32>(whole));
    }
  }
  return static_cast<u16>(bits | (negative ? 0x8000 : 0));
}

template <class F>
class Halves : public testing::Test {
 public:
  static std::string op(const std::string& head) { return head + "." + F::name + " "; }
  static bool is_nan(u16 x) { return std::isnan(F::wide(x)); }
};
using Formats = testing::Types<F16, BF16>;
TYPED_TEST_SUITE(Halves, Formats);

// A long double has 64 bits: sums of bf16 may need more, so the tail is looked at.
long double sum(long double a, long double b) {
  const long double s = a + b;
  if (!std::isfinite(s)) return s;
  const long double big = std::fabs(a) > std::fabs(b) ? a : b, little = big == a ? b : a;
  const long double tail = little - (s - big);
  if (tail == 0) return s;
  // Away from a tie, and no further.
  return std::nextafter(s, tail > 0 ? INFINITY : -INFINITY);
}

TYPED_TEST(Halves, ArithmeticRoundsOnce) {
  using F = TypeParam;
  const auto w = [](u16 x) { return static_cast<long double>(F::wide(x)); };
  expect_each<u16, u16, u16>(this->op("add") + "%d, %a, %b;",
                             [=](u16 a, u16 b) { return rounded<F>(sum(w(a), w(b))); });
  expect_each<u16, u16, u16>(this->op("sub.rn") + "%d, %a, %b;",
                             [=](u16 a, u16 b) { return rounded<F>(sum(w(a), -w(b))); });
  expect_each<u16, u16, u16>(this->op("mul") + "%d, %a, %b;",
                             [=](u16 a, u16 b) { return rounded<F>(w(a) * w(b)); });
  expect_each<u16, u16, u16, u16>(
      this->op("fma.rn") + "%d, %a, %b, %c;",
      [=](u16 a, u16 b, u16 c) { return rounded<F>(sum(w(a) * w(b), w(c))); }, 20000);
  expect_each<u16, u16, u16, u16>(this->op("fma.rn.relu") + "%d, %a, %b, %c;",
                                  [=](u16 a, u16 b, u16 c) {
                                    const u16 r = rounded<F>(sum(w(a) * w(b), w(c)));
                                    return static_cast<u16>(r & 0x8000 ? 0 : r);
                                  });
}

TYPED_TEST(Halves, SignsAndExtremes) {
  using F = TypeParam;
  expect_each<u16, u16>(this->op("neg") + "%d, %a;",
                        [](u16 a) { return static_cast<u16>(a ^ 0x8000); });
  expect_each<u16, u16>(this->op("abs") + "%d, %a;",
                        [](u16 a) { return static_cast<u16>(a & 0x7fff); });
  const auto smaller = [](u16 a, u16 b) -> u16 {
    if (std::isnan(F::wide(a))) return std::isnan(F::wide(b)) ? u16{0x7fff} : b;
    if (std::isnan(F::wide(b))) return a;
    if (F::wide(a) == F::wide(b)) return a & 0x8000 ? a : b;
    return F::wide(a) < F::wide(b) ? a : b;
  };
  expect_each<u16, u16, u16>(this->op("min") + "%d, %a, %b;", smaller);
  expect_each<u16, u16, u16>(this->op("max.NaN") + "%d, %a, %b;", [=](u16 a, u16 b) {
    if (Halves<F>::is_nan(a) || Halves<F>::is_nan(b)) return u16{0x7fff};
    return smaller(a, b) == a ? b : a;
  });
}

TYPED_TEST(Halves, PairsAreTwoOfThem) {
  using F = TypeParam;
  const std::string pair = std::string(F::name) + "x2 ";
  const auto both = [](u32 a, u32 b, auto f) {
    const auto half = [&](int s) {
      return static_cast<u32>(f(static_cast<u16>(a >> s), static_cast<u16>(b >> s)));
    };
    return half(0) | half(16) << 16;
  };
  const auto w = [](u16 x) { return static_cast<long double>(F::wide(x)); };
  expect_each<u32, u32, u32>("mul." + pair + "%d, %a, %b;", [=](u32 a, u32 b) {
    return both(a, b, [=](u16 x, u16 y) { return rounded<F>(w(x) * w(y)); });
  });
  expect_each<u32, u32, u32>("fma.rn." + pair + "%d, %a, %b, %a;", [=](u32 a, u32 b) {
    return both(a, b, [=](u16 x, u16 y) { return rounded<F>(sum(w(x) * w(y), w(x))); });
  });
}

TYPED_TEST(Halves, Conversions) {
  using F = TypeParam;
  const std::string t = F::name;
  expect_each<float, u16>("cvt.f32." + t + " %d, %a;",
                          [](u16 a) { return static_cast<float>(F::wide(a)); });
  expect_each<u16, float>(
      "cvt.rn." + t + ".f32 %d, %a;",
      [](float a) { return rounded<F>(static_cast<long double>(a)); }, 20000);
  expect_each<u16, double>(
      "cvt.rn." + t + ".f64 %d, %a;",
      [](double a) { return rounded<F>(static_cast<long double>(a)); }, 20000);
  expect_each<u16, int64_t>("cvt.rn." + t + ".s64 %d, %a;",
                            [](int64_t a) { return rounded<F>(static_cast<long double>(a)); });
  expect_each<u16, uint64_t>("cvt.rn." + t + ".u64 %d, %a;",
                             [](uint64_t a) { return rounded<F>(static_cast<long double>(a)); });
  // Towards zero: the number itself or the one before it.
  expect_each<u16, float>("cvt.rz." + t + ".f32 %d, %a;", [](float a) {
    const u16 r = rounded<F>(static_cast<long double>(a));
    if (std::isnan(a) || std::isinf(a)) return r;
    return static_cast<u16>(std::fabs(F::wide(r)) > std::fabs(static_cast<double>(a)) ? r - 1 : r);
  });
  const auto halves = [](float a, float b) {
    return static_cast<u32>(rounded<F>(static_cast<long double>(a))) << 16 |
           rounded<F>(static_cast<long double>(b));
  };
  expect_each<u32, float, float>("cvt.rn." + t + "x2.f32 %d, %a, %b;", halves);
}

TYPED_TEST(Halves, Comparisons) {
  using F = TypeParam;
  const std::string t = F::name;
  expect_each<u32, u16, u16>("setp.lt." + t + " %p, %a, %b; selp.u32 %d, 1, 0, %p;",
                             [](u16 a, u16 b) { return u32{F::wide(a) < F::wide(b)}; });
  expect_each<u32, u16, u16>("setp.neu." + t + " %p, %a, %b; selp.u32 %d, 1, 0, %p;",
                             [](u16 a, u16 b) { return u32{F::wide(a) != F::wide(b)}; });
  const u32 one = F::fraction == 10 ? 0x3c00 : 0x3f80;
  expect_each<u32, u32, u32>("set.ge." + t + "x2." + t + "x2 %d, %a, %b;", [=](u32 a, u32 b) {
    const auto half = [&](int s) {
      return F::wide(static_cast<u16>(a >> s)) >= F::wide(static_cast<u16>(b >> s)) ? one : 0;
    };
    return half(0) | half(16) << 16;
  });
}

}  // namespace
}  // namespace gradus::ptx::test
