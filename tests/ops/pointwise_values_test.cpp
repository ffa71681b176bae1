// Values, dtypes, layouts and errors of pointwise operators.
#include <cmath>

#include "tests/ops/pointwise_support.h"

namespace gradus::ops::test {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
const double nan = std::numeric_limits<double>::quiet_NaN();

struct Unary {
  const char* op;
  double (*value)(double);
  double low, high;
  LiteralList attributes = {};
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return std::log1p(std::exp(x)); }
double sign(double x) { return (x > 0) - (x < 0); }

std::vector<Unary> unaries() {
  return {
      {"neg", [](double x) { return -x; }, -3, 3},
      {"abs", [](double x) { return std::abs(x); }, -3, 3},
      {"sign", sign, -3, 3},
      {"reciprocal", [](double x) { return 1 / x; }, 0.1, 3},
      {"square", [](double x) { return x * x; }, -3, 3},
      {"sqrt", [](double x) { return std::sqrt(x); }, 0, 9},
      {"rsqrt", [](double x) { return 1 / std::sqrt(x); }, 0.1, 9},
      {"floor", [](double x) { return std::floor(x); }, -3, 3},
      {"ceil", [](double x) { return std::ceil(x); }, -3, 3},
      {"round", [](double x) { return std::nearbyint(x); }, -3, 3},
      {"trunc", [](double x) { return std::trunc(x); }, -3, 3},
      {"frac", [](double x) { return x - std::trunc(x); }, -3, 3},
      {"exp", [](double x) { return std::exp(x); }, -5, 5},
      {"exp2", [](double x) { return std::exp2(x); }, -5, 5},
      {"expm1", [](double x) { return std::expm1(x); }, -2, 2},
      {"log", [](double x) { return std::log(x); }, 0.1, 9},
      {"log2", [](double x) { return std::log2(x); }, 0.1, 9},
      {"log10", [](double x) { return std::log10(x); }, 0.1, 9},
      {"log1p", [](double x) { return std::log1p(x); }, -0.9, 9},
      {"sin", [](double x) { return std::sin(x); }, -9, 9},
      {"cos", [](double x) { return std::cos(x); }, -9, 9},
      {"tan", [](double x) { return std::tan(x); }, -1.5, 1.5},
      {"asin", [](double x) { return std::asin(x); }, -1, 1},
      {"acos", [](double x) { return std::acos(x); }, -1, 1},
      {"atan", [](double x) { return std::atan(x); }, -9, 9},
      {"sinh", [](double x) { return std::sinh(x); }, -4, 4},
      {"cosh", [](double x) { return std::cosh(x); }, -4, 4},
      {"tanh", [](double x) { return std::tanh(x); }, -4, 4},
      {"asinh", [](double x) { return std::asinh(x); }, -9, 9},
      {"acosh", [](double x) { return std::acosh(x); }, 1, 9},
      {"atanh", [](double x) { return std::atanh(x); }, -0.99, 0.99},
      {"erf", [](double x) { return std::erf(x); }, -3, 3},
      {"erfc", [](double x) { return std::erfc(x); }, -3, 3},
      {"lgamma", [](double x) { return std::lgamma(x); }, 0.1, 9},
      {"normal_cdf", [](double x) { return std::erfc(-x / std::sqrt(2)) / 2; }, -3, 3},
      {"normal_pdf", [](double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); }, -3, 3},
      {"sigmoid", sigmoid, -9, 9},
      {"logsigmoid", [](double x) { return std::log(sigmoid(x)); }, -9, 9},
      {"relu", [](double x) { return std::max(x, 0.0); }, -3, 3},
      {"leaky_relu", [](double x) { return x > 0 ? x : 0.01 * x; }, -3, 3},
      {"elu",
       [](double x) { return x > 0 ? x : 0.7 * std::expm1(x); },
       -3,
       3,
       {{"alpha", 0.7, {}}}},
      {"celu",
       [](double x) { return x > 0 ? x : 0.7 * std::expm1(x / 0.7); },
       -3,
       3,
       {{"alpha", 0.7, {}}}},
      {"selu",
       [](double x) {
         return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * std::expm1(x));
       },
       -3, 3},
      {"gelu", [](double x) { return x * std::erfc(-x / std::sqrt(2)) / 2; }, -3, 3},
      {"gelu",
       [](double x) {
         return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
       },
       -3,
       3,
       {{"approximate", "tanh", {}}}},
      {"silu", [](double x) { return x * sigmoid(x); }, -9, 9},
      {"softplus", softplus, -9, 9},
      {"softplus",
       [](double x) { return 2 * x > 3 ? x : softplus(2 * x) / 2; },
       -5,
       5,
       {{"beta", 2, {}}, {"threshold", 3, {}}}},
      {"mish", [](double x) { return x * std::tanh(softplus(x)); }, -9, 9},
      {"softsign", [](double x) { return x / (1 + std::abs(x)); }, -9, 9},
      {"tanhshrink", [](double x) { return x - std::tanh(x); }, -3, 3},
      {"relu6", [](double x) { return std::min(std::max(x, 0.0), 6.0); }, -3, 9},
      {"hardtanh", [](double x) { return std::min(std::max(x, -1.0), 1.0); }, -3, 3},
      {"hardshrink", [](double x) { return std::abs(x) <= 0.5 ? 0.0 : x; }, -1, 1},
      {"softshrink", [](double x) { return sign(x) * std::max(std::abs(x) - 0.5, 0.0); }, -1, 1},
      {"threshold",
       [](double x) { return x <= 0.5 ? 9 : x; },
       -1,
       1,
       {{"threshold", 0.5, {}}, {"value", 9, {}}}},
      {"clamp",
       [](double x) { return std::min(std::max(x, -0.5), 1.5); },
       -3,
       3,
       {{"min", -0.5, {}}, {"max", 1.5, {}}}},
      {"clamp", [](double x) { return std::min(x, 1.5); }, -3, 3, {{"max", 1.5, {}}}},
  };
}

