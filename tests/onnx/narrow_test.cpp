// Element types of 8 bits and fewer: their numbers are held in wider dtypes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/onnx/support.h"

namespace gradus::test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr int e4m3fn = 17, e4m3fnuz = 18, e5m2 = 19, e5m2fnuz = 20, uint4 = 21, int4 = 22,
              e2m1 = 23, e8m0 = 24, uint2 = 25, int2 = 26, e2m3 = 27, e3m2 = 28;

pb::TensorProto packed(int type, std::vector<int64_t> sizes, const std::string& bytes) {
  pb::TensorProto t;
  t.set_name("w");
  t.set_data_type(type);
  for (int64_t n : sizes) t.add_dims(n);
  t.set_raw_data(bytes);
  return t;
}

// The numbers of all codes, in order.
std::vector<double> all_numbers(int type, int bits) {
  std::string bytes;
  unsigned held = 0;
  int filled = 0;
  for (unsigned code = 0; code < 1u << bits; ++code) {
    held |= code << filled;
    for (filled += bits; filled >= 8; filled -= 8, held >>= 8) bytes += static_cast<char>(held);
  }
  Model m(25);
  m.weight(packed(type, {1 << bits}, bytes));
  m.node("Cast", {"w"}, {"y"}).set("to", int64_t{f64});
  m.output("y");
  return run(m.import(), {}).at("y").to_doubles();
}

// What a model makes of these numbers; known when it is imported if `folded`.
Tensor result_of(Model& m, const std::vector<double>& x, bool folded) {
  const auto n = static_cast<int64_t>(x.size());
  if (folded)
    m.weight(tensor("x", {n}, std::vector<float>(x.begin(), x.end())));
  else
    m.input("x", f32, {n});
  m.output("y");
  return run(m.import(), {{"x", floats({n}, x)}}).at("y");
}

std::vector<double> cast_to(int type, const std::vector<double>& x, bool saturate = true,
                            const char* mode = "up") {
  Model m(25);
  m.node("Cast", {"x"}, {"y"})
      .set("to", int64_t{type})
      .set("saturate", int64_t{saturate})
      .set("round_mode", mode);
  return result_of(m, x, false).to_doubles();
}

void expect_same(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << "element " << i << " is " << got[i];
      continue;
    }
    EXPECT_EQ(got[i], expected[i]) << "element " << i;
    EXPECT_EQ(std::signbit(got[i]), std::signbit(expected[i])) << "element " << i;
  }
}

TEST(OnnxNarrow, CodesAreTheNumbersOfTheStandard) {
  expect_same(all_numbers(e2m1, 4),
              {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6});
  expect_same(all_numbers(uint2, 2), {0, 1, 2, 3});
  expect_same(all_numbers(int2, 2), {0, 1, -2, -1});
  expect_same(all_numbers(int4, 4), {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1});
  EXPECT_EQ(all_numbers(uint4, 4)[15], 15);
  const auto a = all_numbers(e4m3fn, 8), b = all_numbers(e4m3fnuz, 8);
  expect_same({a[0], a[1], a[7], a[8], a[0x38], a[0x7e], a[0x7f], a[0x80], a[0xfe], a[0xff]},
              {0, 0x1p-9, 0x1.cp-7, 0x1p-6, 1, 448, nan, -0.0, -448, nan});
  expect_same({b[0], b[1], b[0x40], b[0x7f], b[0x80], b[0xff]}, {0, 0x1p-10, 1, 240, nan, -240});
  const auto c = all_numbers(e5m2, 8), d = all_numbers(e5m2fnuz, 8);
  expect_same({c[1], c[0x3c], c[0x7b], c[0x7c], c[0x7d], c[0xfc], c[0xff]},
              {0x1p-16, 1, 57344, infinity, nan, -infinity, nan});
  expect_same({d[1], d[0x40], d[0x7f], d[0x80]}, {0x1p-17, 1, 57344, nan});
  const auto e = all_numbers(e8m0, 8);
  expect_same({e[0], e[1], e[127], e[254], e[255]}, {0x1p-127, 0x1p-126, 1, 0x1p127, nan});
  const auto f = all_numbers(e2m3, 6), g = all_numbers(e3m2, 6);
  expect_same({f[1], f[8], f[31], f[33]}, {0.125, 1, 7.5, -0.125});
  expect_same({g[1], g[12], g[31], g[63]}, {0.0625, 1, 28, -28});
}

