// Element by element: arithmetic, functions, bits and logic, choices, casts. Operands are cast to
// the result's dtype, as ATen computes; so integers divide in the default dtype of the day the
// program was traced on.
#include <cmath>
#include <cstdlib>
#include <numbers>

#include "gradus/registry.h"
#include "io/pt2/call.h"
#include "io/pt2/operands.h"
#include "io/pt2/special.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

// A function of one operand; of two.
void function_rule(Call& c) { c.give(unary(c.ours(), in_result_dtype(c))); }
void function_of_two_rule(Call& c) {
  Value x = in_result_dtype(c), y = in_result_dtype(c, "other");
  c.give(binary(c.ours(), x, y));
}
// What has another dtype than its operands.
void test_rule(Call& c) { c.give(unary(c.ours(), c.x())); }
void logic_rule(Call& c) { c.give(binary(c.ours(), c.x(), c.x("other"))); }

LiteralList with_number(Call& c, std::string_view attribute, std::string_view argument) {
  if (!c.given(argument)) return {};
  return {{std::string(attribute), number_attribute(c, argument)}};
}

void sum_rule(Call& c) {
  Value x = in_result_dtype(c), y = in_result_dtype(c, "other");
  c.give(emit(c.ours(), {x, y}, with_number(c, "alpha", "alpha")));
}

void reversed_difference_rule(Call& c) {
  Value x = in_result_dtype(c), y = in_result_dtype(c, "other");
  c.give(emit("sub", {y, x}, with_number(c, "alpha", "alpha")));
}

// Integers are cut off towards zero.
Value cut_quotient(const Value& x, const Value& y, DType dtype) {
  if (is_floating(dtype)) return unary("trunc", x / y);
  if (is_unsigned(dtype)) return binary("floor_divide", x, y);
  Value rest = binary("fmod", x, y);
  return binary("floor_divide", x - rest, y);
}

void quotient_rule(Call& c) {
  Value x = in_result_dtype(c), y = in_result_dtype(c, "other");
  const std::string rounding = c.text("rounding_mode", "");
  if (rounding.empty()) return c.give(x / y);
  if (rounding == "floor") return c.give(binary("floor_divide", x, y));
  if (rounding != "trunc") c.fail("its rounding mode is {}; floor or trunc is wanted", rounding);
  c.give(cut_quotient(x, y, c.result().dtype));
}

void power_rule(Call& c) {
  Value x = in_result_dtype(c), y = in_result_dtype(c, "exponent");
  c.give(cast(binary("pow", x, y), c.result().dtype));
}

void power_of_two_rule(Call& c) {
  Value power = binary("pow", num(2.0), in_result_dtype(c, "other"));
  c.give(in_result_dtype(c) * power);
}

void product_added_rule(Call& c) {
  Value x = in_result_dtype(c);
  Value a = in_result_dtype(c, "tensor1"), b = in_result_dtype(c, "tensor2");
  c.give(emit(c.ours(), {x, a, b}, with_number(c, "value", "value")));
}

void between_rule(Call& c) {
  Value start = in_result_dtype(c), end = in_result_dtype(c, "end");
  Value weight = in_result_dtype(c, "weight");
  c.give(emit("lerp", {start, end, weight}));
}

// Numbers as bounds have derivative 0 on them, tensors share it. NaN stays.
void clamp_rule(Call& c) {
  const bool low = c.given("min"), high = c.given("max");
  Value x = in_result_dtype(c);
  if (low) {
    Value bound = in_result_dtype(c, "min");
    x = bound.is_number() ? where(le(x, bound), bound, x) : binary("maximum", x, bound);
  }
  if (high) {
    Value bound = in_result_dtype(c, "max");
    x = bound.is_number() ? where(ge(x, bound), bound, x) : binary("minimum", x, bound);
  }
  c.give(x);
}

// The other operand where one is NaN. Equal ones share the derivative.
void extremum_of_numbers_rule(Call& c) {
  Value x = in_result_dtype(c), y = in_result_dtype(c, "other");
  Value extremum = binary(c.ours(), x, y);
  if (!is_floating(c.result().dtype)) return c.give(extremum);
  Value rest = where(unary("isnan", x), y, extremum);
  c.give(where(unary("isnan", y), x, rest));
}

// Bits. Of truths they are logic.

std::string_view logic_of(std::string_view op) {
  if (op == "bitwise_and") return "logical_and";
  if (op == "bitwise_or") return "logical_or";
  if (op == "bitwise_xor") return "logical_xor";
  return "logical_not";
}