TEST(PointwiseValue, OfOneOperand) {
  for (const Unary& u : unaries()) {
    SCOPED_TRACE(u.op);
    Tensor x = uniform(Sizes{257}, u.low, u.high, 1);
    auto in = x.to(DType::f32).to_doubles();  // the same numbers for both
    Tensor exact = Tensor::from(DType::f64, x.shape(), in);
    auto f64 = run_one(u.op, {exact}, u.attributes).to_doubles();
    auto f32 = run_one(u.op, {exact.to(DType::f32)}, u.attributes).to_doubles();
    for (size_t i = 0; i < in.size(); ++i) {
      double want = u.value(in[i]);
      EXPECT_NEAR(f64[i], want, 4e-15 * std::max(1.0, std::abs(want))) << in[i];
      EXPECT_NEAR(f32[i], want, 2e-6 * std::max(1.0, std::abs(want))) << in[i];
    }
    // 16-bit floats are the f32 result, rounded once.
    for (DType half : {DType::f16, DType::bf16}) {
      Tensor narrow = x.to(half);
      Tensor want = run_one(u.op, {narrow.to(DType::f32)}, u.attributes).to(half);
      EXPECT_TRUE(bitwise_equal(run_one(u.op, {narrow}, u.attributes), want)) << name_of(half);
    }
    // Any layout, and more elements than one worker takes.
    Tensor grid = uniform(Sizes{5, 7}, u.low, u.high, 2);
    EXPECT_TRUE(bitwise_equal(run_one(u.op, {scattered(grid)}, u.attributes),
                              run_one(u.op, {grid}, u.attributes)));
    Tensor many = uniform(Sizes{70001}, u.low, u.high, 3);
    Tensor all = run_one(u.op, {many}, u.attributes);
    for (int64_t first : {0, 32767, 69990}) {
      Layout part(DType::f64, Sizes{11});
      EXPECT_TRUE(bitwise_equal(all.view(part, first).copy(),
                                run_one(u.op, {many.view(part, first)}, u.attributes)));
    }
    EXPECT_EQ(run_one(u.op, {Tensor::zeros(DType::f32, Sizes{2, 0})}, u.attributes).numel(), 0);
  }
}