// Each number is its own rounding, what lies between two goes to the nearer one, and the middle to
// the one whose code is even.
TEST(OnnxNarrow, RoundsToTheNearestNumber) {
  for (auto [type, bits] :
       {std::pair(e4m3fn, 8), std::pair(e4m3fnuz, 8), std::pair(e5m2, 8), std::pair(e5m2fnuz, 8),
        std::pair(e2m1, 4), std::pair(e2m3, 6), std::pair(e3m2, 6)}) {
    SCOPED_TRACE(type);
    const auto numbers = all_numbers(type, bits);
    const auto half = numbers.size() / 2;
    std::vector<double> x, expected;
    for (size_t i = 0; i + 1 < half && std::isfinite(numbers[i + 1]); ++i)
      for (double sign : {1.0, -1.0}) {
        const double low = sign * numbers[i], high = sign * numbers[i + 1];
        const float middle = static_cast<float>((low + high) / 2);
        x.push_back(low);
        expected.push_back(low);
        x.push_back(static_cast<double>(std::nextafter(middle, static_cast<float>(low))));
        expected.push_back(low);
        x.push_back(static_cast<double>(std::nextafter(middle, static_cast<float>(high))));
        expected.push_back(high);
        x.push_back(static_cast<double>(middle));
        expected.push_back(i % 2 ? high : low);
      }
    // These have no minus zero.
    if (type == e4m3fnuz || type == e5m2fnuz)
      for (double& y : expected) y = y == 0 ? 0 : y;
    expect_same(cast_to(type, x), expected);
  }
}

TEST(OnnxNarrow, SaturatesOrNot) {
  const std::vector<double> x{464, 465, 1e30, -1e30, infinity, -infinity, nan, 1e-30, -1e-30};
  expect_same(cast_to(e4m3fn, x), {448, 448, 448, -448, 448, -448, nan, 0, -0.0});
  expect_same(cast_to(e4m3fn, x, false), {448, nan, nan, nan, nan, nan, nan, 0, -0.0});
  expect_same(cast_to(e4m3fnuz, x), {240, 240, 240, -240, 240, -240, nan, 0, 0});
  expect_same(cast_to(e4m3fnuz, x, false), {nan, nan, nan, nan, nan, nan, nan, 0, 0});
  expect_same(cast_to(e5m2, {61440, 61439, 1e30, infinity, -infinity, nan}),
              {57344, 57344, 57344, 57344, -57344, nan});
  expect_same(cast_to(e5m2, {61440, 61439, 1e30, infinity, -infinity, nan}, false),
              {infinity, 57344, infinity, infinity, -infinity, nan});
  expect_same(cast_to(e5m2fnuz, {1e30, -infinity}, false), {nan, nan});
  expect_same(cast_to(e2m1, {5, 5.1, 9, -infinity}), {4, 6, 6, -6});
  expect_same(cast_to(int4, {-9, -8.9, 7.9, 8}), {7, -8, 7, -8});
  expect_same(cast_to(uint4, {-1, 15.5, 16}), {15, 15, 0});
  expect_same(cast_to(int2, {-3, -2, 1, 2}), {1, -2, 1, -2});
  expect_same(cast_to(uint2, {-1, 3, 4}), {3, 3, 0});
}

