// Derivatives of pointwise operators to the third order: against differences where the functions
// are smooth, by value at their kinks and singular points.
// SPEC D3, D4
#include "tests/ops/pointwise_support.h"

namespace gradus::ops::test {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
const double nan = std::numeric_limits<double>::quiet_NaN();

struct Domain {
  double low, high;
};
struct Smooth {
  const char* op;
  std::vector<Domain> domains;
  LiteralList attributes = {};
};

std::ostream& operator<<(std::ostream& out, const Smooth& s) { return out << s.op; }

class SmoothTest : public ::testing::TestWithParam<Smooth> {};

std::vector<EagerOperand> operands_of(const Smooth& s, std::vector<Sizes> shapes) {
  std::vector<EagerOperand> operands;
  for (size_t i = 0; i < s.domains.size(); ++i)
    operands.push_back(
        uniform(shapes[i % shapes.size()], s.domains[i].low, s.domains[i].high, 3 + i));
  return operands;
}

TEST_P(SmoothTest, OfEveryOrder) {
  expect_smooth_derivatives(GetParam().op, operands_of(GetParam(), {{2, 3}}),
                            GetParam().attributes);
}

TEST_P(SmoothTest, OfOneElementAndOfNone) {
  const Smooth& s = GetParam();
  expect_smooth_derivatives(s.op, operands_of(s, {{}}), s.attributes);
  expect_smooth_derivatives(s.op, operands_of(s, {{1}}), s.attributes);
  expect_smooth_derivatives(s.op, operands_of(s, {{2, 0}}), s.attributes);
}

TEST_P(SmoothTest, OfBroadcastOperands) {
  const Smooth& s = GetParam();
  if (s.domains.size() < 2) return;
  expect_smooth_derivatives(s.op, operands_of(s, {{2, 1, 3}, {4, 1}}), s.attributes);
  expect_smooth_derivatives(s.op, operands_of(s, {{}, {3}}), s.attributes);
}

TEST_P(SmoothTest, OfANumberAmongTheOperands) {
  const Smooth& s = GetParam();
  for (size_t i = 0; i < s.domains.size() && s.domains.size() > 1; ++i) {
    auto operands = operands_of(s, {{2, 3}});
    operands[i] = number(0.3 * s.domains[i].low + 0.7 * s.domains[i].high);
    expect_smooth_derivatives(s.op, operands, s.attributes);
  }
}

const Domain any{-2, 2}, positive{0.3, 2.5}, inside{-0.9, 0.9}, negative{-2.5, -0.3};

std::vector<Smooth> smooth() {
  std::vector<Smooth> list;
  for (const char* op :
       {"neg",     "square",     "exp",  "exp2",  "expm1", "sin",      "cos",        "atan",
        "sinh",    "cosh",       "tanh", "asinh", "erf",   "erfc",     "normal_cdf", "normal_pdf",
        "sigmoid", "logsigmoid", "silu", "mish",  "gelu",  "softplus", "tanhshrink"})
    list.push_back({op, {any}});
  for (const char* op :
       {"abs", "reciprocal", "sqrt", "rsqrt", "log", "log2", "log10", "log1p", "lgamma", "digamma",
        "relu", "leaky_relu", "elu", "celu", "selu", "softsign"})
    list.push_back({op, {positive}});
  for (const char* op :
       {"abs", "reciprocal", "relu", "leaky_relu", "elu", "celu", "selu", "softsign"})
    list.push_back({op, {negative}});
  for (const char* op : {"asin", "acos", "atanh", "tan", "erfinv"}) list.push_back({op, {inside}});
  list.push_back({"acosh", {{1.2, 3}}});
  list.push_back({"lgamma", {{-0.7, -0.3}}});
  list.push_back({"polygamma", {positive}, {{"n", 2, {}}}});
  list.push_back({"gelu", {any}, {{"approximate", "tanh", {}}}});
  list.push_back({"elu", {negative}, {{"alpha", 0.7, {}}}});
  list.push_back({"celu", {negative}, {{"alpha", 0.7, {}}}});
  list.push_back({"leaky_relu", {negative}, {{"slope", 0.3, {}}}});
  list.push_back({"softplus", {any}, {{"beta", 1.7, {}}, {"threshold", 50.0, {}}}});
  list.push_back({"softplus", {positive}, {{"beta", 9.0, {}}, {"threshold", 2.0, {}}}});
  list.push_back({"clamp", {inside}, {{"min", -1, {}}, {"max", 1.0, {}}}});
  list.push_back({"hardtanh", {inside}});
  list.push_back({"relu6", {positive}});
  list.push_back({"hardshrink", {{0.6, 2}}});
  list.push_back({"softshrink", {{0.6, 2}}});
  list.push_back({"threshold", {positive}, {{"threshold", 0.1, {}}, {"value", 9, {}}}});
  list.push_back({"nan_to_num", {any}});
  list.push_back({"frac", {{1.2, 1.8}}});
  list.push_back({"add", {any, any}, {{"alpha", -1.5, {}}}});
  list.push_back({"sub", {any, any}, {{"alpha", 2, {}}}});
  for (const char* op : {"add", "sub", "mul", "logaddexp"}) list.push_back({op, {any, any}});
  for (const char* op : {"div", "hypot", "atan2", "xlogy"}) list.push_back({op, {any, positive}});
  list.push_back({"pow", {positive, any}});
  for (const char* op : {"maximum", "minimum", "fmax", "fmin"})
    list.push_back({op, {inside, {1, 2}}});
  for (const char* op : {"fmod", "remainder"}) list.push_back({op, {{3.2, 3.5}, {1.3, 1.55}}});
  list.push_back({"lerp", {any, any, any}});
  list.push_back({"addcmul", {any, any, any}, {{"value", 0.7, {}}}});
  list.push_back({"addcdiv", {any, any, positive}, {{"value", 0.7, {}}}});
  list.push_back({"addcdiv", {any, any, positive}});
  return list;
}

INSTANTIATE_TEST_SUITE_P(Pointwise, SmoothTest, ::testing::ValuesIn(smooth()));

TEST(PointwiseDerivative, OfAChannelsWeights) {
  Tensor x = uniform(Sizes{2, 3, 2}, -2, -0.5, 1), w = uniform(Sizes{3}, -1, 1, 2);
  expect_smooth_derivatives("prelu", {x, w});
  expect_smooth_derivatives("prelu", {uniform(Sizes{4}, -2, -1, 1), uniform(Sizes{1}, -1, 1, 2)});
}

TEST(PointwiseDerivative, OfASelection) {
  Tensor mask = vector_of({1, 0, 1}, DType::boolean);
  expect_smooth_derivatives("where",
                            {mask, uniform(Sizes{2, 3}, -1, 1, 1), uniform(Sizes{3}, -1, 1, 2)});
  expect_smooth_derivatives("masked_fill", {uniform(Sizes{2, 3}, -1, 1, 1), mask},
                            {{"value", 3, {}}});
}

// Infinities and NaNs of the side that was not chosen do not leak.
TEST(PointwiseDerivative, SelectionsKeepInfinitiesOut) {
  Tensor mask = vector_of({1, 0}, DType::boolean), x = vector_of({inf, 2}), y = vector_of({1, nan});
  expect_same(slopes("where", {mask, x, y}, {}, 1, 1)[1], {1, 0});
  expect_same(slopes("where", {mask, x, y}, {}, 1, 2)[1], {0, 1});
  expect_same(slopes("masked_fill", {vector_of({inf, 2}), mask}, {{"value", -inf, {}}})[1], {0, 1});
  // Beyond the exponential's range, to the third order.
  for (const char* op : {"elu", "celu", "selu", "softplus"}) {
    auto s = slopes(op, {vector_of({800})}, {}, 3);
    EXPECT_EQ(s[1][0], std::string_view(op) == "selu" ? 1.0507009873554805 : 1) << op;
    EXPECT_EQ(s[2][0], 0) << op;
    EXPECT_EQ(s[3][0], 0) << op;
  }
}

TEST(PointwiseDerivative, AtKinks) {
  Tensor x = vector_of({-1, -0.0, 0, 1});
  expect_same(slopes("abs", {x})[1], {-1, 0, 0, 1});
  expect_same(slopes("relu", {x})[1], {0, 0, 0, 1});
  expect_same(slopes("leaky_relu", {x}, {{"slope", 0.25, {}}})[1], {0.25, 0.25, 0.25, 1});
  LiteralList bounds{{"min", -1, {}}, {"max", 1, {}}};
  Tensor around = vector_of({-1.5, -1, 0, 1, 1.5, nan});
  expect_same(slopes("clamp", {around}, bounds)[1], {0, 1, 1, 1, 0, 0});
  expect_same(slopes("hardtanh", {around})[1], {0, 0, 1, 0, 0, 1});
  expect_same(slopes("relu6", {vector_of({-1, 0, 3, 6, 7})})[1], {0, 0, 1, 0, 0});
  Tensor halves = vector_of({-1, -0.5, 0, 0.5, 1});
  expect_same(slopes("hardshrink", {halves})[1], {1, 0, 0, 0, 1});
  expect_same(slopes("softshrink", {halves})[1], {1, 0, 0, 0, 1});
  expect_same(slopes("threshold", {halves}, {{"threshold", 0.5, {}}, {"value", 9, {}}})[1],
              {0, 0, 0, 0, 1});
  expect_same(slopes("nan_to_num", {vector_of({nan, inf, -inf, 2})})[1], {0, 0, 0, 1});
  // The second derivative at the kink belongs to neither side.
  expect_same(slopes("elu", {x}, {{"alpha", 0.5, {}}}, 2)[1], {0.5 * std::exp(-1), 0.5, 0.5, 1});
  EXPECT_EQ(slopes("elu", {x}, {}, 2)[2][2], 0);
  EXPECT_EQ(slopes("softplus", {vector_of({20, 21})}, {}, 2)[2][0], 0);
}

TEST(PointwiseDerivative, AtTies) {
  Tensor x = vector_of({1, 2, 3, nan}), y = vector_of({2, 2, 2, 2});
  expect_same(slopes("maximum", {x, y})[1], {0, 0.5, 1, 1});
  expect_same(slopes("maximum", {x, y}, {}, 1, 1)[1], {1, 0.5, 0, 1});
  expect_same(slopes("minimum", {x, y})[1], {1, 0.5, 0, 1});
  expect_same(slopes("minimum", {x, y}, {}, 1, 1)[1], {0, 0.5, 1, 1});
  expect_same(slopes("maximum", {x, number(2)})[1], {0, 0.5, 1, 1});
  expect_same(slopes("fmax", {x, y})[1], {0, 1, 1, 0});
  expect_same(slopes("fmax", {y, x})[1], {1, 1, 0, 1});
  expect_same(slopes("fmin", {x, y})[1], {1, 1, 0, 0});
  expect_same(slopes("fmin", {x, y}, {}, 1, 1)[1], {0, 0, 1, 1});
}

TEST(PointwiseDerivative, OfPowersAtZero) {
  Tensor zeros = vector_of({0, 0, 0, 0, 0}), exponents = vector_of({0, 1, 2, 3, 0.5});
  auto base = slopes("pow", {zeros, exponents}, {}, 1);
  expect_same(base[0], {1, 0, 0, 0, 0});
  expect_same(base[1], {0, 1, 0, 0, inf});
  expect_same(slopes("pow", {zeros, exponents}, {}, 1, 1)[1], {0, 0, 0, 0, 0});
  // Numbers as exponents: nothing singular is made on the way down.
  expect_same(slopes("pow", {vector_of({0, 2}), number(2)}, {}, 2)[2], {2, 2});
  expect_same(slopes("pow", {vector_of({0, 2}), integer(3)}, {}, 3)[3], {6, 6});
  expect_same(slopes("pow", {vector_of({0, 2}), integer(1)}, {}, 1)[1], {1, 1});
  expect_same(slopes("pow", {vector_of({0, nan}), integer(0)}, {}, 1)[1], {0, 0});
  // 0^y has the slope 0 where it is continuous.
  expect_same(slopes("pow", {number(0), vector_of({0, 1, 2})}, {}, 1, 0)[1], {0, 0, 0});
}

// d/dy of d/dx x^y = x^(y-1) + y log(x) x^(y-1) is 1 / x where y is 0: a rule that selects by the
// exponent alone would say 0.
TEST(PointwiseDerivative, OfPowersMixed) {
  Tensor x = vector_of({2.0, 0.5}), y = vector_of({0, 0});
  Program program("pow", {x, y}, {}, 2);
  Tensor one = vector_of({1, 1}), none = vector_of({0, 0});
  auto by_base = program.run({{x, y}, {one}, {one, none}})[2];
  auto by_exponent = program.run({{x, y}, {one}, {none, one}})[2];
  expect_same(by_base[1].to_doubles(), {0.5, 2});
  expect_same(by_exponent[0].to_doubles(), {0.5, 2});
}

TEST(PointwiseDerivative, StaysAccurateInTheTails) {
  // expm1' = e^x, not (e^x - 1) + 1.
  EXPECT_DOUBLE_EQ(slopes("expm1", {vector_of({-30})})[1][0], std::exp(-30));
  EXPECT_DOUBLE_EQ(slopes("asin", {vector_of({1 - 1e-12})})[1][0],
                   1 / std::sqrt((1 - (1 - 1e-12)) * (1 + (1 - 1e-12))));
  EXPECT_DOUBLE_EQ(slopes("asinh", {vector_of({1e200})})[1][0], 1e-200);
  EXPECT_DOUBLE_EQ(slopes("atan2", {vector_of({1e-200}), vector_of({1e-200})})[1][0], 0.5e200);
  EXPECT_NEAR(slopes("logsigmoid", {vector_of({40})})[1][0] / std::exp(-40), 1, 1e-15);
}

TEST(PointwiseDerivative, OfRoundingIsZeroByStructure) {
  for (const char* op : {"floor", "ceil", "round", "trunc", "sign"}) {
    Program program(op, {vector_of({1.5})}, {}, 1);
    EXPECT_EQ(program.graph().stages[1].results[0].value, ir::no_value) << op;
  }
  EXPECT_EQ(slopes("remainder", {vector_of({-7}), vector_of({3})}, {}, 1, 1)[1][0], 3);
  EXPECT_EQ(slopes("fmod", {vector_of({-7}), vector_of({3})}, {}, 1, 1)[1][0], 2);
}

}  // namespace
}  // namespace gradus::ops::test