TEST(PointwiseValue, OfTwoOperands) {
  struct Binary {
    const char* op;
    double (*value)(double, double);
  };
  const Binary binaries[] = {
      {"add", [](double x, double y) { return x + y; }},
      {"sub", [](double x, double y) { return x - y; }},
      {"mul", [](double x, double y) { return x * y; }},
      {"div", [](double x, double y) { return x / y; }},
      {"pow", [](double x, double y) { return std::pow(x, y); }},
      {"fmod", [](double x, double y) { return std::fmod(x, y); }},
      {"remainder", [](double x, double y) { return x - y * std::floor(x / y); }},
      {"floor_divide", [](double x, double y) { return std::floor(x / y); }},
      {"maximum", [](double x, double y) { return std::max(x, y); }},
      {"minimum", [](double x, double y) { return std::min(x, y); }},
      {"fmax", [](double x, double y) { return std::fmax(x, y); }},
      {"fmin", [](double x, double y) { return std::fmin(x, y); }},
      {"atan2", [](double x, double y) { return std::atan2(x, y); }},
      {"hypot", [](double x, double y) { return std::hypot(x, y); }},
      {"logaddexp", [](double x, double y) { return std::log(std::exp(x) + std::exp(y)); }},
      {"xlogy", [](double x, double y) { return x * std::log(y); }},
  };
  Tensor x = uniform(Sizes{3, 1, 5}, 0.3, 4, 1), y = uniform(Sizes{4, 1}, 0.4, 3, 2);
  auto xs = x.to_doubles(), ys = y.to_doubles();
  for (const Binary& b : binaries) {
    SCOPED_TRACE(b.op);
    Tensor z = run_one(b.op, {x, y});
    ASSERT_EQ(describe(z), "f64[3, 4, 5]");
    auto got = z.to_doubles();
    for (size_t i = 0; i < 3; ++i)
      for (size_t j = 0; j < 4; ++j)
        for (size_t k = 0; k < 5; ++k) {
          double want = b.value(xs[i * 5 + k], ys[j]);
          EXPECT_NEAR(got[(i * 4 + j) * 5 + k], want, 2e-14 * std::max(1.0, std::abs(want)));
        }
    EXPECT_TRUE(bitwise_equal(run_one(b.op, {scattered(x), scattered(y)}), z));
    // A number is the same as a 0-d tensor of that value.
    Tensor two = Tensor::scalar(DType::f64, 2);
    EXPECT_TRUE(bitwise_equal(run_one(b.op, {x, number(2)}), run_one(b.op, {x, two})));
    EXPECT_TRUE(bitwise_equal(run_one(b.op, {number(2), x}), run_one(b.op, {two, x})));
  }
}

// Rows too short for a loop of their own share one, over more than a tile and more than a chunk.
TEST(PointwiseValue, OfShortRows) {
  for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::i8}) {
    Tensor x = random_tensor({37, 301, 5}, 1, dtype), row = random_tensor({5}, 2, dtype);
    Tensor column = random_tensor({301, 1}, 3, dtype);
    for (const Tensor& y : {row, column}) {
      Tensor spread = Tensor::empty(dtype, x.shape());
      Layout broadcast(dtype, Sizes{37, 301, 5}, y.rank() == 1 ? Sizes{0, 0, 1} : Sizes{0, 1, 0});
      copy_elements(broadcast, y.data(), spread.layout(), spread.mutable_data());
      Tensor want = run_one("sub", {x, spread});
      EXPECT_TRUE(bitwise_equal(run_one("sub", {x, y}), want)) << name_of(dtype);
      EXPECT_TRUE(bitwise_equal(run_one("sub", {scattered(x), scattered(y)}), want));
      EXPECT_TRUE(bitwise_equal(run_one("gt", {x, y}), run_one("gt", {x, spread})));
    }
  }
}

TEST(PointwiseValue, OfThreeOperands) {
  Tensor a = vector_of({1, 2, 3}), b = vector_of({4, 5, 6}), c = vector_of({0, 0.25, 1});
  expect_same(run_one("lerp", {a, b, c}).to_doubles(), {1, 2.75, 6});
  expect_same(run_one("addcmul", {a, b, c}, {{"value", 2, {}}}).to_doubles(), {1, 4.5, 15});
  expect_same(run_one("addcdiv", {a, c, b}, {{"value", 2, {}}}).to_doubles(),
              {1, 2.1, 3 + 2.0 / 6});
}