TEST(OnnxNarrow, PowersOfTwo) {
  const std::vector<double> x{1, 1.1, 1.5, 3, 0, infinity, nan, 0x1.8p127};
  expect_same(cast_to(e8m0, x), {1, 2, 2, 4, 0x1p-127, 0x1p127, nan, 0x1p127});
  expect_same(cast_to(e8m0, x, true, "down"), {1, 1, 1, 2, 0x1p-127, 0x1p127, nan, 0x1p127});
  expect_same(cast_to(e8m0, x, false, "nearest"), {1, 1, 2, 4, nan, nan, nan, nan});
  std::vector<double> powers;
  for (int i = -126; i <= 127; ++i) powers.push_back(std::ldexp(1.0, i));
  for (const char* mode : {"up", "down", "nearest"})
    expect_same(cast_to(e8m0, powers, true, mode), powers);
}

// Five numbers of four bits are three bytes; or numbers of the field that holds bytes.
TEST(OnnxNarrow, ElementsArePackedFromTheLowestBits) {
  auto read = [](const pb::TensorProto& t) {
    Model m(25);
    m.weight(t);
    m.node("Cast", {"w"}, {"y"}).set("to", int64_t{i64});
    m.output("y");
    return run(m.import(), {}).at("y").to_int64s();
  };
  const std::vector<int64_t> expected{1, -1, 2, -8, 7};
  pb::TensorProto t = packed(int4, {5}, "\xf1\x82\x07");
  EXPECT_EQ(read(t), expected);
  t.clear_raw_data();
  for (int byte : {0xf1, 0x82, 0x07}) t.add_int32_data(byte);
  EXPECT_EQ(read(t), expected);
  Model cut(25);
  cut.weight(packed(int4, {5}, "\xf1\x82"));
  cut.node("Identity", {"w"}, {"y"});
  cut.output("y");
  expect_refused(cut, {"int4", "3 bytes", "2"});
}

TEST(OnnxNarrow, QuantizesAndBack) {
  Model m(25);
  m.input("x", f32, {4});
  m.weight(tensor("scale", {}, {0.5f}));
  m.weight(packed(int4, {}, "\x01"));
  m.node("QuantizeLinear", {"x", "scale", "w"}, {"q"});
  m.node("DequantizeLinear", {"q", "scale", "w"}, {"y"});
  m.output("q");
  m.output("y");
  const Values got = run(m.import(), {{"x", floats({4}, {0.75, -1.3, 100, -100})}});
  EXPECT_EQ(got.at("q").dtype(), DType::i8);
  expect_same(got.at("q").to_doubles(), {3, -2, 7, -8});
  expect_same(got.at("y").to_doubles(), {1, -1.5, 3, -4.5});
  Model floating(25);
  floating.input("x", f32, {3});
  floating.weight(tensor("scale", {}, {2}));
  floating.node("QuantizeLinear", {"x", "scale"}, {"y"}).set("output_dtype", int64_t{e4m3fn});
  floating.output("y");
  const Tensor y = run(floating.import(), {{"x", floats({3}, {1, 2.2, 1e9})}}).at("y");
  EXPECT_EQ(y.dtype(), DType::f16);
  expect_same(y.to_doubles(), {0.5, 1.125, 448});
  Model other(25);
  other.input("x", int4, {2});
  other.weight(tensor("scale", {}, {1}));
  pb::TensorProto zero = packed(int2, {}, std::string(1, '\0'));
  other.weight(zero);
  other.node("DequantizeLinear", {"x", "scale", "w"}, {"y"});
  other.output("y");
  expect_refused(other, {"different dtypes"});
}

// What is moved keeps its type; what computes is refused by name.
TEST(OnnxNarrow, TypesGoAlongWithWhatIsMoved) {
  for (bool folded : {false, true}) {
    Model m(25);
    m.weight(packed(e5m2, {2}, "\x3c\x3d"));
    m.weight(integers("shape", {2}, {2, 1}));
    m.node("Reshape", {"w", "shape"}, {"v"});
    m.node("CastLike", {"x", "v"}, {"y"});
    expect_same(result_of(m, {1.1, 70000}, folded).to_doubles(), {1, 57344});
  }
  Model sum(25);
  sum.input("x", e4m3fn, {2});
  sum.node("Add", {"x", "x"}, {"y"});
  sum.output("y");
  expect_refused(sum, {"Add of float8e4m3fn", "cast it first"});
}

}  // namespace
}  // namespace gradus::test
