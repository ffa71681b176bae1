// The scalar world of ONNX nodes: Recorded<float>, Recorded<double>, Recorded<int64_t>. Each
// operation appends a node to a model; what each means is said at the head of ops/scalar/num.h.
// Elementary functions are ONNX's own, so that the bits are those of whoever runs the model. What
// works on bits has no node, and is refused when a rule comes to it.
#pragma once

#include "io/onnx/exporter.h"
#include "ops/scalar/num.h"

namespace gradus::scalar {

using onnx::ModelWriter;
using onnx::Wire;

// A truth value.
struct RecordedTruth {
  ModelWriter* to = nullptr;
  Wire value;
};

template <class T>
struct Recorded;
template <class T>
struct RecordedInt {};
template <class T>
requires std::is_floating_point_v<T>
struct RecordedInt<T> {
  using Int = Recorded<std::conditional_t<sizeof(T) == 8, int64_t, int32_t>>;
};

template <class T>
struct Recorded : RecordedInt<T> {
  using Bool = RecordedTruth;
  using Literal = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;
  static constexpr bool is_floating = std::is_floating_point_v<T>;
  static constexpr int bits = static_cast<int>(sizeof(T)) * 8;
  static constexpr DType dtype =
      is_floating ? (bits == 64 ? DType::f64 : DType::f32) : (bits == 64 ? DType::i64 : DType::i32);

  Recorded() = default;
  Recorded(ModelWriter* writer, Wire wire) : to(writer), value(std::move(wire)) {}