TEST(PointwiseValue, AtTheEdges) {
  Tensor x = vector_of({nan, inf, -inf, -0.0, 0});
  expect_same(run_one("sign", {x}).to_doubles(), {0, 1, -1, 0, 0});
  expect_same(run_one("relu", {x}).to_doubles(), {nan, inf, 0, 0, 0});
  expect_same(run_one("clamp", {x}, {{"min", -1, {}}, {"max", 1, {}}}).to_doubles(),
              {nan, 1, -1, 0, 0});
  expect_same(run_one("clamp", {vector_of({0, 9})}, {{"min", 5, {}}, {"max", 1, {}}}).to_doubles(),
              {1, 1});
  expect_same(run_one("round", {vector_of({0.5, 1.5, 2.5, -0.5, -1.5})}).to_doubles(),
              {0, 2, 2, -0.0, -2}, true);
  expect_same(run_one("maximum", {x, number(1)}).to_doubles(), {nan, inf, 1, 1, 1});
  expect_same(run_one("fmax", {x, number(1)}).to_doubles(), {1, inf, 1, 1, 1});
  expect_same(run_one("fmin", {number(1), x}).to_doubles(), {1, 1, -inf, 0, 0});
  expect_same(run_one("nan_to_num", {x}).to_doubles(),
              {0, std::numeric_limits<double>::max(), -std::numeric_limits<double>::max(), 0, 0});
  expect_same(run_one("nan_to_num", {x.to(DType::f16)}).to_doubles(), {0, 65504, -65504, 0, 0});
  expect_same(run_one("nan_to_num", {x}, {{"nan", 7, {}}, {"posinf", 8, {}}, {"neginf", 9, {}}})
                  .to_doubles(),
              {7, 8, 9, 0, 0});
  expect_same(run_one("isnan", {x}).to_doubles(), {1, 0, 0, 0, 0});
  expect_same(run_one("isinf", {x}).to_doubles(), {0, 1, 1, 0, 0});
  expect_same(run_one("isfinite", {x}).to_doubles(), {0, 0, 0, 1, 1});
  expect_same(run_one("logical_not", {x}).to_doubles(), {0, 0, 0, 1, 1});
  expect_same(run_one("xlogy", {vector_of({0, 0, 0}), vector_of({0, nan, inf})}).to_doubles(),
              {0, nan, 0});
  expect_same(
      run_one("logaddexp", {vector_of({inf, -inf, 1}), vector_of({inf, -inf, -inf})}).to_doubles(),
      {inf, -inf, 1});
  expect_same(
      run_one("floor_divide", {vector_of({-1, 1, 1, -7, 0}), vector_of({inf, inf, 0, 2, -3})})
          .to_doubles(),
      {-1, 0, inf, -4, -0.0}, true);
  expect_same(run_one("remainder", {vector_of({-7, 7, -7}), vector_of({3, -3, -3})}).to_doubles(),
              {2, -2, -1});
  // Beyond where angles are reduced simply.
  EXPECT_DOUBLE_EQ(run_one("sin", {vector_of({1, 1e22})}).item(1), -0.8522008497671888);
}

TEST(PointwiseValue, OfComparisons) {
  Tensor x = vector_of({1, 2, 3, nan});
  auto check = [&](const char* op, std::vector<double> want) {
    Tensor z = run_one(op, {x, number(2)});
    EXPECT_EQ(z.dtype(), DType::boolean);
    expect_same(z.to_doubles(), want);
    expect_same(run_one(op, {x, vector_of({2, 2, 2, 2})}).to_doubles(), want);
  };
  check("eq", {0, 1, 0, 0});
  check("ne", {1, 0, 1, 1});
  check("lt", {1, 0, 0, 0});
  check("le", {1, 1, 0, 0});
  check("gt", {0, 0, 1, 0});
  check("ge", {0, 1, 1, 0});
  Tensor p = vector_of({0, 0, 1, 1}, DType::boolean), q = vector_of({0, 2, 0, -3});
  expect_same(run_one("logical_and", {p, q}).to_doubles(), {0, 0, 0, 1});
  expect_same(run_one("logical_or", {p, q}).to_doubles(), {0, 1, 1, 1});
  expect_same(run_one("logical_xor", {p, q}).to_doubles(), {0, 1, 1, 0});
}

