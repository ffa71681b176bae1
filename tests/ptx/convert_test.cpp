// Conversions: widths, signs, roundings, saturation, NaN.
#include <cfenv>

#include "tests/ptx/lanes.h"
#include "tests/ptx/support.h"

namespace gradus::ptx::test {
namespace {

template <class D, class S>
void check_integers(const std::string& d, const std::string& s) {
  expect_each<D, S>(
      "cvt." + d + "." + s + " %d, %a;", [](S a) { return static_cast<D>(a); }, 500);
  expect_each<D, S>(
      "cvt.sat." + d + "." + s + " %d, %a;",
      [](S a) {
        return static_cast<D>(
            std::clamp<Int128>(a, std::numeric_limits<D>::min(), std::numeric_limits<D>::max()));
      },
      500);
}

template <class S>
void check_integers_from(const std::string& s) {
  check_integers<uint16_t, S>("u16", s);
  check_integers<int16_t, S>("s16", s);
  check_integers<uint32_t, S>("u32", s);
  check_integers<int32_t, S>("s32", s);
  check_integers<uint64_t, S>("u64", s);
  check_integers<int64_t, S>("s64", s);
}

TEST(Convert, Integers) {
  check_integers_from<uint16_t>("u16");
  check_integers_from<int16_t>("s16");
  check_integers_from<uint32_t>("u32");
  check_integers_from<int32_t>("s32");
  check_integers_from<uint64_t>("u64");
  check_integers_from<int64_t>("s64");
}

TEST(Convert, BytesLiveInWiderRegisters) {
  expect_each<uint32_t, uint32_t>("cvt.u32.u8 %d, %a;", [](uint32_t a) { return a & 255; });
  expect_each<int32_t, int32_t>(
      "cvt.s32.s8 %d, %a;", [](int32_t a) { return static_cast<int32_t>(static_cast<int8_t>(a)); });
  expect_each<int16_t, int32_t>(
      "cvt.s8.s32 %d, %a;", [](int32_t a) { return static_cast<int16_t>(static_cast<int8_t>(a)); });
  expect_each<uint16_t, int32_t>("cvt.sat.u8.s32 %d, %a;", [](int32_t a) {
    return static_cast<uint16_t>(std::clamp(a, 0, 255));
  });
}

template <class D, class S>
D integer_of(S a, double (*round)(double)) {
  if (a != a)
    return sizeof(S) == 8 || sizeof(D) == 8
               ? static_cast<D>(std::make_unsigned_t<D>{1} << (sizeof(D) * 8 - 1))
               : D{0};
  const double x = round(static_cast<double>(a));
  const long double wide = x;
  if (wide > static_cast<long double>(std::numeric_limits<D>::max()))
    return std::numeric_limits<D>::max();
  if (wide < static_cast<long double>(std::numeric_limits<D>::min()))
    return std::numeric_limits<D>::min();
  return static_cast<D>(wide);
}

template <class D, class S>
void check_to_integer(const std::string& d, const std::string& s) {
  const struct {
    const char* name;
    double (*round)(double);
  } modes[] = {{"rni", [](double x) { return std::nearbyint(x); }},
               {"rzi", [](double x) { return std::trunc(x); }},
               {"rmi", [](double x) { return std::floor(x); }},
               {"rpi", [](double x) { return std::ceil(x); }}};
  for (const auto& m : modes)
    expect_each<D, S>(std::string("cvt.") + m.name + "." + d + "." + s + " %d, %a;",
                      [&](S a) { return integer_of<D>(a, m.round); });
}

TEST(Convert, FloatsToIntegersSaturate) {
  check_to_integer<int32_t, float>("s32", "f32");
  check_to_integer<uint32_t, float>("u32", "f32");
  check_to_integer<int64_t, float>("s64", "f32");
  check_to_integer<uint64_t, float>("u64", "f32");
  check_to_integer<int16_t, float>("s16", "f32");
  check_to_integer<int32_t, double>("s32", "f64");
  check_to_integer<uint32_t, double>("u32", "f64");
  check_to_integer<int64_t, double>("s64", "f64");
  check_to_integer<uint64_t, double>("u64", "f64");
}

template <class D, class S>
void check_from_integer(const std::string& d, const std::string& s) {
  expect_each<D, S>("cvt.rn." + d + "." + s + " %d, %a;", [](S a) { return static_cast<D>(a); });
  // A directed result is the nearest one or its neighbour; long double holds all 64 bits.
  expect_each<D, S>("cvt.rp." + d + "." + s + " %d, %a;", [](S a) {
    const D x = static_cast<D>(a);
    return static_cast<long double>(x) < static_cast<long double>(a)
               ? std::nextafter(x, std::numeric_limits<D>::infinity())
               : x;
  });
  expect_each<D, S>("cvt.rz." + d + "." + s + " %d, %a;", [](S a) {
    const D x = static_cast<D>(a);
    return std::fabs(static_cast<long double>(x)) > std::fabs(static_cast<long double>(a))
               ? std::nextafter(x, D{0})
               : x;
  });
}

TEST(Convert, IntegersToFloatsRound) {
  check_from_integer<float, int32_t>("f32", "s32");
  check_from_integer<float, uint32_t>("f32", "u32");
  check_from_integer<float, int64_t>("f32", "s64");
  check_from_integer<float, uint64_t>("f32", "u64");
  check_from_integer<double, int64_t>("f64", "s64");
  check_from_integer<double, uint64_t>("f64", "u64");
  check_from_integer<double, int32_t>("f64", "s32");
}

TEST(Convert, BetweenFloats) {
  expect_each<double, float>("cvt.f64.f32 %d, %a;", [](float a) { return static_cast<double>(a); });
  expect_each<float, double>("cvt.rn.f32.f64 %d, %a;",
                             [](double a) { return static_cast<float>(a); });
  expect_each<float, double>("cvt.rm.f32.f64 %d, %a;", [](double a) {
    const auto x = static_cast<float>(a);
    return static_cast<double>(x) > a ? std::nextafter(x, -std::numeric_limits<float>::infinity())
                                      : x;
  });
  expect_each<float, float>("cvt.rmi.f32.f32 %d, %a;", [](float a) { return std::floor(a); });
  expect_each<double, double>("cvt.rni.f64.f64 %d, %a;",
                              [](double a) { return std::nearbyint(a); });
  expect_each<float, float>("cvt.sat.f32.f32 %d, %a;",
                            [](float a) { return a != a || a <= 0 ? 0.0f : std::min(a, 1.0f); });
  expect_each<float, float>("cvt.ftz.f32.f32 %d, %a;", [](float a) {
    return std::fpclassify(a) == FP_SUBNORMAL ? std::copysign(0.0f, a) : a;
  });
}

TEST(Convert, RoundingIsAskedFor) {
  const auto refused = [](const std::string& code) {
    return error_of([&] { each<float>(code, std::vector<double>{1.0}); });
  };
  EXPECT_NE(refused("cvt.f32.f64 %d, %a;").find("lacks its rounding"), std::string::npos);
  EXPECT_NE(refused("cvt.s32.f64 %t0, %a; mov.f32 %d, 0f00000000;").find("rounding to an integer"),
            std::string::npos);
}

}  // namespace
}  // namespace gradus::ptx::test