void bits_rule(Call& c) {
  Value x = in_result_dtype(c);
  const bool truth = c.result().dtype == DType::boolean;
  std::string_view op = truth ? logic_of(c.ours()) : existing(c, c.ours());
  if (!c.given("other")) return c.give(unary(op, x));
  c.give(binary(op, x, in_result_dtype(c, "other")));
}

// x 2^y, or x / 2^y downwards.
void shift_rule(Call& c) {
  const DType dtype = c.result().dtype;
  if (find(c.ours())) {
    Value x = in_result_dtype(c), by = in_result_dtype(c, "other");
    return c.give(binary(c.ours(), x, by));
  }
  Value by = as(c.x("other"), DType::i64);
  if (by.is_number()) by = number_tensor(c, by, DType::i64);
  Value power = binary("pow", num(int64_t{2}), by);
  Value x = as(c.x(), DType::i64);
  c.give(
      cast(c.ours() == "bitwise_left_shift" ? x * power : binary("floor_divide", x, power), dtype));
}

// Choices

Value choice(Call& c, std::string_view name) {
  Value v = in_result_dtype(c, name);
  return v.is_number() ? number_tensor(c, v, c.result().dtype) : v;
}

void where_rule(Call& c) {
  if (!c.given("self")) c.fail("with a condition alone it gives as many results as data decide");
  Value condition = c.x("condition");
  Value x = in_result_dtype(c), y = in_result_dtype(c, "other");
  if (x.is_number() && y.is_number()) x = choice(c, "self");
  c.give(where(condition, x, y));
}

void masked_fill_rule(Call& c) {
  Value x = c.x(), mask = c.x("mask"), value = in_result_dtype(c, "value");
  if (value.is_number())
    return c.give(emit("masked_fill", {x, mask}, {{"value", number_attribute(c, "value")}}));
  c.give(where(mask, value, x));
}

void nan_to_num_rule(Call& c) {
  LiteralList attributes;
  for (const char* name : {"nan", "posinf", "neginf"})
    if (c.given(name)) attributes.push_back({name, c.number(name)});
  Value x = c.x();
  c.give(is_floating(x.dtype()) ? emit("nan_to_num", {x}, attributes) : x);
}

void infinity_rule(Call& c) {
  c.give(eq(c.x(), num(c.op().starts_with("isposinf") ? INFINITY : -INFINITY)));
}

// Of real numbers: that of those below 0 is pi. NaN stays.
void angle_of_real_rule(Call& c) {
  Value x = detach(in_result_dtype(c));
  Value angle = where(lt(x, num(0.0)), num(std::numbers::pi), zeros_like(x));
  c.give(is_floating(x.dtype()) ? where(unary("isnan", x), x, angle) : angle);
}

// Digits behind the point that stay.
void round_rule(Call& c) {
  Value x = in_result_dtype(c);
  const int64_t digits = c.integer("decimals", 0);
  if (digits == 0 || !is_floating(c.result().dtype)) return c.give(unary("round", x));
  const double scale = std::pow(10.0, std::abs(static_cast<double>(digits)));
  c.give(digits > 0 ? unary("round", x * scale) / scale : unary("round", x / scale) * scale);
}

// Casts. Without a change of dtype `to` gives its operand itself.

void to_rule(Call& c) {
  const DType dtype = c.result().dtype;
  Value x = c.x();
  if (x.dtype() == dtype && !c.flag("copy", false)) return c.give_same("self");
  c.give(cast(x, dtype));
}

void copy_rule(Call& c) { c.give(cast(c.x(), c.result().dtype)); }