TEST(PointwiseValue, OfIntegers) {
  auto ints_of = [](std::vector<double> v) { return vector_of(std::move(v), DType::i64); };
  auto check = [](const Tensor& t, DType dtype, std::vector<int64_t> want) {
    EXPECT_EQ(t.dtype(), dtype);
    EXPECT_EQ(t.to_int64s(), want);
  };
  Tensor a = ints_of({7, -7, 7, -7}), b = ints_of({2, 2, -2, -2});
  check(run_one("floor_divide", {a, b}), DType::i64, {3, -4, -4, 3});
  check(run_one("remainder", {a, b}), DType::i64, {1, 1, -1, -1});
  check(run_one("fmod", {a, b}), DType::i64, {1, -1, 1, -1});
  check(run_one("pow", {ints_of({3, -2, 0, 2}), ints_of({3, 5, 0, 62})}), DType::i64,
        {27, -32, 1, int64_t{1} << 62});
  check(run_one("pow", {ints_of({1, -1, -1, 2}), ints_of({-3, -3, -2, -1})}), DType::i64,
        {1, -1, 1, 0});
  check(run_one("pow", {vector_of({3}, DType::u8), integer(6)}), DType::u8, {729 % 256});
  check(run_one("add", {a, b}, {{"alpha", 3, {}}}), DType::i64, {13, -1, 1, -13});
  check(run_one("neg", {vector_of({-128, 5}, DType::i8)}), DType::i8, {-128, -5});
  check(run_one("clamp", {a}, {{"min", -2, {}}, {"max", 3, {}}}), DType::i64, {3, -2, 3, -2});
  for (const char* op : {"floor", "ceil", "round", "trunc"})
    check(run_one(op, {a}), DType::i64, {7, -7, 7, -7});
  int64_t large = (int64_t{1} << 53) + 1;
  check(run_one("add", {ints_of({1}), integer(large)}), DType::i64, {large + 1});
  check(run_one("masked_fill", {ints_of({1}), vector_of({1}, DType::boolean)},
                {{"value", large, {}}}),
        DType::i64, {large});
  expect_same(run_one("div", {a, b}).to_doubles(), {3.5, -3.5, -3.5, 3.5});
  EXPECT_EQ(run_one("div", {a, b}).dtype(), DType::f32);
  EXPECT_EQ(run_one("sqrt", {a}).dtype(), DType::f32);
  EXPECT_EQ(
      run_one("add", {vector_of({1}, DType::boolean), vector_of({1}, DType::boolean)}).dtype(),
      DType::boolean);
}

TEST(PointwiseValue, EveryDtypeTogether) {
  for (int i = 0; i < dtype_count; ++i)
    for (int j = 0; j < dtype_count; ++j) {
      DType a = static_cast<DType>(i), b = static_cast<DType>(j);
      Tensor x = vector_of({1, 0, 1}, a), y = vector_of({1, 1, 0}, b);
      const auto alone = [](DType d) { return is_integral(d) && is_unsigned(d) && d != DType::u8; };
      if (a != b && !is_floating(a) && !is_floating(b) && (alone(a) || alone(b))) {
        EXPECT_THROW(run_one("mul", {x, y}), Error) << name_of(a) << " " << name_of(b);
        continue;
      }
      Tensor z = run_one("mul", {x, y});
      EXPECT_EQ(z.dtype(), promote(a, b));
      expect_same(z.to_doubles(), {1, 0, 0});
      expect_same(run_one("eq", {x, y}).to_doubles(), {1, 0, 0});
    }
}

TEST(PointwiseType, Promotes) {
  Type f32(DType::f32, {Dim(2)}), i64(DType::i64, {Dim(2)}), f64_0d(DType::f64, {});
  Type i64_0d(DType::i64, {}), u8(DType::u8, {Dim(2)}), b(DType::boolean, {Dim(2)});
  EXPECT_EQ(types_of("mul", {f32, f64_0d}), "f32[2]");  // a lower rank of the same category
  EXPECT_EQ(types_of("mul", {i64, f64_0d}), "f64[2]");
  EXPECT_EQ(types_of("mul", {u8, i64_0d}), "u8[2]");
  EXPECT_EQ(types_of("mul", {b, i64_0d}), "i64[2]");
  EXPECT_EQ(types_of("atan2", {i64, i64}), "f32[2]");
  EXPECT_EQ(types_of("lt", {f32, i64}), "bool[2]");
  EXPECT_EQ(types_of("where", {b, f32, i64}), "f32[2]");
  EXPECT_EQ(types_of("mul", {Type(DType::f32, {Dim::symbol("N"), Dim(1)}),
                             Type(DType::f32, {Dim::symbol("M"), Dim(3)})}),
            "f32[N, 3] if N == M");
  Tensor halves = vector_of({1, 2}, DType::f16), whole = vector_of({1, 2}, DType::i64);
  EXPECT_EQ(run_one("mul", {halves, number(2)}).dtype(), DType::f16);
  EXPECT_EQ(run_one("mul", {whole, number(2)}).dtype(), DType::f32);
  EXPECT_EQ(run_one("mul", {whole, integer(2)}).dtype(), DType::i64);
  // A selection between numbers takes the default dtype.
  Tensor mask = vector_of({1, 0}, DType::boolean);
  EXPECT_EQ(run_one("where", {mask, number(1), number(0)}).dtype(), DType::f32);
  EXPECT_EQ(run_one("where", {mask, integer(1), integer(0)}).dtype(), DType::i64);
  EXPECT_EQ(run_one("where", {mask, number(1), vector_of({3, 4})}).dtype(), DType::f64);
}