  ModelWriter* to = nullptr;
  Wire value;
};

[[noreturn]] inline void no_node(const char* what) {
  throw onnx::Unsupported(fmt::format("ONNX has no operator for {}", what), what);
}

template <class T>
Recorded<T> like(const Recorded<T>& x, typename Recorded<T>::Literal c) {
  return {x.to, x.to->number(Recorded<T>::dtype, ir::Number::of(c))};
}
inline RecordedTruth like(const RecordedTruth& x, bool c) {
  return {x.to, x.to->number(DType::boolean, ir::Number::of(c))};
}

template <class T>
Recorded<T> record(const char* op, const Recorded<T>& x) {
  return {x.to, x.to->node(op, {x.value})};
}
template <class T>
Recorded<T> record(const char* op, const Recorded<T>& a, const Recorded<T>& b,
                   std::vector<onnx::NodeAttribute> attributes = {}) {
  return {a.to, a.to->node(op, {a.value, b.value}, std::move(attributes))};
}

#define GRADUS_RECORDED_LITERALS(result, name)                  \
  template <class T>                                            \
  result name(Recorded<T> a, typename Recorded<T>::Literal b) { \
    return name(a, like(a, b));                                 \
  }                                                             \
  template <class T>                                            \
  result name(typename Recorded<T>::Literal a, Recorded<T> b) { \
    return name(like(b, a), b);                                 \
  }
#define GRADUS_RECORDED_BINARY(condition, name, op)                                               \
  template <class T>                                                                              \
  requires(condition) Recorded<T> name(Recorded<T> a, Recorded<T> b) { return record(op, a, b); } \
  GRADUS_RECORDED_LITERALS(Recorded<T>, name)
#define GRADUS_RECORDED_COMPARISON(symbol, op)                  \
  template <class T>                                            \
  RecordedTruth operator symbol(Recorded<T> a, Recorded<T> b) { \
    return {a.to, a.to->node(op, {a.value, b.value})};          \
  }                                                             \
  GRADUS_RECORDED_LITERALS(RecordedTruth, operator symbol)
#define GRADUS_RECORDED_UNARY(condition, name, op) \
  template <class T>                               \
  requires(condition) Recorded<T> name(Recorded<T> x) { return record(op, x); }
#define GRADUS_RECORDED_BITS(name)                                                 \
  template <class T>                                                               \
  requires(!Recorded<T>::is_floating) Recorded<T> name(Recorded<T>, Recorded<T>) { \
    no_node("bits of numbers");                                                    \
  }                                                                                \
  GRADUS_RECORDED_LITERALS(Recorded<T>, name)

GRADUS_RECORDED_BINARY(true, operator+, "Add")
GRADUS_RECORDED_BINARY(true, operator-, "Sub")
GRADUS_RECORDED_BINARY(true, operator*, "Mul")
GRADUS_RECORDED_BINARY(Recorded<T>::is_floating, operator/, "Div")
GRADUS_RECORDED_BINARY(true, maximum, "Max")
GRADUS_RECORDED_BINARY(true, minimum, "Min")
GRADUS_RECORDED_BINARY(true, pow, "Pow")
GRADUS_RECORDED_COMPARISON(==, "Equal")
GRADUS_RECORDED_COMPARISON(<, "Less")
GRADUS_RECORDED_COMPARISON(<=, "LessOrEqual")
GRADUS_RECORDED_COMPARISON(>, "Greater")
GRADUS_RECORDED_COMPARISON(>=, "GreaterOrEqual")
GRADUS_RECORDED_UNARY(true, operator-, "Neg")
GRADUS_RECORDED_UNARY(true, abs, "Abs")
GRADUS_RECORDED_UNARY(Recorded<T>::is_floating, sqrt, "Sqrt")
GRADUS_RECORDED_UNARY(Recorded<T>::is_floating, floor, "Floor")
GRADUS_RECORDED_UNARY(Recorded<T>::is_floating, ceil, "Ceil")
GRADUS_RECORDED_UNARY(Recorded<T>::is_floating, round_even, "Round")
GRADUS_RECORDED_UNARY(Recorded<T>::is_floating, exp, "Exp")
GRADUS_RECORDED_UNARY(Recorded<T>::is_floating, log, "Log")
GRADUS_RECORDED_UNARY(Recorded<T>::is_floating, sin, "Sin")
GRADUS_RECORDED_UNARY(Recorded<T>::is_floating, cos, "Cos")
GRADUS_RECORDED_UNARY(Recorded<T>::is_floating, tan, "Tan")
GRADUS_RECORDED_UNARY(Recorded<T>::is_floating, asin, "Asin")
GRADUS_RECORDED_UNARY(Recorded<T>::is_floating, acos, "Acos")
GRADUS_RECORDED_UNARY(Recorded<T>::is_floating, atan, "Atan")
GRADUS_RECORDED_UNARY(Recorded<T>::is_floating, sinh, "Sinh")
GRADUS_RECORDED_UNARY(Recorded<T>::is_floating, cosh, "Cosh")
GRADUS_RECORDED_UNARY(Recorded<T>::is_floating, tanh, "Tanh")
GRADUS_RECORDED_UNARY(Recorded<T>::is_floating, asinh, "Asinh")
GRADUS_RECORDED_UNARY(Recorded<T>::is_floating, acosh, "Acosh")
GRADUS_RECORDED_UNARY(Recorded<T>::is_floating, atanh, "Atanh")
GRADUS_RECORDED_UNARY(Recorded<T>::is_floating, sigmoid, "Sigmoid")
GRADUS_RECORDED_UNARY(Recorded<T>::is_floating, log1p_exp, "Softplus")
GRADUS_RECORDED_UNARY(Recorded<T>::is_floating, erf, "Erf")
GRADUS_RECORDED_BITS(operator&)
GRADUS_RECORDED_BITS(operator|)
GRADUS_RECORDED_BITS(operator^)
GRADUS_RECORDED_BITS(shl)
GRADUS_RECORDED_BITS(lshr)
#undef GRADUS_RECORDED_BITS
#undef GRADUS_RECORDED_UNARY
#undef GRADUS_RECORDED_COMPARISON
#undef GRADUS_RECORDED_BINARY

inline RecordedTruth operator&(RecordedTruth a, RecordedTruth b) {
  return {a.to, a.to->node("And", {a.value, b.value})};
}
inline RecordedTruth operator|(RecordedTruth a, RecordedTruth b) {
  return {a.to, a.to->node("Or", {a.value, b.value})};
}
inline RecordedTruth operator^(RecordedTruth a, RecordedTruth b) {
  return {a.to, a.to->node("Xor", {a.value, b.value})};
}
inline RecordedTruth operator!(RecordedTruth a) { return {a.to, a.to->node("Not", {a.value})}; }
template <class T>
RecordedTruth operator!=(Recorded<T> a, Recorded<T> b) {
  return !(a == b);
}
GRADUS_RECORDED_LITERALS(RecordedTruth, operator!=)

template <class T>
Recorded<T> select(RecordedTruth c, Recorded<T> a, Recorded<T> b) {
  return {c.to, c.to->node("Where", {c.value, a.value, b.value})};
}
template <class T>
Recorded<T> select(RecordedTruth c, Recorded<T> a, typename Recorded<T>::Literal b) {
  return select(c, a, like(a, b));
}
template <class T>
Recorded<T> select(RecordedTruth c, typename Recorded<T>::Literal a, Recorded<T> b) {
  return select(c, like(b, a), b);
}
inline RecordedTruth select(RecordedTruth c, RecordedTruth a, RecordedTruth b) {
  return (c & a) | ((!c) & b);
}
template <class Rare, class V>
V select_rare(RecordedTruth c, Rare rare, V common) {
  V other = rare();
  return select(c, other, common);
}

// Two roundings where a machine has one.
template <class A, class B, class C>
auto fma(A a, B b, C c) -> decltype(a * b + c) {
  return a * b + c;
}

// The sign of a zero is lost: no operator reads it.
template <class T>
requires(Recorded<T>::is_floating) Recorded<T> copysign(Recorded<T> magnitude, Recorded<T> sign) {
  Recorded<T> size = abs(magnitude);
  return select(sign < 0.0, -size, size);
}
GRADUS_RECORDED_LITERALS(Recorded<T>, copysign)
template <class T>
requires(Recorded<T>::is_floating) Recorded<T> trunc(Recorded<T> x) {
  return select(x < 0.0, ceil(x), floor(x));
}
template <class T>
requires(Recorded<T>::is_floating) Recorded<T> fmod_exact(Recorded<T> a, Recorded<T> b) {
  return record("Mod", a, b, {{"fmod", int64_t{1}}});
}
template <class T>
requires(Recorded<T>::is_floating) RecordedTruth is_nan(Recorded<T> x) {
  return {x.to, x.to->node("IsNaN", {x.value})};
}
template <class T>
requires(Recorded<T>::is_floating) RecordedTruth is_inf(Recorded<T> x) {
  return {x.to, x.to->node("IsInf", {x.value})};
}

// Where 1 + x loses digits of x, log(1 + x) * x / ((1 + x) - 1) has them again: W. Kahan.
template <class T>
requires(Recorded<T>::is_floating) Recorded<T> log1p(Recorded<T> x) {
  Recorded<T> sum = x + 1.0;
  Recorded<T> back = sum - 1.0;
  RecordedTruth lost = (back == 0.0) | is_inf(sum);
  Recorded<T> corrected = log(sum) * (x / select(lost, 1.0, back));
  return select(back == 0.0, x, select(is_inf(sum), sum, corrected));
}
// e^x - 1 = 2 sinh(x / 2) e^(x / 2); e^x - 1 itself where that overflows.
template <class T>
requires(Recorded<T>::is_floating) Recorded<T> expm1(Recorded<T> x) {
  Recorded<T> half = x * 0.5;
  Recorded<T> small = sinh(half) * exp(half) * 2.0;
  return select(abs(x) < 1.0, small, exp(x) - 1.0);
}
template <class T>
requires(Recorded<T>::is_floating) Recorded<T> exp2(Recorded<T> x) { return pow(like(x, 2.0), x); }
template <class T>
requires(Recorded<T>::is_floating) Recorded<T> log2(Recorded<T> x) {
  return log(x) / 0.693147180559945309417;
}
template <class T>
requires(Recorded<T>::is_floating) Recorded<T> log10(Recorded<T> x) {
  return log(x) / 2.30258509299404568402;
}
template <class T>
requires(Recorded<T>::is_floating) Recorded<T> logsigmoid(Recorded<T> x) { return -log1p_exp(-x); }
// 1 - erf(x): exact to the last digits of 1, not to its own.
template <class T>
requires(Recorded<T>::is_floating) Recorded<T> erfc(Recorded<T> x) { return 1.0 - erf(x); }
// The greater of the two is taken out of the root.
template <class T>
requires(Recorded<T>::is_floating) Recorded<T> hypot(Recorded<T> x, Recorded<T> y) {
  Recorded<T> high = maximum(abs(x), abs(y)), low = minimum(abs(x), abs(y));
  RecordedTruth plain = (high == 0.0) | is_inf(high);
  Recorded<T> ratio = low / select(plain, 1.0, high);
  return select(plain, high, high * sqrt(ratio * ratio + 1.0));
}
template <class T>
requires(Recorded<T>::is_floating) Recorded<T> atan2(Recorded<T> y, Recorded<T> x) {
  constexpr double pi = 3.14159265358979323846;
  Recorded<T> angle = atan(y / select(x == 0.0, 1.0, x));
  Recorded<T> turned = select(y < 0.0, angle - pi, angle + pi);
  Recorded<T> upright = select(y < 0.0, like(y, -pi / 2), select(y > 0.0, pi / 2, y));
  return select(x == 0.0, upright, select(x < 0.0, turned, angle));
}

#define GRADUS_RECORDED_NONE(name) \
  template <class T>               \
  requires(Recorded<T>::is_floating) Recorded<T> name(Recorded<T>) { no_node(#name); }
GRADUS_RECORDED_NONE(lgamma)
GRADUS_RECORDED_NONE(digamma)
GRADUS_RECORDED_NONE(erfinv)
#undef GRADUS_RECORDED_NONE
template <class T>
requires(Recorded<T>::is_floating) Recorded<T> polygamma(int, Recorded<T>) { no_node("polygamma"); }

template <class T>
requires(Recorded<T>::is_floating) typename Recorded<T>::Int bits(Recorded<T>) {
  no_node("bits of numbers");
}

// Of integers.
template <class T>
requires(!Recorded<T>::is_floating) Recorded<T> trunc_div(Recorded<T> a, Recorded<T> b) {
  return record("Div", a, b);
}
template <class T>
requires(!Recorded<T>::is_floating) Recorded<T> c_rem(Recorded<T> a, Recorded<T> b) {
  return record("Mod", a, b, {{"fmod", int64_t{1}}});
}
template <class T>
requires(!Recorded<T>::is_floating) Recorded<T> floor_mod(Recorded<T> a, Recorded<T> b) {
  return record("Mod", a, b);
}
template <class T>
requires(!Recorded<T>::is_floating) Recorded<T> floor_div(Recorded<T> a, Recorded<T> b) {
  return record("Div", record("Sub", a, floor_mod(a, b)), b);
}
#undef GRADUS_RECORDED_LITERALS

}  // namespace gradus::scalar
