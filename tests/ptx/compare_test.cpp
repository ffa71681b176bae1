// Comparisons and choices.
#include "tests/ptx/support.h"

namespace gradus::ptx::test {
namespace {

using u32 = uint32_t;

template <class T>
std::string compared(const std::string& how, const std::string& t) {
  return "setp." + how + "." + t + " %p, %a, %b; selp.u32 %d, 1, 0, %p;";
}

template <class T>
void check_ordered(const std::string& t) {
  expect_each<u32, T, T>(compared<T>("eq", t), [](T a, T b) { return u32{a == b}; });
  expect_each<u32, T, T>(compared<T>("ne", t), [](T a, T b) { return u32{a < b || a > b}; });
  expect_each<u32, T, T>(compared<T>("lt", t), [](T a, T b) { return u32{a < b}; });
  expect_each<u32, T, T>(compared<T>("le", t), [](T a, T b) { return u32{a <= b}; });
  expect_each<u32, T, T>(compared<T>("gt", t), [](T a, T b) { return u32{a > b}; });
  expect_each<u32, T, T>(compared<T>("ge", t), [](T a, T b) { return u32{a >= b}; });
}

TEST(Compare, Ordered) {
  check_ordered<uint16_t>("u16");
  check_ordered<int16_t>("s16");
  check_ordered<uint32_t>("u32");
  check_ordered<int32_t>("s32");
  check_ordered<uint64_t>("u64");
  check_ordered<int64_t>("s64");
  check_ordered<float>("f32");
  check_ordered<double>("f64");
  expect_each<u32, u32, u32>(compared<u32>("hi", "u32"), [](u32 a, u32 b) { return u32{a > b}; });
  expect_each<u32, u32, u32>(compared<u32>("ls", "u32"), [](u32 a, u32 b) { return u32{a <= b}; });
}

template <class T>
void check_unordered(const std::string& t) {
  const auto either = [](T a, T b) { return a != a || b != b; };
  expect_each<u32, T, T>(compared<T>("equ", t),
                         [=](T a, T b) { return u32{either(a, b) || a == b}; });
  expect_each<u32, T, T>(compared<T>("neu", t), [](T a, T b) { return u32{a != b}; });
  expect_each<u32, T, T>(compared<T>("ltu", t), [](T a, T b) { return u32{!(a >= b)}; });
  expect_each<u32, T, T>(compared<T>("leu", t), [](T a, T b) { return u32{!(a > b)}; });
  expect_each<u32, T, T>(compared<T>("gtu", t), [](T a, T b) { return u32{!(a <= b)}; });
  expect_each<u32, T, T>(compared<T>("geu", t), [](T a, T b) { return u32{!(a < b)}; });
  expect_each<u32, T, T>(compared<T>("num", t), [=](T a, T b) { return u32{!either(a, b)}; });
  expect_each<u32, T, T>(compared<T>("nan", t), [=](T a, T b) { return u32{either(a, b)}; });
}

TEST(Compare, Unordered) {
  check_unordered<float>("f32");
  check_unordered<double>("f64");
}

TEST(Compare, FlushedOperandsAreEqual) {
  const std::vector<float> a{1e-40f, 1e-40f}, b{0.0f, -2e-40f};
  for (u32 r : each<u32>("setp.eq.ftz.f32 %p, %a, %b; selp.u32 %d, 1, 0, %p;", a, b))
    EXPECT_EQ(r, 1u);
  for (u32 r : each<u32>("setp.eq.f32 %p, %a, %b; selp.u32 %d, 1, 0, %p;", a, b)) EXPECT_EQ(r, 0u);
}

TEST(Compare, TwoResultsCombinedWithAPredicate) {
  // %p = (a < b) and not q; %q = not (a < b) and not q, of the old q.
  expect_each<u32, u32, u32, u32>(
      "setp.ne.u32 %q, %c, 0; setp.lt.and.u32 %p|%done, %a, %b, !%q;"
      "selp.u32 %t0, 1, 0, %p; selp.u32 %t1, 2, 0, %done; or.b32 %d, %t0, %t1;",
      [](u32 a, u32 b, u32 c) {
        const bool other = c == 0;
        return (a < b && other ? 1u : 0u) | (a >= b && other ? 2u : 0u);
      });
  expect_each<u32, u32, u32, u32>(
      "setp.ne.u32 %q, %c, 0; setp.eq.xor.u32 %p, %a, %b, %q; selp.u32 %d, 1, 0, %p;",
      [](u32 a, u32 b, u32 c) { return u32{(a == b) != (c != 0)}; });
}

TEST(Compare, PredicatesAreLogic) {
  expect_each<u32, u32, u32>(
      "setp.ne.u32 %p, %a, 0; setp.ne.u32 %q, %b, 0; xor.pred %p, %p, %q; not.pred %p, %p;"
      "selp.b32 %d, 1, 0, %p;",
      [](u32 a, u32 b) { return u32{(a != 0) == (b != 0)}; });
  expect_each<u32, u32>("mov.pred %p, 1; and.pred %p, %p, 0; selp.b32 %d, %a, 7, %p;",
                        [](u32) { return 7u; });
}

TEST(Compare, ResultsAsNumbers) {
  expect_each<u32, float, float>("set.lt.u32.f32 %d, %a, %b;",
                                 [](float a, float b) { return a < b ? ~0u : 0u; });
  expect_each<float, int32_t, int32_t>("set.ge.f32.s32 %d, %a, %b;",
                                       [](int32_t a, int32_t b) { return a >= b ? 1.0f : 0.0f; });
}

TEST(Compare, ChoicesBySign) {
  expect_each<uint64_t, uint64_t, uint64_t, int32_t>(
      "slct.u64.s32 %d, %a, %b, %c;",
      [](uint64_t a, uint64_t b, int32_t c) { return c >= 0 ? a : b; });
  expect_each<u32, u32, u32, float>("slct.b32.f32 %d, %a, %b, %c;",
                                    [](u32 a, u32 b, float c) { return c >= 0 ? a : b; });
}

TEST(Compare, Properties) {
  const auto check = [](const std::string& what, auto f) {
    expect_each<u32, float>("testp." + what + ".f32 %p, %a; selp.u32 %d, 1, 0, %p;",
                            [=](float a) { return u32{f(a)}; });
  };
  check("finite", [](float a) { return std::isfinite(a); });
  check("infinite", [](float a) { return std::isinf(a); });
  check("notanumber", [](float a) { return std::isnan(a); });
  check("subnormal", [](float a) { return std::fpclassify(a) == FP_SUBNORMAL; });
}

}  // namespace
}  // namespace gradus::ptx::test