constexpr RuleEntry pointwise_table[] = {
    {"add", sum_rule},
    {"sub", sum_rule},
    {"subtract", sum_rule, "sub"},
    {"rsub", reversed_difference_rule},
    {"mul", function_of_two_rule},
    {"multiply", function_of_two_rule, "mul"},
    {"div", quotient_rule},
    {"divide", quotient_rule},
    {"true_divide", quotient_rule},
    {"floor_divide", function_of_two_rule},
    {"remainder", function_of_two_rule},
    {"fmod", function_of_two_rule},
    {"pow", power_rule},
    {"float_power", power_rule},
    {"ldexp", power_of_two_rule},
    {"addcmul", product_added_rule},
    {"addcdiv", product_added_rule},
    {"lerp", between_rule},
    {"clamp", clamp_rule},
    {"clamp_min", clamp_rule},
    {"clamp_max", clamp_rule},
    {"clip", clamp_rule},
    {"maximum", function_of_two_rule},
    {"minimum", function_of_two_rule},
    {"max.other", function_of_two_rule, "maximum"},
    {"min.other", function_of_two_rule, "minimum"},
    {"fmax", extremum_of_numbers_rule, "maximum"},
    {"fmin", extremum_of_numbers_rule, "minimum"},
    {"atan2", atan2_rule},
    {"arctan2", atan2_rule},
    {"hypot", function_of_two_rule},
    {"logaddexp", function_of_two_rule},
    {"logaddexp2", logaddexp2_rule},
    {"xlogy", function_of_two_rule},
    {"special_xlogy", function_of_two_rule, "xlogy"},
    {"special_xlog1py", xlog1py_rule},
    {"copysign", copysign_rule},
    {"signbit", signbit_rule},
    {"heaviside", heaviside_rule},

    {"neg", function_rule},
    {"negative", function_rule, "neg"},
    {"abs", function_rule},
    {"absolute", function_rule, "abs"},
    {"sign", function_rule},
    {"sgn", function_rule, "sign"},
    {"square", function_rule},
    {"floor", function_rule},
    {"ceil", function_rule},
    {"trunc", function_rule},
    {"fix", function_rule, "trunc"},
    {"frac", function_rule},
    {"round", round_rule},
    {"reciprocal", function_rule},
    {"sqrt", function_rule},
    {"rsqrt", function_rule},
    {"exp", function_rule},
    {"exp2", function_rule},
    {"expm1", function_rule},
    {"special_exp2", function_rule, "exp2"},
    {"special_expm1", function_rule, "expm1"},
    {"log", function_rule},
    {"log2", function_rule},
    {"log10", function_rule},
    {"log1p", function_rule},
    {"special_log1p", function_rule, "log1p"},
    {"sin", function_rule},
    {"cos", function_rule},
    {"tan", function_rule},
    {"asin", function_rule},
    {"acos", function_rule},
    {"atan", function_rule},
    {"arcsin", function_rule, "asin"},
    {"arccos", function_rule, "acos"},
    {"arctan", function_rule, "atan"},
    {"sinh", function_rule},
    {"cosh", function_rule},
    {"tanh", function_rule},
    {"asinh", function_rule},
    {"acosh", function_rule},
    {"atanh", function_rule},
    {"arcsinh", function_rule, "asinh"},
    {"arccosh", function_rule, "acosh"},
    {"arctanh", function_rule, "atanh"},
    {"sigmoid", function_rule},
    {"special_expit", function_rule, "sigmoid"},
    {"erf", function_rule},
    {"erfc", function_rule},
    {"erfinv", function_rule},
    {"special_erf", function_rule, "erf"},
    {"special_erfc", function_rule, "erfc"},
    {"special_erfinv", function_rule, "erfinv"},
    {"special_ndtr", function_rule, "normal_cdf"},
    {"special_ndtri", ndtri_rule},
    {"special_entr", entropy_rule},
    {"lgamma", function_rule},
    {"special_gammaln", function_rule, "lgamma"},
    {"digamma", function_rule},
    {"special_digamma", function_rule, "digamma"},
    {"special_psi", function_rule, "digamma"},
    {"polygamma", polygamma_rule},
    {"special_polygamma", polygamma_rule},
    {"mvlgamma", multivariate_gamma_rule},
    {"special_multigammaln", multivariate_gamma_rule},
    {"deg2rad", function_rule},
    {"rad2deg", function_rule},
    {"sinc", sinc_rule},
    {"special_sinc", sinc_rule},
    {"logit", logit_rule},
    {"special_logit", logit_rule},

    {"isnan", test_rule},
    {"isinf", test_rule},
    {"isfinite", test_rule},
    {"isposinf", infinity_rule},
    {"isneginf", infinity_rule},
    {"nan_to_num", nan_to_num_rule},
    {"logical_not", test_rule},
    {"logical_and", logic_rule},
    {"logical_or", logic_rule},
    {"logical_xor", logic_rule},
    {"bitwise_not", bits_rule},
    {"bitwise_and", bits_rule},
    {"bitwise_or", bits_rule},
    {"bitwise_xor", bits_rule},
    {"__and__", bits_rule, "bitwise_and"},
    {"__or__", bits_rule, "bitwise_or"},
    {"__xor__", bits_rule, "bitwise_xor"},
    {"bitwise_left_shift", shift_rule},
    {"bitwise_right_shift", shift_rule},
    {"__lshift__", shift_rule, "bitwise_left_shift"},
    {"__rshift__", shift_rule, "bitwise_right_shift"},
    {"where", where_rule},
    {"masked_fill", masked_fill_rule},
    {"angle", angle_of_real_rule},
    {"to", to_rule},
    {"type_as", to_rule},
    {"_to_copy", copy_rule},
};

}  // namespace

constinit const Rules pointwise_rules = pointwise_table;

}  // namespace gradus::pt2
