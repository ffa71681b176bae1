// Elementary functions.
#pragma once

#include <numbers>

#include "gradus/rules.h"
#include "gradus/table.h"
#include "ops/declared.h"

namespace gradus::ops {

inline constexpr double ln2 = std::numbers::ln2, ln10 = std::numbers::ln10;

// 1 / sqrt(1 - x^2).
Value rsqrt_one_minus_square(const Value& x);

// y = 1 - x^2, by factors: exact differences near x = 1 and x = -1. What is above or below it there
// is infinite, so its derivative is one product: of two factors' derivatives one would be 0 times
// that.
struct OneMinusSquare : Unary<Result::floating> {
  static constexpr std::string_view name = "one_minus_square", doc = "y = 1 - x^2";
  GRADUS_INLINE static auto scalar(auto x) { return (1.0 - x) * (x + 1.0); }
  static Value dx(VjpCall& d) { return d.dy() * (d.x() * -2.0); }
};

struct FastExp;
struct Exp : Function<Unary<Result::floating>> {  // y = e^x
  static constexpr std::string_view name = "exp", doc = "y = e^x";
  using Fast = FastExp;
  GRADUS_INLINE static auto scalar(auto x) { return exp(x); }
  static Value dx(VjpCall& d) { return d.dy() * d.y(); }
};

// Operators with a faster form, `Fast`, become it where a program is compiled with
// CompileOptions::fast_functions. A program may also call these forms itself.
struct FastExp : Function<Unary<Result::floating>> {  // y = e^x
  static constexpr std::string_view name = "fast_exp", doc = "y = e^x, within 4 ulp in f32";
  GRADUS_INLINE static auto scalar(auto x) { return fast_exp(x); }
  static Value dx(VjpCall& d) { return Exp::dx(d); }
};

struct Exp2 : Function<Unary<Result::floating>> {  // y = 2^x
  static constexpr std::string_view name = "exp2", doc = "y = 2^x";
  GRADUS_INLINE static auto scalar(auto x) { return exp2(x); }
  static Value dx(VjpCall& d) { return d.dy() * (d.y() * ln2); }
};

// Its slope is exp(x), which y + 1 would lose to rounding for small results.
struct Expm1 : Function<Unary<Result::floating>> {  // y = e^x - 1
  static constexpr std::string_view name = "expm1", doc = "y = e^x - 1";
  GRADUS_INLINE static auto scalar(auto x) { return expm1(x); }
  static Value dx(VjpCall& d) { return d.dy() * emit<Exp>(d.x()); }
};

struct Log : Function<Unary<Result::floating>> {  // y = log(x)
  static constexpr std::string_view name = "log", doc = "y = log(x)";
  GRADUS_INLINE static auto scalar(auto x) { return log(x); }
  static Value dx(VjpCall& d) { return d.dy() / d.x(); }
};

struct Log2 : Function<Unary<Result::floating>> {  // y = log(x) / log(2)
  static constexpr std::string_view name = "log2", doc = "y = log(x) / log(2)";
  GRADUS_INLINE static auto scalar(auto x) { return log2(x); }
  static Value dx(VjpCall& d) { return d.dy() / (d.x() * ln2); }
};

struct Log10 : Function<Unary<Result::floating>> {  // y = log(x) / log(10)
  static constexpr std::string_view name = "log10", doc = "y = log(x) / log(10)";
  GRADUS_INLINE static auto scalar(auto x) { return log10(x); }
  static Value dx(VjpCall& d) { return d.dy() / (d.x() * ln10); }
};

struct Log1p : Function<Unary<Result::floating>> {  // y = log(1 + x)
  static constexpr std::string_view name = "log1p", doc = "y = log(1 + x)";
  GRADUS_INLINE static auto scalar(auto x) { return log1p(x); }
  static Value dx(VjpCall& d) { return d.dy() / (d.x() + 1.0); }
};

// Angles that are usual are reduced by a cheaper rule.
struct OfAngle : Function<Unary<Result::floating>> {
  GRADUS_INLINE static auto is_usual(auto x) { return is_moderate_angle(x); }
};

struct Sin : OfAngle {  // y = sin(x)
  static constexpr std::string_view name = "sin", doc = "y = sin(x)";
  GRADUS_INLINE static auto scalar(auto x) { return sin(x); }
  GRADUS_INLINE static auto scalar_usual(auto x) { return sin_moderate(x); }
  static Value dx(VjpCall& d) { return d.dy() * emit<Cos>(d.x()); }
};

struct Cos : OfAngle {  // y = cos(x)
  static constexpr std::string_view name = "cos", doc = "y = cos(x)";
  GRADUS_INLINE static auto scalar(auto x) { return cos(x); }
  GRADUS_INLINE static auto scalar_usual(auto x) { return cos_moderate(x); }
  static Value dx(VjpCall& d) { return -(d.dy() * emit<Sin>(d.x())); }
};

struct Tan : OfAngle {  // y = tan(x)
  static constexpr std::string_view name = "tan", doc = "y = tan(x)";
  GRADUS_INLINE static auto scalar(auto x) { return tan(x); }
  GRADUS_INLINE static auto scalar_usual(auto x) { return tan_moderate(x); }
  static Value dx(VjpCall& d) { return d.dy() * (emit<Square>(d.y()) + 1.0); }
};

struct Asin : Function<Unary<Result::floating>> {  // y = arcsin(x)
  static constexpr std::string_view name = "asin", doc = "y = arcsin(x)";
  GRADUS_INLINE static auto scalar(auto x) { return asin(x); }
  static Value dx(VjpCall& d) { return d.dy() * rsqrt_one_minus_square(d.x()); }
};

struct Acos : Function<Unary<Result::floating>> {  // y = arccos(x)
  static constexpr std::string_view name = "acos", doc = "y = arccos(x)";
  GRADUS_INLINE static auto scalar(auto x) { return acos(x); }
  static Value dx(VjpCall& d) { return -(d.dy() * rsqrt_one_minus_square(d.x())); }
};

struct Atan : Function<Unary<Result::floating>> {  // y = arctan(x)
  static constexpr std::string_view name = "atan", doc = "y = arctan(x)";
  GRADUS_INLINE static auto scalar(auto x) { return atan(x); }
  static Value dx(VjpCall& d) { return d.dy() / (emit<Square>(d.x()) + 1.0); }
};

struct Sinh : Function<Unary<Result::floating>> {  // y = (e^x - e^-x) / 2
  static constexpr std::string_view name = "sinh", doc = "y = (e^x - e^-x) / 2";
  GRADUS_INLINE static auto scalar(auto x) { return sinh(x); }
  static Value dx(VjpCall& d) { return d.dy() * emit<Cosh>(d.x()); }
};

struct Cosh : Function<Unary<Result::floating>> {  // y = (e^x + e^-x) / 2
  static constexpr std::string_view name = "cosh", doc = "y = (e^x + e^-x) / 2";
  GRADUS_INLINE static auto scalar(auto x) { return cosh(x); }
  static Value dx(VjpCall& d) { return d.dy() * emit<Sinh>(d.x()); }
};

struct FastTanh;
struct Tanh : Function<Unary<Result::floating>> {  // y = (e^x - e^-x) / (e^x + e^-x)
  static constexpr std::string_view name = "tanh", doc = "y = (e^x - e^-x) / (e^x + e^-x)";
  using Fast = FastTanh;
  GRADUS_INLINE static auto scalar(auto x) { return tanh(x); }
  static Value dx(VjpCall& d) { return d.dy() * (1.0 - emit<Square>(d.y())); }
};

struct FastTanh : Function<Unary<Result::floating>> {  // y = (e^x - e^-x) / (e^x + e^-x)
  static constexpr std::string_view name = "fast_tanh";
  static constexpr std::string_view doc = "y = (e^x - e^-x) / (e^x + e^-x), within 4 ulp in f32";
  GRADUS_INLINE static auto scalar(auto x) { return fast_tanh(x); }
  static Value dx(VjpCall& d) { return Tanh::dx(d); }
};

struct Asinh : Function<Unary<Result::floating>> {  // y = log(x + sqrt(x^2 + 1))
  static constexpr std::string_view name = "asinh", doc = "y = log(x + sqrt(x^2 + 1))";
  GRADUS_INLINE static auto scalar(auto x) { return asinh(x); }
  static Value dx(VjpCall& d) { return d.dy() / emit<Hypot>(d.x(), num(1.0)); }
};

struct Acosh : Function<Unary<Result::floating>> {  // y = log(x + sqrt(x^2 - 1))
  static constexpr std::string_view name = "acosh", doc = "y = log(x + sqrt(x^2 - 1)), x >= 1";
  GRADUS_INLINE static auto scalar(auto x) { return acosh(x); }
  static Value dx(VjpCall&);
};

struct Atanh : Function<Unary<Result::floating>> {  // y = log((1 + x) / (1 - x)) / 2
  static constexpr std::string_view name = "atanh", doc = "y = log((1 + x) / (1 - x)) / 2";
  GRADUS_INLINE static auto scalar(auto x) { return atanh(x); }
  static Value dx(VjpCall&);
};

// An angle in degrees as one in radians, and back; integers give f32.
inline constexpr double radians_per_degree = std::numbers::pi / 180,
                        degrees_per_radian = 180 / std::numbers::pi;
struct Deg2rad : Unary<Result::floating> {  // y = x pi / 180
  static constexpr std::string_view name = "deg2rad", doc = "y = x * (pi / 180)";
  GRADUS_INLINE static auto scalar(auto x) { return x * radians_per_degree; }
  static Value dx(VjpCall& d) { return d.dy() * radians_per_degree; }
};
struct Rad2deg : Unary<Result::floating> {  // y = x 180 / pi
  static constexpr std::string_view name = "rad2deg", doc = "y = x * (180 / pi)";
  GRADUS_INLINE static auto scalar(auto x) { return x * degrees_per_radian; }
  static Value dx(VjpCall& d) { return d.dy() * degrees_per_radian; }
};

using ElementaryOperators =
    std::tuple<Exp, FastExp, Exp2, Expm1, Log, Log2, Log10, Log1p, Sin, Cos, Tan, OneMinusSquare,
               Asin, Acos, Atan, Sinh, Cosh, Tanh, FastTanh, Asinh, Acosh, Atanh, Deg2rad, Rad2deg>;

}  // namespace gradus::ops
