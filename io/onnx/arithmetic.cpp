// Element by element: arithmetic, functions, comparisons, logic, casts.
#include <onnx/onnx_pb.h>

#include "io/onnx/call.h"
#include "io/onnx/importer.h"
#include "io/onnx/model.h"
#include "io/onnx/narrow.h"

namespace gradus::onnx {

using namespace ops;

namespace {

// Before version 7 the second operand lies under the dimensions of the first from `axis` on.
Value second_operand(Call& c) {
  Value b = c.x(1);
  if (c.opset() >= 7 || !c.flag("broadcast") || !c.has("axis")) return b;
  return under(b, c.axis("axis", 0), c.rank(0));
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
  if (is_unsigned(a.dtype())) return binary("floor_divide", a, b);
  Value size = binary("floor_divide", unary("abs", a), unary("abs", b));
  Value sign = unary("sign", a) * unary("sign", b);
  return cast(size * sign, a.dtype());
}

void add(Call& c) { same_dtypes(c), c.give(c.x() + second_operand(c)); }
void sub(Call& c) { same_dtypes(c), c.give(c.x() - second_operand(c)); }
void mul(Call& c) { same_dtypes(c), c.give(c.x() * second_operand(c)); }
void div(Call& c) { same_dtypes(c), c.give(divide(c.x(), second_operand(c))); }

void pow(Call& c) {
  const Value x = c.x();
  const ItemPtr& e = c.item(1);
  // A known exponent is a number: roots and squares are what they are, and so are their slopes.
  const bool one = c.is_known(1) && e->known.numel() == 1 && e->type.rank() <= 1;
  const bool number = is_floating(x.dtype()) && (e->number || (one && e->type.rank() <= x.rank()));
  const Value y = number ? num(e->known.item()) : second_operand(c);
  c.give(cast(binary("pow", x, y), x.dtype()));
}

void mod(Call& c) {
  same_dtypes(c);
  bool of_c = c.flag("fmod");
  if (!of_c && is_floating(c.dtype()) && c.opset() < 28)
    c.fail("numbers with a point want fmod = 1");
  c.give(binary(of_c ? "fmod" : "remainder", c.x(), c.x(1)));
}

// Any number of operands, one after the other.
void fold_left(Call& c) {
  if (c.inputs() == 0) c.fail("it wants an input");
  Value y = c.x();
  for (size_t i = 1; i < c.inputs(); ++i) y = binary(c.ours(), y, c.x(i));
  c.give(c.op() == "Mean" ? y / static_cast<double>(c.inputs()) : y);
}

void comparison(Call& c) {
  same_dtypes(c);
  c.give(binary(c.ours(), c.x(), second_operand(c)));
}

void is_infinite(Call& c) {
  bool negative = c.flag("detect_negative", true);
  bool positive = c.flag("detect_positive", true);
  Value x = c.x(), y = unary("isinf", x);
  if (!negative) y = logical_and(y, gt(x, num(0.0)));
  if (!positive) y = logical_and(y, lt(x, num(0.0)));
  c.give(y);
}

void choose(Call& c) { c.give(where(c.x(0), c.x(1), c.x(2))); }

RoundMode round_mode_of(Call& c) {
  const std::string mode = c.attribute("round_mode", "up");
  if (mode == "down") return RoundMode::down;
  if (mode != "up" && mode != "nearest") c.fail("attribute 'round_mode': up, down or nearest");
  return mode == "up" ? RoundMode::up : RoundMode::nearest;
}

void cast_to(Call& c) {
  const bool like = c.op() == "CastLike";
  const auto number = static_cast<int>(c.attribute("to", int64_t{0}));
  if (const NarrowType* to = like ? c.item(1)->narrow : narrow_type(number)) {
    Value y = narrowed(c.x(), *to, c.flag("saturate", true), round_mode_of(c));
    return give_narrow(c, std::move(y), *to);
  }
  c.give(cast(c.x(), like ? c.dtype(1) : c.dtype("to", 0)));
}

void clip(Call& c) {
  Value x = c.x();
  if (c.opset() < 11) {
    LiteralList bounds;
    if (c.has("min")) bounds.push_back({"min", c.attribute("min", 0.0)});
    if (c.has("max")) bounds.push_back({"max", c.attribute("max", 0.0)});
    return c.give(bounds.empty() ? x : emit("clamp", {x}, bounds));
  }
  if (c.given(1)) x = binary("maximum", x, c.x(1));
  if (c.given(2)) x = binary("minimum", x, c.x(2));
  c.give(x);
}

void identity(Call& c) { c.give(c.item(0)); }

constexpr RuleEntry arithmetic_table[] = {
    {"Add", 1, add},
    {"Sub", 1, sub},
    {"Mul", 1, mul},
    {"Div", 1, div},
    {"Pow", 1, pow},
    {"Mod", 10, mod},
    {"Sum", 1, fold_left, "add"},
    {"Mean", 1, fold_left, "add"},
    {"Max", 1, fold_left, "maximum"},
    {"Min", 1, fold_left, "minimum"},
    {"Neg", 1, unary_rule, "neg"},
    {"Abs", 1, unary_rule, "abs"},
    {"Sqrt", 1, unary_rule, "sqrt"},
    {"Exp", 1, unary_rule, "exp"},
    {"Log", 1, unary_rule, "log"},
    {"Floor", 1, unary_rule, "floor"},
    {"Ceil", 1, unary_rule, "ceil"},
    {"Round", 11, unary_rule, "round"},
    {"Sign", 9, unary_rule, "sign"},
    {"Sin", 7, unary_rule, "sin"},
    {"Cos", 7, unary_rule, "cos"},
    {"Tan", 7, unary_rule, "tan"},
    {"Asin", 7, unary_rule, "asin"},
    {"Acos", 7, unary_rule, "acos"},
    {"Atan", 7, unary_rule, "atan"},
    {"Sinh", 9, unary_rule, "sinh"},
    {"Cosh", 9, unary_rule, "cosh"},
    {"Asinh", 9, unary_rule, "asinh"},
    {"Acosh", 9, unary_rule, "acosh"},
    {"Atanh", 9, unary_rule, "atanh"},
    {"Erf", 9, unary_rule, "erf"},
    {"IsNaN", 9, unary_rule, "isnan"},
    {"IsInf", 10, is_infinite},
    {"Not", 1, unary_rule, "logical_not"},
    {"Reciprocal", 1, unary_rule, "reciprocal"},
    {"Equal", 1, comparison, "eq"},
    {"Greater", 1, comparison, "gt"},
    {"GreaterOrEqual", 12, comparison, "ge"},
    {"Less", 1, comparison, "lt"},
    {"LessOrEqual", 12, comparison, "le"},
    {"And", 1, comparison, "logical_and"},
    {"Or", 1, comparison, "logical_or"},
    {"Xor", 1, comparison, "logical_xor"},
    {"Where", 9, choose},
    {"Cast", 6, cast_to},
    {"CastLike", 15, cast_to},
    {"Clip", 6, clip},
    {"Identity", 1, identity, {}, false},
};

}  // namespace

constinit const Rules arithmetic_rules = arithmetic_table;

}  // namespace gradus::onnx
