#include "io/onnx/node_emitter.h"

#include "fusion/lane.h"
#include "gradus/error.h"

namespace gradus::onnx {

using fusion::Binary;
using fusion::Compare;
using fusion::Function;
using fusion::LaneType;
using fusion::ScalarEmitter;
using fusion::Unary;
using scalar::Lane;
using scalar::Truth;

namespace {

[[noreturn]] void no_node(const char* what) {
  throw Unsupported(
      fmt::format("ONNX has no operator for {}; a stage that uses it cannot be exported", what),
      what);
}

DType dtype_of_lane(LaneType type) {
  switch (type) {
    case LaneType::f32:
      return DType::f32;
    case LaneType::f64:
      return DType::f64;
    case LaneType::i32:
      return DType::i32;
    case LaneType::u64:
      return DType::u64;
    case LaneType::i64:
      break;
  }
  return DType::i64;
}

// ONNX's operators that are ours.
constexpr std::pair<Unary, const char*> unary_nodes[] = {
    {Unary::negate, "Neg"},  {Unary::abs, "Abs"},   {Unary::sqrt, "Sqrt"},
    {Unary::floor, "Floor"}, {Unary::ceil, "Ceil"}, {Unary::round_even, "Round"}};
constexpr std::pair<Binary, const char*> binary_nodes[] = {{Binary::add, "Add"},
                                                           {Binary::subtract, "Sub"},
                                                           {Binary::multiply, "Mul"},
                                                           {Binary::divide, "Div"},
                                                           {Binary::divide_unsigned, "Div"}};
constexpr std::pair<Binary, const char*> truth_nodes[] = {
    {Binary::bit_and, "And"}, {Binary::bit_or, "Or"}, {Binary::bit_xor, "Xor"}};
constexpr std::pair<Compare, const char*> compare_nodes[] = {
    {Compare::equal, "Equal"},
    {Compare::less, "Less"},
    {Compare::greater, "Greater"},
    {Compare::less_equal, "LessOrEqual"},
    {Compare::not_equal, "Equal"},
    {Compare::greater_equal, "GreaterOrEqual"},
    {Compare::less_unsigned, "Less"},
    {Compare::greater_unsigned, "Greater"},
    {Compare::less_equal_unsigned, "LessOrEqual"},
    {Compare::greater_equal_unsigned, "GreaterOrEqual"}};
constexpr std::pair<Function, const char*> function_nodes[] = {
    {Function::exp, "Exp"},      {Function::log, "Log"},      {Function::sin, "Sin"},
    {Function::cos, "Cos"},      {Function::tan, "Tan"},      {Function::asin, "Asin"},
    {Function::acos, "Acos"},    {Function::atan, "Atan"},    {Function::sinh, "Sinh"},
    {Function::cosh, "Cosh"},    {Function::tanh, "Tanh"},    {Function::asinh, "Asinh"},
    {Function::acosh, "Acosh"},  {Function::atanh, "Atanh"},  {Function::sigmoid, "Sigmoid"},
    {Function::erf, "Erf"},      {Function::pow, "Pow"},      {Function::log1p_exp, "Softplus"},
    {Function::is_nan, "IsNaN"}, {Function::is_inf, "IsInf"}, {Function::abs, "Abs"},
    {Function::maximum, "Max"},  {Function::minimum, "Min"},  {Function::trunc_div, "Div"},
    {Function::floor_mod, "Mod"}};

// Null where there is none.
template <class Op, size_t n>
const char* find_node(const std::pair<Op, const char*> (&table)[n], Op op) {
  for (auto [ours, onnx] : table)
    if (ours == op) return onnx;
  return nullptr;
}

// Where 1 + x loses digits of x, log(1 + x) * x / ((1 + x) - 1) has them again: W. Kahan.
template <class S>
S log1p_by_log(S x) {
  S sum = x + 1.0;
  S back = sum - 1.0;
  Truth lost = (back == 0.0) | is_inf(sum);
  S corrected = log(sum) * (x / select(lost, 1.0, back));
  return select(back == 0.0, x, select(is_inf(sum), sum, corrected));
}

// e^x - 1 = 2 sinh(x / 2) e^(x / 2); e^x - 1 itself where that overflows.
template <class S>
S expm1_by_sinh(S x) {
  S half = x * 0.5;
  S small = sinh(half) * exp(half) * 2.0;
  return select(abs(x) < 1.0, small, exp(x) - 1.0);
}

// The greater of the two is taken out of the root.
template <class S>
S hypot_by_sqrt(S x, S y) {
  S high = maximum(abs(x), abs(y)), low = minimum(abs(x), abs(y));
  Truth plain = (high == 0.0) | is_inf(high);
  S ratio = low / select(plain, 1.0, high);
  return select(plain, high, high * sqrt(ratio * ratio + 1.0));
}

template <class S>
S atan2_by_atan(S y, S x) {
  constexpr double pi = 3.14159265358979323846;
  S angle = atan(y / select(x == 0.0, 1.0, x));
  S turned = select(y < 0.0, angle - pi, angle + pi);
  S upright = select(y < 0.0, like(y, -pi / 2), select(y > 0.0, pi / 2, y));
  return select(x == 0.0, upright, select(x < 0.0, turned, angle));
}

// The sign of a zero is lost: no operator reads it.
template <class S>
S copysign_by_order(S magnitude, S sign) {
  S size = abs(magnitude);
  return select(sign < 0.0, -size, size);
}

template <class S>
S trunc_by_floor(S x) {
  return select(x < 0.0, ceil(x), floor(x));
}

}  // namespace

ScalarEmitter::V NodeEmitter::give(DType dtype, Wire wire) {
  values_.push_back({dtype, std::move(wire)});
  return reinterpret_cast<V>(&values_.back());
}

ScalarEmitter::V NodeEmitter::node(const char* op, DType result, std::initializer_list<V> operands,
                                   std::vector<NodeAttribute> attributes) {
  std::vector<Wire> wires;
  for (V v : operands) wires.push_back(wire(v));
  return give(result, to_.node(op, std::move(wires), std::move(attributes)));
}

ScalarEmitter::V NodeEmitter::constant(LaneType type, double value) {
  return give(dtype_of_lane(type), to_.number(dtype_of_lane(type), ir::Number::of(value)));
}
ScalarEmitter::V NodeEmitter::constant(LaneType type, int64_t value) {
  return give(dtype_of_lane(type), to_.number(dtype_of_lane(type), ir::Number::of(value)));
}
ScalarEmitter::V NodeEmitter::truth(bool value) {
  const V v = give(DType::boolean, to_.number(DType::boolean, ir::Number::of(value)));
  values_.back().is_true = value;
  return v;
}

ScalarEmitter::V NodeEmitter::unary(Unary op, V x) {
  const DType dtype = of(x).dtype;
  // Neg is of signed numbers.
  if (op == Unary::negate && dtype == DType::u64)
    return node("Sub", dtype, {constant(LaneType::u64, int64_t{0}), x});
  if (const char* onnx = find_node(unary_nodes, op)) return node(onnx, dtype, {x});
  return dtype == DType::f64 ? trunc_by_floor(Lane<double>{this, x}).value
                             : trunc_by_floor(Lane<float>{this, x}).value;
}

ScalarEmitter::V NodeEmitter::binary(Binary op, V a, V b) {
  const DType dtype = of(a).dtype;
  const bool truths = dtype == DType::boolean;
  if (op == Binary::bit_xor && truths && of(b).is_true) return node("Not", dtype, {a});
  if (op == Binary::copysign)
    return dtype == DType::f64
               ? copysign_by_order(Lane<double>{this, a}, Lane<double>{this, b}).value
               : copysign_by_order(Lane<float>{this, a}, Lane<float>{this, b}).value;
  const char* onnx = find_node(binary_nodes, op);
  if (!onnx && truths) onnx = find_node(truth_nodes, op);
  if (!onnx) no_node("bits of numbers");
  return node(onnx, dtype, {a, b});
}

ScalarEmitter::V NodeEmitter::compare(Compare op, V a, V b) {
  const V y = node(find_node(compare_nodes, op), DType::boolean, {a, b});
  return op == Compare::not_equal ? node("Not", DType::boolean, {y}) : y;
}

ScalarEmitter::V NodeEmitter::select(V c, V a, V b) {
  const DType dtype = of(a).dtype;
  if (dtype != DType::boolean) return node("Where", dtype, {c, a, b});
  const V yes = node("And", dtype, {c, a});
  const V no = node("And", dtype, {node("Not", dtype, {c}), b});
  return node("Or", dtype, {yes, no});
}

ScalarEmitter::V NodeEmitter::fma(V a, V b, V c) {
  return binary(Binary::add, binary(Binary::multiply, a, b), c);
}

ScalarEmitter::V NodeEmitter::to_bits(V) { no_node("bits of numbers"); }
ScalarEmitter::V NodeEmitter::from_bits(V) { no_node("bits of numbers"); }

ScalarEmitter::V NodeEmitter::fmod(V a, V b) {
  return node("Mod", of(a).dtype, {a, b}, {{"fmod", int64_t{1}}});
}

ScalarEmitter::V NodeEmitter::function(Function f, V x, V y) {
  const DType dtype = of(x).dtype;
  const bool tells = f == Function::is_nan || f == Function::is_inf;
  if (const char* op = find_node(function_nodes, f)) {
    const DType result = tells ? DType::boolean : dtype;
    return y ? node(op, result, {x, y}) : node(op, result, {x});
  }
  if (f == Function::fmod || f == Function::c_rem) return fmod(x, y);
  if (f == Function::floor_div)
    return binary(Binary::divide, binary(Binary::subtract, x, function(Function::floor_mod, x, y)),
                  y);
  return dtype == DType::f64 ? composed<double>(f, x, y) : composed<float>(f, x, y);
}

// Of other functions' nodes.
template <class T>
ScalarEmitter::V NodeEmitter::composed(Function f, V a, V b) {
  const Lane<T> x{this, a}, y{this, b};
  switch (f) {
    case Function::log1p:
      return log1p_by_log(x).value;
    case Function::expm1:
      return expm1_by_sinh(x).value;
    case Function::exp2:
      return pow(like(x, 2.0), x).value;
    case Function::log2:
      return (log(x) / 0.693147180559945309417).value;
    case Function::log10:
      return (log(x) / 2.30258509299404568402).value;
    case Function::logsigmoid:
      return (-log1p_exp(-x)).value;
    case Function::erfc:  // exact to the last digits of 1, not to its own
      return (1.0 - erf(x)).value;
    case Function::hypot:
      return hypot_by_sqrt(x, y).value;
    case Function::atan2:
      return atan2_by_atan(x, y).value;
    case Function::lgamma:
      no_node("lgamma");
    case Function::digamma:
      no_node("digamma");
    case Function::erfinv:
      no_node("erfinv");
    case Function::polygamma:
      no_node("polygamma");
    default:
      GRADUS_CHECK(false);
      return nullptr;
  }
}

}  // namespace gradus::onnx
