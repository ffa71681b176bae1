// Inputs bound by name, at random, and converted.
// SPEC P9
#include "gradus/inputs.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "gradus/text.h"

namespace {

using namespace gradus;

Context& context() { return *Context::default_context(); }

Tensor values(DType dtype, std::vector<double> v) {
  return Tensor::from(dtype, Sizes{static_cast<int64_t>(v.size())}, v);
}

TEST(RandomTensor, IsTheSameEverywhere) {
  // Elements of one name and seed, as every machine must find them.
  Tensor t = random_tensor(DType::f64, Sizes{4}, "x", 1, context());
  EXPECT_EQ(t.to_doubles(), (std::vector<double>{0.23307674330579542, 1.0851826959627318,
                                                 -0.3928527534867168, 0.26002790708748663}));
  EXPECT_EQ(t.to_doubles(), random_tensor(DType::f64, Sizes{2, 2}, "x", 1, context()).to_doubles());
  EXPECT_EQ(t.to(DType::f32).to_doubles(),
            random_tensor(DType::f32, Sizes{4}, "x", 1, context()).to_doubles());
  EXPECT_NE(t.to_doubles(), random_tensor(DType::f64, Sizes{4}, "y", 1, context()).to_doubles());
  EXPECT_NE(t.to_doubles(), random_tensor(DType::f64, Sizes{4}, "x", 2, context()).to_doubles());
}

TEST(RandomTensor, IsNormalOrABit) {
  int64_t n = 100000;
  double sum = 0, square = 0, fourth = 0;
  for (double v : random_tensor(DType::f64, Sizes{n}, "x", 7, context()).to_doubles()) {
    ASSERT_TRUE(std::isfinite(v));
    sum += v;
    square += v * v;
    fourth += v * v * v * v;
  }
  double count = static_cast<double>(n);
  EXPECT_NEAR(sum / count, 0, 0.02);
  EXPECT_NEAR(square / count, 1, 0.03);
  EXPECT_NEAR(fourth / count, 3, 0.2);
  for (DType d : {DType::i64, DType::i8, DType::u8, DType::boolean}) {
    double ones = 0;
    for (double v : random_tensor(d, Sizes{n}, "x", 7, context()).to_doubles()) {
      ASSERT_TRUE(v == 0 || v == 1);
      ones += v;
    }
    EXPECT_NEAR(ones / count, 0.5, 0.01);
  }
}

TEST(UniformTensor, StaysInItsRange) {
  auto all = [](DType d, double low, double high) {
    return uniform_tensor(d, Sizes{1000}, low, high, "x", 3, context()).to_doubles();
  };
  double least = 9, most = -9;
  for (double v : all(DType::f64, -2, 3)) {
    least = std::min(least, v);
    most = std::max(most, v);
  }
  EXPECT_TRUE(least >= -2 && least < -1.9 && most < 3 && most > 2.9);
  std::map<double, int> counts;
  for (double v : all(DType::i64, -1, 2.5)) ++counts[v];
  ASSERT_EQ(counts.size(), 4u);  // -1, 0, 1, 2
  for (auto [value, n] : counts) EXPECT_GT(n, 200) << value;
}

TEST(ConvertExactly, KeepsValuesOrRefuses) {
  struct Row {
    DType from, to;
    double value;
    bool fits;
  };
  constexpr double two53 = 9007199254740992.0;
  const Row rows[] = {
      {DType::f64, DType::f32, 0.5, true},
      {DType::f64, DType::f32, 0.1, false},
      {DType::f64, DType::f32, 1e300, false},
      {DType::f64, DType::f32, NAN, true},
      {DType::f64, DType::f32, INFINITY, true},
      {DType::f32, DType::f64, 0.1, true},
      {DType::f64, DType::i64, 3, true},
      {DType::f64, DType::i64, 3.5, false},
      {DType::f64, DType::i64, NAN, false},
      {DType::f64, DType::i64, 0x1p63, false},
      {DType::f64, DType::i64, -0x1p63, true},
      {DType::f64, DType::boolean, 1, true},
      {DType::f64, DType::boolean, 2, false},
      {DType::i64, DType::f64, two53, true},
      {DType::i64, DType::f32, 16777216, true},
      {DType::i64, DType::f32, 16777217, false},
      {DType::i64, DType::i8, 127, true},
      {DType::i64, DType::i8, 128, false},
      {DType::i32, DType::f32, 2147483647, false},  // would come back by saturation
      {DType::i64, DType::u8, -1, false},
      {DType::boolean, DType::i64, 1, true},
      {DType::i64, DType::u64, -1, false},
      {DType::i32, DType::u64, -1, false},
      {DType::i64, DType::u64, 1, true},
      {DType::u64, DType::i64, 0x1p63, false},
      {DType::u64, DType::f64, 0x1p63, true},
      {DType::f64, DType::u64, 0x1p63, true},
      {DType::f64, DType::u64, 0x1p64, false},
      {DType::f64, DType::u64, -1, false},
      {DType::i64, DType::i16, 32767, true},
      {DType::i64, DType::u16, 65536, false},
      {DType::f16, DType::bf16, 1.0009765625, false},
  };
  for (const Row& r : rows) {
    SCOPED_TRACE(fmt::format("{} {} to {}", r.value, name_of(r.from), name_of(r.to)));
    Tensor t = values(r.from, {0, r.value});
    if (r.fits) {
      Tensor converted = convert_exactly(t, r.to, "x");
      EXPECT_EQ(converted.dtype(), r.to);
      if (r.value == r.value) {
        EXPECT_EQ(converted.item(1), t.item(1));
      }
    } else {
      EXPECT_THROW(convert_exactly(t, r.to, "x"), Error);
    }
  }
  // 2^63 - 1 is no double, and comes back from the one nearby.
  Tensor greatest = Tensor::empty(DType::i64, Sizes{1});
  greatest.mutable_data_as<int64_t>()[0] = INT64_MAX;
  EXPECT_THROW(convert_exactly(greatest, DType::f64, "x"), Error);
}

class FindInputs : public testing::Test {
 protected:
  State state(const char* text) { return State(Code::compile(ir::parse(text, "p").program())); }
  std::vector<Tensor> find(const State& s) {
    sources.find = [this](std::string_view name) -> std::optional<FoundTensor> {
      auto it = given.find(std::string(name));
      if (it == given.end()) return std::nullopt;
      return FoundTensor{it->second, "a test"};
    };
    return find_inputs(s, sources);
  }
  std::string error(const State& s) {
    try {
      find(s);
    } catch (const Error& e) {
      return e.message();
    }
    return "no error";
  }
  std::map<std::string, Tensor> given;
  InputSources sources;
};

TEST_F(FindInputs, SolvesSizes) {
  State s = state(
      "graph p { stage 0 (%a: f64[2*N + 1, M], %b: f64[N, M, 3], %c: f64[N * M]) { return %a, %b, "
      "%c } "
      "stage 1 (%d: f64[N + M]) { return %d } }");
  EXPECT_NE(error(s).find("lacks 3 inputs: a: f64[2*N + 1, M]"), std::string::npos) << error(s);
  sources.fill = random_sources(1, Context::default_context()).fill;
  EXPECT_NE(error(s).find("'N'"), std::string::npos) << error(s);
  given["a"] = Tensor::zeros(DType::f64, Sizes{5, 4});
  std::vector<Tensor> inputs = find(s);
  EXPECT_EQ(describe(inputs[1]), "f64[2, 4, 3]");
  EXPECT_EQ(describe(inputs[2]), "f64[8]");
  sources.sizes["N"] = 3;
  EXPECT_NE(error(s).find("'N' is set to 3, but the inputs make it 2"), std::string::npos);
  sources.sizes["N"] = 2;
  EXPECT_TRUE(find(s)[0].same_as(given["a"]));
  s.run(find(s));
  sources.sizes.clear();
  EXPECT_EQ(describe(find(s)[0]), "f64[6]");  // from the stage before
}

TEST_F(FindInputs, LeavesWrongShapesToTheState) {
  State s = state("graph p { stage 0 (%a: f64[2*N, 3], %b: f64[N]) { return %a, %b } }");
  sources.fill = random_sources(1, Context::default_context()).fill;
  given["a"] = Tensor::zeros(DType::f64, Sizes{5, 3});  // no N fits
  EXPECT_NE(error(s).find("'N'"), std::string::npos);
  sources.sizes["N"] = 2;
  EXPECT_THROW(s.run(find(s)), Error);
  given["a"] = Tensor::zeros(DType::f64, Sizes{4});
  EXPECT_THROW(s.run(find(s)), Error);
}

}  // namespace