TEST(PointwiseError, SaysWhatIsWrong) {
  Tensor x = vector_of({1, 2}), flags = vector_of({1, 0}, DType::boolean);
  Tensor whole = vector_of({1, 2}, DType::i64);
  auto message = [](std::string_view op, std::initializer_list<EagerOperand> operands,
                    const LiteralList& attributes = {}) {
    return error_of([&] { evaluate(op, operands, attributes); });
  };
  auto expect_in = [](const std::string& text, std::string_view part) {
    EXPECT_NE(text.find(part), text.npos) << text;
  };
  expect_in(message("add", {x, vector_of({1, 2, 3})}), "do not broadcast");
  expect_in(message("add", {number(1), number(2)}), "at least one must be a tensor");
  expect_in(message("add", {x}), "'y' is missing");
  expect_in(message("neg", {flags}), "bool");
  expect_in(message("sub", {flags, flags}), "bool");
  expect_in(message("add", {whole, whole}, {{"alpha", 0.5, {}}}), "'alpha' is 0.5");
  expect_in(message("where", {x, x, x}), "a condition is bool");
  expect_in(message("masked_fill", {x, x}, {{"value", 1, {}}}), "a condition is bool");
  expect_in(message("masked_fill", {x, flags}), "value");
  expect_in(message("clamp", {x}), "at least one");
  expect_in(message("gelu", {x}, {{"approximate", "erf", {}}}), "\"none\" or \"tanh\"");
  expect_in(message("hardtanh", {x}, {{"min", 2, {}}}), "more than 'max'");
  expect_in(message("softshrink", {x}, {{"lambd", -1, {}}}), "negative");
  expect_in(message("polygamma", {x}, {{"n", 31, {}}}), "between 0 and 30");
  expect_in(message("prelu", {x, vector_of({1, 2})}), "2 weights");
  expect_in(message("mish", {number(1)}), "must be a tensor");
  for (const char* op : {"fmod", "remainder", "floor_divide"}) {
    expect_in(message(op, {whole, vector_of({1, 0}, DType::i64)}), "has a zero");
    expect_in(message(op, {whole, scattered(vector_of({1, 0}, DType::i8))}), "has a zero");
    expect_in(message(op, {whole, integer(0)}), "has a zero");
    EXPECT_EQ(evaluate(op, {Tensor::zeros(DType::i64, Sizes{0}), integer(0)})[0].numel(), 0);
  }
}

TEST(PointwiseAttribute, ReadsBackWhatItWrites) {
  auto text = [](std::string_view op, const LiteralList& given) {
    const Operator* o = find(op);
    std::string s;
    for (const auto& l : o->write(o->read(given))) s += l.name + "=" + to_string(l.value) + " ";
    return s;
  };
  EXPECT_EQ(text("add", {}), "");
  EXPECT_EQ(text("add", {{"alpha", 1, {}}}), "");
  EXPECT_EQ(text("add", {{"alpha", 2.5, {}}}), "alpha=2.5 ");
  EXPECT_EQ(text("clamp", {{"max", 3, {}}}), "max=3 ");
  EXPECT_EQ(text("clamp", {{"min", -1.0, {}}, {"max", Literal(), {}}}), "min=-1.0 ");
  EXPECT_EQ(text("gelu", {{"approximate", "none", {}}}), "");
  EXPECT_EQ(text("gelu", {{"approximate", "tanh", {}}}), "approximate=\"tanh\" ");
  EXPECT_EQ(text("masked_fill", {{"value", -inf, {}}}), "value=-inf ");
}

}  // namespace
}  // namespace gradus::ops::test
