// Element by element: arithmetic, functions, comparisons, logic, casts.
#include <onnx/onnx_pb.h>

#include "io/onnx/call.h"
#include "io/onnx/importer.h"
#include "io/onnx/model.h"

namespace gradus::onnx {

using namespace ops;

namespace {

// Before version 7 the second operand lies under the dimensions of the first from `axis` on.
Value second_operand(Call& c) {
  Value b = c.x(1);
  if (c.opset() >= 7 || !c.attribute("broadcast", int64_t{0}) || !c.has("axis")) return b;
  int axis = c.axis(c.attribute("axis", int64_t{0}), c.rank(0));
  while (b.rank() + axis < c.rank(0)) b = unsqueeze(b, b.rank());
  return b;
}

// ONNX promotes nothing: both operands have the result's dtype.
void same_dtypes(Call& c) {
  if (c.dtype(0) != c.dtype(1))
    c.fail("operands of one dtype are wanted, not {} and {}", name_of(c.dtype(0)),
           name_of(c.dtype(1)));
}

// Integers are cut off towards zero.
Value divide(const Value& a, const Value& b) {
  if (is_floating(a.dtype())) return a / b;
  if (a.dtype() == DType::u8) return binary("floor_divide", a, b);
  Value size = binary("floor_divide", unary("abs", a), unary("abs", b));
  Value sign = unary("sign", a) * unary("sign", b);
  return cast(size * sign, a.dtype());
}

void add(Call& c) { same_dtypes(c), c.give(c.x() + second_operand(c)); }
void sub(Call& c) { same_dtypes(c), c.give(c.x() - second_operand(c)); }
void mul(Call& c) { same_dtypes(c), c.give(c.x() * second_operand(c)); }
void div(Call& c) { same_dtypes(c), c.give(divide(c.x(), second_operand(c))); }

void pow(Call& c) {
  Value x = c.x(), y = second_operand(c);
  // A known exponent is a number: roots and squares are what they are, and so are their slopes.
  bool number = c.is_known(1) && c.item(1)->known.numel() == 1 && y.rank() <= x.rank() &&
                is_floating(x.dtype()) && c.item(1)->type.rank() <= 1;
  if (number) y = num(c.item(1)->known.item());
  c.give(cast(binary("pow", x, y), x.dtype()));
}

void mod(Call& c) {
  same_dtypes(c);
  bool of_c = c.attribute("fmod", int64_t{0}) != 0;
  if (!of_c && is_floating(c.dtype())) c.fail("numbers with a point want fmod = 1");
  c.give(binary(of_c ? "fmod" : "remainder", c.x(), c.x(1)));
}

// Any number of operands, one after the other.
void fold_left(Call& c, std::string_view op) {
  if (c.inputs() == 0) c.fail("it wants an input");
  Value y = c.x();
  for (size_t i = 1; i < c.inputs(); ++i) y = binary(op, y, c.x(i));
  c.give(c.op() == "Mean" ? y / static_cast<double>(c.inputs()) : y);
}
void sum_of(Call& c) { fold_left(c, "add"); }
void max_of(Call& c) { fold_left(c, "maximum"); }
void min_of(Call& c) { fold_left(c, "minimum"); }

struct FunctionNames {
  std::string_view onnx, ours;
};
// Functions of one operand that are called the same but for capitals, or another name.
constexpr FunctionNames unary_names[] = {
    {"Neg", "neg"},   {"Abs", "abs"},     {"Sqrt", "sqrt"},       {"Exp", "exp"},
    {"Log", "log"},   {"Floor", "floor"}, {"Ceil", "ceil"},       {"Round", "round"},
    {"Sign", "sign"}, {"Sin", "sin"},     {"Cos", "cos"},         {"Tan", "tan"},
    {"Asin", "asin"}, {"Acos", "acos"},   {"Atan", "atan"},       {"Sinh", "sinh"},
    {"Cosh", "cosh"}, {"Asinh", "asinh"}, {"Acosh", "acosh"},     {"Atanh", "atanh"},
    {"Erf", "erf"},   {"IsNaN", "isnan"}, {"Not", "logical_not"}, {"Reciprocal", "reciprocal"}};
void unary_rule(Call& c) {
  for (const FunctionNames& n : unary_names)
    if (n.onnx == c.op()) c.give(unary(n.ours, c.x()));
}

constexpr FunctionNames binary_names[] = {{"Equal", "eq"},          {"Greater", "gt"},
                                          {"GreaterOrEqual", "ge"}, {"Less", "lt"},
                                          {"LessOrEqual", "le"},    {"And", "logical_and"},
                                          {"Or", "logical_or"},     {"Xor", "logical_xor"}};
void comparison(Call& c) {
  same_dtypes(c);
  for (const FunctionNames& n : binary_names)
    if (n.onnx == c.op()) c.give(binary(n.ours, c.x(), second_operand(c)));
}

void is_infinite(Call& c) {
  bool negative = c.attribute("detect_negative", int64_t{1}) != 0;
  bool positive = c.attribute("detect_positive", int64_t{1}) != 0;
  Value x = c.x(), y = unary("isinf", x);
  if (!negative) y = logical_and(y, gt(x, num(0.0)));
  if (!positive) y = logical_and(y, lt(x, num(0.0)));
  c.give(y);
}

void choose(Call& c) { c.give(where(c.x(0), c.x(1), c.x(2))); }

void cast_to(Call& c) {
  int to = 0;
  if (c.op() == "CastLike") return c.give(cast(c.x(), c.dtype(1)));
  to = static_cast<int>(c.attribute("to", int64_t{0}));
  c.give(cast(c.x(), dtype_of(to, "Cast")));
}

void clip(Call& c) {
  Value x = c.x();
  if (c.opset() < 11) {
    LiteralList bounds;
    if (c.has("min")) bounds.push_back({"min", c.attribute("min", 0.0), {}});
    if (c.has("max")) bounds.push_back({"max", c.attribute("max", 0.0), {}});
    return c.give(bounds.empty() ? x : emit("clamp", {x}, bounds));
  }
  if (c.given(1)) x = binary("maximum", x, c.x(1));
  if (c.given(2)) x = binary("minimum", x, c.x(2));
  c.give(x);
}

// Of u8 alone: there are no larger integers without a sign here.
void shift(Call& c) {
  if (c.dtype() != DType::u8) c.unsupported("BitShift of {}", name_of(c.dtype()));
  std::string direction = c.attribute("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") c.fail("attribute 'direction': LEFT or RIGHT");
  // In 64 bits a shift by 8 or more leaves nothing of eight.
  Value by = binary("minimum", cast(c.x(1), DType::i64), num(int64_t{8}));
  Value power = cast(binary("pow", full(c.world(), {}, 2, DType::i64), by), DType::i64);
  Value x = cast(c.x(), DType::i64);
  Value y = direction == "LEFT" ? binary("remainder", x * power, num(int64_t{256}))
                                : binary("floor_divide", x, power);
  c.give(cast(y, DType::u8));
}

void identity(Call& c) { c.give(c.item(0)); }

constexpr RuleEntry arithmetic_table[] = {
    {"Add", 1, add},
    {"Sub", 1, sub},
    {"Mul", 1, mul},
    {"Div", 1, div},
    {"Pow", 1, pow},
    {"Mod", 10, mod},
    {"Sum", 1, sum_of},
    {"Mean", 1, sum_of},
    {"Max", 1, max_of},
    {"Min", 1, min_of},
    {"Neg", 1, unary_rule},
    {"Abs", 1, unary_rule},
    {"Sqrt", 1, unary_rule},
    {"Exp", 1, unary_rule},
    {"Log", 1, unary_rule},
    {"Floor", 1, unary_rule},
    {"Ceil", 1, unary_rule},
    {"Round", 11, unary_rule},
    {"Sign", 9, unary_rule},
    {"Sin", 7, unary_rule},
    {"Cos", 7, unary_rule},
    {"Tan", 7, unary_rule},
    {"Asin", 7, unary_rule},
    {"Acos", 7, unary_rule},
    {"Atan", 7, unary_rule},
    {"Sinh", 9, unary_rule},
    {"Cosh", 9, unary_rule},
    {"Asinh", 9, unary_rule},
    {"Acosh", 9, unary_rule},
    {"Atanh", 9, unary_rule},
    {"Erf", 9, unary_rule},
    {"IsNaN", 9, unary_rule},
    {"IsInf", 10, is_infinite},
    {"Not", 1, unary_rule},
    {"Reciprocal", 1, unary_rule},
    {"Equal", 1, comparison},
    {"Greater", 1, comparison},
    {"GreaterOrEqual", 12, comparison},
    {"Less", 1, comparison},
    {"LessOrEqual", 12, comparison},
    {"And", 1, comparison},
    {"Or", 1, comparison},
    {"Xor", 1, comparison},
    {"Where", 9, choose},
    {"Cast", 6, cast_to},
    {"CastLike", 15, cast_to},
    {"Clip", 6, clip},
    {"BitShift", 11, shift},
    {"Identity", 1, identity, false},
};

}  // namespace

std::span<const RuleEntry> arithmetic_rules() { return arithmetic_table; }

}  // namespace gradus::onnx
